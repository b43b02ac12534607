//! What the calls say about cards in a known state, and where tools and libraries differ in how they ask.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::LazyLock;

use gpupool_nvidia::nvml::*;
use nvidia_ml::calls::identity::*;
use nvidia_ml::calls::library::*;
use nvidia_ml::calls::processes::*;
use nvidia_ml::calls::readings::*;
use simgpu_device::{Card, Machine, MachineSettings, Process, WINDOW_NS, now_ns, sleep_until};

const INVALID_ARGUMENT: u32 = 2;
const NOT_FOUND: u32 = 6;
const INSUFFICIENT_SIZE: u32 = 7;
const GPU_IS_LOST: u32 = 15;
const VERSION_MISMATCH: u32 = 25;

/// Card 0: this process holds a context and 1 MiB. Card 1: nobody. Card 2: lost. Card 3: as its test has it.
struct Scene {
    machine: Machine,
    held: u64,
    _folder: tempfile::TempDir,
}

static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    // SAFETY: every test comes through here before it does anything, so nobody reads the environment meanwhile.
    unsafe { std::env::set_var("SIMGPU_STATE", &state) };
    let machine = Machine::open(&MachineSettings::new(&state, "2xA100-80GB,2xT4").unwrap()).unwrap();
    let process: Process = machine.join().unwrap();
    process.open_context(0).unwrap();
    process.take_memory(0, 1 << 20).unwrap();
    machine.card(2).unwrap().lose();
    assert_eq!(nvmlInitWithFlags(0), 0);
    Scene { machine, held: process.held_memory(0), _folder: folder }
});

fn handle(index: u32) -> nvmlDevice_t {
    LazyLock::force(&SCENE);
    let mut device = null_mut();
    // SAFETY: the pointer is to our own value.
    assert_eq!(unsafe { nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) }, 0);
    device
}

fn model(index: usize) -> Card {
    SCENE.machine.card(index).unwrap()
}

/// The string that a call writes into a buffer of `length` bytes.
fn string(length: u32, call: impl FnOnce(*mut c_char, u32) -> u32) -> Result<String, u32> {
    let mut buffer = [b'?'; 128];
    match call(buffer.as_mut_ptr().cast(), length) {
        0 => {
            let end = buffer.iter().position(|byte| *byte == 0).unwrap();
            Ok(String::from_utf8(buffer[..end].to_vec()).unwrap())
        }
        code => {
            assert_eq!(buffer, [b'?'; 128], "a refused call writes nothing");
            Err(code)
        }
    }
}

#[test]
fn a_card_is_known_by_the_same_names_to_cuda_and_nvml() {
    let device = handle(1);
    // SAFETY: the buffers are as long as said.
    unsafe {
        let uuid = string(41, |buffer, length| nvmlDeviceGetUUID(device, buffer, length)).unwrap();
        assert_eq!(uuid, model(1).uuid().to_string());
        let name = string(96, |buffer, length| nvmlDeviceGetName(device, buffer, length)).unwrap();
        assert_eq!(name, model(1).name());
        assert_eq!(
            string(40, |buffer, length| nvmlDeviceGetUUID(device, buffer, length)),
            Err(INSUFFICIENT_SIZE),
            "a UUID takes 40 characters and a zero"
        );

        let mut found: nvmlDevice_t = null_mut();
        let serial = string(30, |buffer, length| nvmlDeviceGetSerial(device, buffer, length)).unwrap();
        assert_eq!(serial.len(), 13);
        let serial = CString::new(serial).unwrap();
        assert_eq!(nvmlDeviceGetHandleBySerial(serial.as_ptr(), &raw mut found), 0);
        assert_eq!(found, device);
        for uuid in [uuid.to_uppercase(), uuid] {
            let uuid = CString::new(uuid).unwrap();
            found = null_mut();
            assert_eq!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found), 0);
            assert_eq!(found, device);
        }
        let stranger = c"GPU-00000000-0000-0000-0000-000000000000";
        assert_eq!(nvmlDeviceGetHandleByUUID(stranger.as_ptr(), &raw mut found), NOT_FOUND);

        let mut index = 77;
        assert_eq!(nvmlDeviceGetIndex(device, &raw mut index), 0);
        assert_eq!(index, 1);
    }
}

