//! Who uses the card, as the pod may see it: its own processes, with what its ledger says they hold, and how busy they
//! keep the card, measured by the pod's limit.
//!
//! The lists of computing processes come from the ledger, so they add up to what `cuMemGetInfo` and the memory queries
//! say, and name processes as the pod's own pid namespace does. What only the driver knows (graphics, utilisation) is
//! asked of it and cut down to the pod's own: a driver names processes by the ids of its own namespace or of the
//! caller's, so both are recognised.

use core::ffi::c_uint;
use core::mem::offset_of;
use core::ptr;

use gpupool_wire::ledger::Owner;

use gpupool_nvidia::nvml::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, NVML_PROCESS_MODE_ALL,
    NVML_PROCESS_MODE_COMPUTE, NVML_SUCCESS, nvmlDevice_t, nvmlProcessDetail_v1_t,
    nvmlProcessDetailList_v1_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_v1_t, nvmlReturn_t, nvmlUtilization_t,
};

use super::shown;
use crate::real::call;
use crate::state;
use crate::sys;
use crate::table::Entry;

/// The pod's processes that hold something, by number. One function for all the loops here: they are short, and this
/// library is small.
#[inline(never)]
fn owner(number: usize) -> Option<Owner> {
    state::account()?.owners().nth(number)
}

/// The pod's process that a driver calls `pid`.
#[inline(never)]
fn own(pid: c_uint) -> Option<Owner> {
    let owners = (0..).map_while(owner);
    owners.into_iter().find(|owner| owner.agents_pid == pid || owner.pid == pid)
}

/// Percent of the card as percent of what the pod may use of it.
#[inline(never)]
fn of_limit(percent: c_uint) -> c_uint {
    let limit = state::limits().map_or(100, |page| page.read().core_percent).clamp(1, 100);
    (percent.min(100) * 100 / limit).min(100)
}

/// How a list's entries lie, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    /// From one entry to the next.
    length: usize,
    /// Where the process's id is.
    pid: usize,
    /// Where the utilisation of the multiprocessors is, in percent; 0 for a list without.
    utilization: usize,
}

/// The layout of entries of a type, with the utilisation where they have one.
macro_rules! layout {
    ($entry:ident $(, $utilization:ident)?) => {
        Layout {
            length: size_of::<$entry>(),
            pid: offset_of!($entry, pid),
            utilization: 0 $(+ offset_of!($entry, $utilization))?,
        }
    };
}

const INFO_V1: Layout = layout!(nvmlProcessInfo_v1_t);
const INFO: Layout = layout!(nvmlProcessInfo_t);
const DETAIL: Layout = layout!(nvmlProcessDetail_v1_t);
const SAMPLE: Layout = layout!(nvmlProcessUtilizationSample_t, smUtil);
const SAMPLE_INFO: Layout = layout!(nvmlProcessUtilizationInfo_v1_t, smUtil);

// The longer entries begin as the shorter ones do.
const _: () = {
    assert!(offset_of!(nvmlProcessInfo_t, pid) == 0 && offset_of!(nvmlProcessDetail_v1_t, pid) == 0);
    assert!(offset_of!(nvmlProcessInfo_v1_t, usedGpuMemory) == offset_of!(nvmlProcessInfo_t, usedGpuMemory));
    assert!(
        offset_of!(nvmlProcessDetail_v1_t, usedGpuMemory) == offset_of!(nvmlProcessInfo_t, usedGpuMemory)
    );
    assert!(
        offset_of!(nvmlProcessDetail_v1_t, gpuInstanceId) == offset_of!(nvmlProcessInfo_t, gpuInstanceId)
    );
    assert!(
        offset_of!(nvmlProcessDetail_v1_t, computeInstanceId)
            == offset_of!(nvmlProcessInfo_t, computeInstanceId)
    );
};

/// In the places for the instances of a divided card: the card is whole.
const NO_INSTANCE: u32 = u32::MAX;

/// An array of entries.
type Entries = *mut u8;