#[test]
fn a_pci_address_finds_its_card_in_every_form() {
    let device = handle(0);
    let mut pci = nvmlPciInfo_t::default();
    // SAFETY: every pointer is to our own value, every string ends in zero.
    unsafe {
        assert_eq!(nvmlDeviceGetPciInfo_v3(device, &raw mut pci), 0);
        let address = model(0).pci();
        assert_eq!((pci.domain, pci.bus, pci.device), (address.domain, address.bus, address.device));
        let long = address.to_string();
        assert_eq!(&pci.busId[..long.len()], long.as_bytes());
        assert_eq!(&pci.busIdLegacy[..12], &long.as_bytes()[4..]);
        for form in [long.clone(), long[4..].to_owned(), long[9..].to_lowercase()] {
            let mut found: nvmlDevice_t = null_mut();
            let text = CString::new(form).unwrap();
            assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(text.as_ptr(), &raw mut found), 0);
            assert_eq!(found, device);
        }
        let mut found: nvmlDevice_t = null_mut();
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"rubbish".as_ptr(), &raw mut found), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"0:FF:1F.0".as_ptr(), &raw mut found), NOT_FOUND);
    }
}

#[test]
fn the_old_pci_functions_write_no_more_than_old_callers_have_room_for() {
    let device = handle(0);
    for function in [nvmlDeviceGetPciInfo as unsafe extern "C" fn(_, _) -> u32, nvmlDeviceGetPciInfo_v2] {
        let mut room = [0xAA_u8; 68];
        // SAFETY: the room is larger than the structure.
        assert_eq!(unsafe { function(device, room.as_mut_ptr().cast()) }, 0);
        assert_eq!(room[36..], [0xAA; 32]);
        assert_eq!(room[20..24], model(0).pci().bus.to_ne_bytes());
    }
}

#[test]
fn memory_adds_up_and_shows_what_is_held() {
    let mut memory = nvmlMemory_t::default();
    let mut second = nvmlMemory_v2_t { version: 0x0200_0028, ..nvmlMemory_v2_t::default() };
    // SAFETY: the pointers are to our own values.
    unsafe {
        assert_eq!(nvmlDeviceGetMemoryInfo(handle(0), &raw mut memory), 0);
        assert_eq!(nvmlDeviceGetMemoryInfo_v2(handle(0), &raw mut second), 0);
    }
    assert_eq!(memory.used, SCENE.held);
    assert_eq!(memory.used, model(0).model().context_memory + (1 << 20));
    assert_eq!(memory.total, model(0).total_memory());
    assert_eq!(memory.free + memory.used, memory.total);
    assert_eq!((second.total, second.free, second.used), (memory.total, memory.free, memory.used));
    assert_eq!(second.free + second.used + second.reserved, second.total);
    // SAFETY: the pointer is to our own value.
    assert_eq!(unsafe { nvmlDeviceGetMemoryInfo(handle(1), &raw mut memory) }, 0);
    assert_eq!((memory.used, memory.free), (0, memory.total));
}

#[test]
fn a_structure_of_another_version_is_refused_and_left_alone() {
    let mut memory = nvmlMemory_v2_t { version: 0x0300_0028, total: 5, ..nvmlMemory_v2_t::default() };
    let mut reading = nvmlTemperature_v1_t { version: 0, sensorType: 0, temperature: 5 };
    let mut pci = nvmlPciInfoExt_v1_t::default();
    // SAFETY: the pointers are to our own values.
    unsafe {
        assert_eq!(nvmlDeviceGetMemoryInfo_v2(handle(0), &raw mut memory), VERSION_MISMATCH);
        assert_eq!(nvmlDeviceGetTemperatureV(handle(0), &raw mut reading), VERSION_MISMATCH);
        assert_eq!(nvmlDeviceGetPciInfoExt(handle(0), &raw mut pci), VERSION_MISMATCH);
        assert_eq!((memory.total, reading.temperature, pci.busId[0]), (5, 5, 0));
        reading.version = nvmlTemperature_v1;
        pci.version = nvmlPciInfoExt_v1;
        assert_eq!(nvmlDeviceGetTemperatureV(handle(0), &raw mut reading), 0);
        assert_eq!(nvmlDeviceGetPciInfoExt(handle(0), &raw mut pci), 0);
    }
    assert!((20..100).contains(&reading.temperature));
    assert_eq!(pci.bus, model(0).pci().bus);
}

#[test]
fn a_process_list_tells_its_length_before_it_is_given() {
    let device = handle(0);
    let pid = std::process::id();
    // SAFETY: each list has room for as many entries as its count says.
    unsafe {
        for function in [
            nvmlDeviceGetComputeRunningProcesses_v2 as unsafe extern "C" fn(_, _, _) -> u32,
            nvmlDeviceGetComputeRunningProcesses_v3,
        ] {
            let mut count = 0;
            assert_eq!(function(device, &raw mut count, null_mut()), INSUFFICIENT_SIZE);
            assert_eq!(count, 1);
            assert_eq!(function(device, &raw mut count, null_mut()), INVALID_ARGUMENT);
            let mut list = [MaybeUninit::<nvmlProcessInfo_t>::zeroed().assume_init(); 7];
            count = 7;
            assert_eq!(function(device, &raw mut count, list.as_mut_ptr()), 0);
            assert_eq!(count, 1);
            assert_eq!(
                list[0],
                nvmlProcessInfo_t {
                    pid,
                    usedGpuMemory: SCENE.held,
                    gpuInstanceId: u32::MAX,
                    computeInstanceId: u32::MAX,
                }
            );
            assert_eq!(list[1], nvmlProcessInfo_t::default());
            assert_eq!(function(device, null_mut(), list.as_mut_ptr()), INVALID_ARGUMENT);
        }

        let mut old = [nvmlProcessInfo_v1_t::default(); 2];
        let mut count = 2;
        assert_eq!(nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, old.as_mut_ptr()), 0);
        assert_eq!(
            old,
            [nvmlProcessInfo_v1_t { pid, usedGpuMemory: SCENE.held }, nvmlProcessInfo_v1_t::default()]
        );

        let mut none = 0;
        assert_eq!(nvmlDeviceGetComputeRunningProcesses_v3(handle(1), &raw mut none, null_mut()), 0);
        assert_eq!(none, 0);
        none = 9;
        assert_eq!(nvmlDeviceGetGraphicsRunningProcesses_v3(device, &raw mut none, null_mut()), 0);
        assert_eq!(none, 0);
    }
}

/// What a list says of the processes that card 3 worked for since a moment.
fn shares(since: u64) -> Result<Vec<(u32, u32)>, u32> {
    let mut list = [nvmlProcessUtilizationSample_t::default(); 4];
    let mut count = 4;
    // SAFETY: the list has room for as many entries as the count says.
    match unsafe { nvmlDeviceGetProcessUtilization(handle(3), list.as_mut_ptr(), &raw mut count, since) } {
        0 => Ok(list[..count as usize].iter().map(|sample| (sample.pid, sample.smUtil)).collect()),
        code => Err(code),
    }
}

#[test]
fn process_utilization_is_what_the_card_did_for_each_since_a_moment() {
    let device = handle(3);
    assert_eq!(shares(0), Err(NOT_FOUND), "an idle card has no samples");
    let process = SCENE.machine.join().unwrap();
    // A process that holds nothing of the card is not on its lists.
    process.take_memory(3, 512).unwrap();
    let booking = process.book(3, 0, 300_000_000).unwrap();
    sleep_until(booking.end);
    let pid = std::process::id();
    let busy = shares(0).unwrap();
    assert!(busy.len() == 1 && busy[0].0 == pid && (1..=30).contains(&busy[0].1), "{busy:?}");
    assert_eq!(shares(u64::MAX), Err(NOT_FOUND));
    // A whole second after it nothing is left.
    sleep_until(booking.end + WINDOW_NS + 100_000_000);
    assert_eq!(shares(0), Err(NOT_FOUND));

    process.book(3, 0, 2_000_000_000).unwrap();
    sleep_until(now_ns() + 100_000_000);
    let mut count = 4;
    let mut list = [nvmlProcessUtilizationInfo_v1_t::default(); 4];
    let mut info = nvmlProcessesUtilizationInfo_v1_t {
        version: nvmlProcessesUtilizationInfo_v1,
        processSamplesCount: 0,
        lastSeenTimeStamp: 0,
        procUtilArray: null_mut(),
    };
    let mut details = nvmlProcessDetailList_v1_t {
        version: nvmlProcessDetailList_v1,
        mode: NVML_PROCESS_MODE_COMPUTE,
        numProcArrayEntries: 0,
        procArray: null_mut(),
    };
    let mut detail = nvmlProcessDetail_v1_t::default();
    // SAFETY: every list has room for as many entries as its count says.
    unsafe {
        assert_eq!(nvmlDeviceGetProcessUtilization(device, null_mut(), &raw mut count, 0), INSUFFICIENT_SIZE);
        assert_eq!(count, 1);
        assert_eq!(nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut info), INSUFFICIENT_SIZE);
        assert_eq!(info.processSamplesCount, 1);
        info.procUtilArray = list.as_mut_ptr();
        assert_eq!(nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut info), 0);
        assert!((info.processSamplesCount, list[0].pid) == (1, pid) && list[0].smUtil > 0, "{list:?}");
        info.version = 1;
        assert_eq!(nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut info), VERSION_MISMATCH);
        assert_eq!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut details), INSUFFICIENT_SIZE);
        (details.numProcArrayEntries, details.procArray) = (1, &raw mut detail);
        assert_eq!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut details), 0);
        assert_eq!((details.numProcArrayEntries, detail.pid, detail.usedGpuMemory), (1, pid, 512));
        details.mode = 9;
        assert_eq!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut details), INVALID_ARGUMENT);
    }
    process.give_memory(3, 512);
}