/// Writes the pod's processes where the caller has room for them, by NVML's rules: too little room is told with the
/// number needed.
///
/// # Safety
/// `count` points to a `c_uint`, 4 bytes; `entries` is null or points to room for as many entries as it says, of
/// `length` bytes each, which is the length of one of NVML's structures for a process.
#[inline(never)]
unsafe fn list(count: *mut c_uint, entries: Entries, length: usize) -> nvmlReturn_t {
    let needed = c_uint::try_from((0..).map_while(owner).count()).unwrap_or(c_uint::MAX);
    // SAFETY: a place for the count, which the callers of this function have checked; room for as many entries as it
    // says.
    unsafe {
        let room = count.replace(needed);
        if room < needed {
            return NVML_ERROR_INSUFFICIENT_SIZE;
        }
        if entries.is_null() && needed > 0 {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        let mut written = 0;
        while written < needed
            && let Some(owner) = owner(written as usize)
        {
            let entry = entries.add(written as usize * length);
            let info: *mut nvmlProcessInfo_v1_t = entry.cast();
            info.write_unaligned(nvmlProcessInfo_v1_t { pid: owner.pid, usedGpuMemory: owner.bytes });
            if length > INFO_V1.length {
                let info: *mut nvmlProcessInfo_t = entry.cast();
                (&raw mut (*info).gpuInstanceId).write_unaligned(NO_INSTANCE);
                (&raw mut (*info).computeInstanceId).write_unaligned(NO_INSTANCE);
            }
            if length > INFO.length {
                let detail: *mut nvmlProcessDetail_v1_t = entry.cast();
                (&raw mut (*detail).usedGpuCcProtectedMemory).write_unaligned(0);
            }
            written += 1;
        }
        *count = written;
    }
    NVML_SUCCESS
}

/// Keeps of the entries that the driver wrote the pod's own, under the ids that the pod knows, measured by its limit.
///
/// # Safety
/// `entries` points to `count` entries of `layout.length` bytes each, which the driver has written.
#[inline(never)]
unsafe fn keep_own(count: &mut c_uint, entries: Entries, layout: Layout) {
    let mut kept = 0;
    for place in 0..*count as usize {
        // SAFETY: the driver has written `count` entries; those that are kept move to the front.
        unsafe {
            let entry = entries.add(place * layout.length);
            let pid: *mut c_uint = entry.add(layout.pid).cast();
            let Some(owner) = own(pid.read_unaligned()) else { continue };
            pid.write_unaligned(owner.pid);
            if layout.utilization != 0 {
                let utilization: *mut c_uint = entry.add(layout.utilization).cast();
                utilization.write_unaligned(of_limit(utilization.read_unaligned()));
            }
            ptr::copy(entry, entries.add(kept as usize * layout.length), layout.length);
            kept += 1;
        }
    }
    *count = kept;
}

/// The pod's processes, by the ledger. The driver is asked whether the handle is good.
///
/// # Safety
/// `which` is a row of a function of these arguments, `device` a handle of NVML's; `count` is null or points to a
/// `c_uint`, 4 bytes; `entries` is null or points to room for as many entries as it says, of `length` bytes each.
#[inline(never)]
unsafe fn computing_of(
    which: Entry,
    device: nvmlDevice_t,
    count: *mut c_uint,
    entries: Entries,
    length: usize,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments, or a place for a count and no room.
    unsafe {
        if count.is_null() || shown().is_none() {
            return call!(which, device => nvmlDevice_t, count => *mut c_uint, entries => Entries);
        }
        let (mut others, nowhere): (c_uint, Entries) = (0, ptr::null_mut());
        let others: *mut c_uint = &raw mut others;
        match call!(which, device => nvmlDevice_t, others => *mut c_uint, nowhere => Entries) {
            NVML_SUCCESS | NVML_ERROR_INSUFFICIENT_SIZE => list(count, entries, length),
            code => code,
        }
    }
}

/// The driver's list, cut down to the pod's processes.
///
/// # Safety
/// `which` is a row of a function of these arguments, `device` a handle of NVML's; `count` is null or points to a
/// `c_uint`, 4 bytes; `entries` is null or points to room for as many entries as it says, of `layout.length` bytes
/// each.
#[inline(never)]
unsafe fn others_of(
    which: Entry,
    device: nvmlDevice_t,
    count: *mut c_uint,
    entries: Entries,
    layout: Layout,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(which, device => nvmlDevice_t, count => *mut c_uint, entries => Entries);
        if code == NVML_SUCCESS
            && !entries.is_null()
            && shown().is_some()
            && let Some(count) = count.as_mut()
        {
            keep_own(count, entries, layout);
        }
        code
    }
}