#[test]
fn a_lost_card_is_counted_and_answers_that_it_is_lost() {
    let valid = handle(0);
    let lost = valid.wrapping_byte_add(2);
    let mut count = 0;
    let mut found: nvmlDevice_t = null_mut();
    let uuid = CString::new(model(2).uuid().to_string()).unwrap();
    // SAFETY: every pointer is to our own value, every string ends in zero.
    unsafe {
        assert_eq!(nvmlDeviceGetCount_v2(&raw mut count), 0);
        assert_eq!(count, 4);
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(2, &raw mut found), GPU_IS_LOST);
        assert_eq!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found), GPU_IS_LOST);
        // A handle from before the loss.
        let mut memory = nvmlMemory_t::default();
        assert_eq!(nvmlDeviceGetMemoryInfo(lost, &raw mut memory), GPU_IS_LOST);
        let mut processes = 0;
        assert_eq!(
            nvmlDeviceGetComputeRunningProcesses_v3(lost, &raw mut processes, null_mut()),
            GPU_IS_LOST
        );
        assert_eq!(string(96, |buffer, length| nvmlDeviceGetName(lost, buffer, length)), Err(GPU_IS_LOST));
    }
}

#[test]
fn rubbish_arguments_are_refused() {
    let device = handle(0);
    let stray: nvmlDevice_t = std::ptr::without_provenance_mut(0x1234);
    // SAFETY: null pointers and strange handles are what is tested; the others are our own values.
    unsafe {
        let mut found: nvmlDevice_t = null_mut();
        let mut number = 0;
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(4, &raw mut found), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(0, null_mut()), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetHandleByUUID(null(), &raw mut found), INVALID_ARGUMENT);
        for bad in [null_mut(), stray, device.wrapping_byte_add(4), device.wrapping_byte_sub(1)] {
            assert_eq!(nvmlDeviceGetIndex(bad, &raw mut number), INVALID_ARGUMENT);
        }
        assert_eq!(nvmlDeviceGetIndex(device, null_mut()), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetName(device, null_mut(), 96), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetMemoryInfo(device, null_mut()), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetMemoryInfo_v2(device, null_mut()), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetPciInfo_v3(device, null_mut()), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetTemperature(device, 5, &raw mut number), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetClockInfo(device, 9, &raw mut number), INVALID_ARGUMENT);
    }
}

#[test]
fn versions_have_the_form_that_tools_parse() {
    handle(0);
    let mut cuda = 0;
    // SAFETY: the buffers are as long as said.
    unsafe {
        let driver = string(80, |buffer, length| nvmlSystemGetDriverVersion(buffer, length)).unwrap();
        let nvml = string(80, |buffer, length| nvmlSystemGetNVMLVersion(buffer, length)).unwrap();
        assert!(driver.split('.').all(|part| part.parse::<u32>().is_ok()), "{driver}");
        assert!(nvml.ends_with(&driver), "{nvml}");
        assert_eq!(nvmlSystemGetCudaDriverVersion_v2(&raw mut cuda), 0);
    }
    assert!(cuda >= 13000 && cuda % 10 == 0, "{cuda}");
}

#[test]
fn a_process_is_named_as_it_was_started() {
    handle(0);
    let pid = std::process::id();
    let started = std::env::args().next().unwrap();
    // SAFETY: the buffers are as long as said.
    unsafe {
        let cut = string(5, |buffer, length| nvmlSystemGetProcessName(pid, buffer, length)).unwrap();
        assert_eq!(cut, started[..4]);
        let nobody = string(64, |buffer, length| nvmlSystemGetProcessName(u32::MAX, buffer, length));
        assert_eq!(nobody, Err(NOT_FOUND));
    }
}