macro_rules! lists {
    ($($name:ident = $of:ident($entry:ident, $layout:expr);)*) => {$(
        /// The pod's processes of a kind.
        ///
        /// # Safety
        /// `device` is a handle of NVML's; `count` is null or points to a `c_uint`, 4 bytes; `entries` is null or
        /// points to room for as many entries as it says, of the structure that this version of the call takes.
        pub(crate) unsafe extern "C" fn $name(
            device: nvmlDevice_t,
            count: *mut c_uint,
            entries: Entries,
        ) -> nvmlReturn_t {
            // SAFETY: the caller's arguments.
            unsafe { $of(Entry::$entry, device, count, entries, $layout) }
        }
    )*};
}

lists! {
    computing = computing_of(nvmlDeviceGetComputeRunningProcesses, INFO_V1.length);
    computing_v2 = computing_of(nvmlDeviceGetComputeRunningProcesses_v2, INFO.length);
    computing_v3 = computing_of(nvmlDeviceGetComputeRunningProcesses_v3, INFO.length);
    drawing = others_of(nvmlDeviceGetGraphicsRunningProcesses, INFO_V1);
    drawing_v2 = others_of(nvmlDeviceGetGraphicsRunningProcesses_v2, INFO);
    drawing_v3 = others_of(nvmlDeviceGetGraphicsRunningProcesses_v3, INFO);
    served = others_of(nvmlDeviceGetMPSComputeRunningProcesses, INFO_V1);
    served_v2 = others_of(nvmlDeviceGetMPSComputeRunningProcesses_v2, INFO);
    served_v3 = others_of(nvmlDeviceGetMPSComputeRunningProcesses_v3, INFO);
}

/// The pod's processes with all that NVML tells of each.
///
/// # Safety
/// `device` is a handle of NVML's; `details` is null or points to an `nvmlProcessDetailList_v1_t`, whose `procArray` is
/// null or points to room for `numProcArrayEntries` entries.
pub(crate) unsafe extern "C" fn details(
    device: nvmlDevice_t,
    details: *mut nvmlProcessDetailList_v1_t,
) -> nvmlReturn_t {
    let which = Entry::nvmlDeviceGetRunningProcessDetailList;
    // SAFETY: the caller's arguments, or a structure like the caller's without room for entries.
    unsafe {
        let Some(asked) = details.as_mut().filter(|_| shown().is_some()) else {
            return call!(which, device => nvmlDevice_t, details => *mut nvmlProcessDetailList_v1_t);
        };
        if !matches!(asked.mode, NVML_PROCESS_MODE_COMPUTE | NVML_PROCESS_MODE_ALL) {
            let code = call!(which, device => nvmlDevice_t, details => *mut nvmlProcessDetailList_v1_t);
            if code == NVML_SUCCESS && !asked.procArray.is_null() {
                keep_own(&mut asked.numProcArrayEntries, asked.procArray.cast(), DETAIL);
            }
            return code;
        }
        let mut roomless =
            nvmlProcessDetailList_v1_t { numProcArrayEntries: 0, procArray: ptr::null_mut(), ..*asked };
        let roomless: *mut nvmlProcessDetailList_v1_t = &raw mut roomless;
        match call!(which, device => nvmlDevice_t, roomless => *mut nvmlProcessDetailList_v1_t) {
            NVML_SUCCESS | NVML_ERROR_INSUFFICIENT_SIZE => {
                list(&raw mut asked.numProcArrayEntries, asked.procArray.cast(), DETAIL.length)
            }
            code => code,
        }
    }
}

/// How busy each of the pod's processes keeps the card, since a moment in microseconds of the wall clock.
///
/// # Safety
/// `device` is a handle of NVML's; `count` is null or points to a `c_uint`, 4 bytes; `samples` is null or points to
/// room for as many `nvmlProcessUtilizationSample_t` as it says.
pub(crate) unsafe extern "C" fn utilisation_of_processes(
    device: nvmlDevice_t,
    samples: Entries,
    count: *mut c_uint,
    since: u64,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::nvmlDeviceGetProcessUtilization, device => nvmlDevice_t, samples => Entries,
            count => *mut c_uint, since => u64);
        match count.as_mut() {
            Some(count) if code == NVML_SUCCESS && !samples.is_null() && shown().is_some() => {
                keep_own(count, samples, SAMPLE);
                if *count == 0 { NVML_ERROR_NOT_FOUND } else { NVML_SUCCESS }
            }
            _ => code,
        }
    }
}

/// The same as a structure that holds the list.
///
/// # Safety
/// `device` is a handle of NVML's; `infos` is null or points to an `nvmlProcessesUtilizationInfo_v1_t`, whose
/// `procUtilArray` is null or points to room for `processSamplesCount` entries.
pub(crate) unsafe extern "C" fn utilisation_infos(
    device: nvmlDevice_t,
    infos: *mut nvmlProcessesUtilizationInfo_v1_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::nvmlDeviceGetProcessesUtilizationInfo, device => nvmlDevice_t, infos => *mut nvmlProcessesUtilizationInfo_v1_t);
        match infos.as_mut() {
            Some(infos) if code == NVML_SUCCESS && !infos.procUtilArray.is_null() && shown().is_some() => {
                keep_own(&mut infos.processSamplesCount, infos.procUtilArray.cast(), SAMPLE_INFO);
                if infos.processSamplesCount == 0 { NVML_ERROR_NOT_FOUND } else { NVML_SUCCESS }
            }
            _ => code,
        }
    }
}

/// More processes than use one card together.
const MOST_PROCESSES: usize = 128;

const NO_SAMPLE: nvmlProcessUtilizationSample_t =
    nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };

/// How busy the pod keeps the card, in percent of the card; nothing where the driver does not tell processes apart.
///
/// # Safety
/// `device` is a handle of NVML's.
unsafe fn own_utilisation(device: nvmlDevice_t) -> Option<nvmlUtilization_t> {
    let mut sum = nvmlUtilization_t { gpu: 0, memory: 0 };
    if owner(0).is_none() {
        return Some(sum);
    }
    let mut samples = [const { NO_SAMPLE }; MOST_PROCESSES];
    let mut room = c_uint::try_from(MOST_PROCESSES).unwrap_or(0);
    let since = sys::wall_microseconds().saturating_sub(1_000_000);
    let (start, count): (*mut nvmlProcessUtilizationSample_t, *mut c_uint) =
        (samples.as_mut_ptr(), &raw mut room);
    // SAFETY: room for as many samples as the count says.
    let code = unsafe {
        call!(Entry::nvmlDeviceGetProcessUtilization, device => nvmlDevice_t, start => *mut nvmlProcessUtilizationSample_t,
            count => *mut c_uint, since => u64)
    };
    match code {
        NVML_SUCCESS => {}
        NVML_ERROR_NOT_FOUND => return Some(sum),
        _ => return None,
    }
    for sample in samples.iter().take(room as usize).filter(|sample| own(sample.pid).is_some()) {
        sum.gpu = sum.gpu.saturating_add(sample.smUtil);
        sum.memory = sum.memory.saturating_add(sample.memUtil);
    }
    Some(sum)
}

/// The pod's own utilisation: of the multiprocessors relative to its limit, of the memory (which has no limit in time)
/// as it is.
///
/// # Safety
/// `device` is a handle of NVML's; `rates` is null or points to an `nvmlUtilization_t`, 8 bytes, that may be written.
pub(crate) unsafe extern "C" fn utilisation(
    device: nvmlDevice_t,
    rates: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::nvmlDeviceGetUtilizationRates, device => nvmlDevice_t, rates => *mut nvmlUtilization_t);
        if code == NVML_SUCCESS
            && let Some(rates) = rates.as_mut()
            && shown().is_some()
            && let Some(own) = own_utilisation(device)
        {
            rates.gpu = of_limit(own.gpu);
            rates.memory = own.memory.min(100);
        }
        code
    }
}
