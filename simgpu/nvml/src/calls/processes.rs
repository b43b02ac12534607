//! Who uses a card: the lists of processes, in their old and new layouts.

use std::time::{SystemTime, UNIX_EPOCH};

use gpupool_nvidia::nvml::{
    NVML_PROCESS_MODE_ALL, NVML_PROCESS_MODE_COMPUTE, NVML_PROCESS_MODE_GRAPHICS, NVML_PROCESS_MODE_MPS,
    nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_v1, nvmlProcessDetailList_v1_t,
    nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_v1, nvmlProcessesUtilizationInfo_v1_t,
};
use simgpu_device::ProcessUse;

use super::{card, check_version, entries};
use crate::cards::SimulatedCards;
use crate::return_code::ReturnCode;

/// In a place for an instance of a divided card: the card is whole.
const NO_INSTANCE: u32 = u32::MAX;

entries! {
    /// Processes that compute, in the first layout.
    fn nvmlDeviceGetComputeRunningProcesses(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_v1_t
    ) {
        // SAFETY: by this function's own contract.
        unsafe { write_list(&computing(cards, device)?, count, list) }
    }

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v2(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_t
    ) {
        // SAFETY: by this function's own contract.
        unsafe { write_list(&computing(cards, device)?, count, list) }
    }

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_t
    ) {
        // SAFETY: by this function's own contract.
        unsafe { write_list(&computing(cards, device)?, count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_v1_t
    ) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_t
    ) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_t
    ) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_v1_t
    ) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_t
    ) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        cards;
        device: nvmlDevice_t,
        count: *mut u32,
        list: *mut nvmlProcessInfo_t
    ) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// How busy each process kept the card since a moment (microseconds since 1970; at most the last second counts).
    /// Those that it did nothing for are left out.
    fn nvmlDeviceGetProcessUtilization(
        cards;
        device: nvmlDevice_t,
        list: *mut nvmlProcessUtilizationSample_t,
        count: *mut u32,
        since: u64
    ) {
        let processes = busy(cards, device, since)?;
        // SAFETY: by this function's own contract; a caller without a list asks for the length.
        unsafe {
            if list.is_null() && !count.is_null() {
                count.write_unaligned(0);
            }
            write_list(&processes, count, list)
        }
    }

    /// As above, in a structure that says its version.
    fn nvmlDeviceGetProcessesUtilizationInfo(
        cards;
        device: nvmlDevice_t,
        info: *mut nvmlProcessesUtilizationInfo_v1_t
    ) {
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe {
            check_version(info.cast(), nvmlProcessesUtilizationInfo_v1)?;
            let asked = info.read_unaligned();
            let processes = busy(cards, device, asked.lastSeenTimeStamp)?;
            let mut count = if asked.procUtilArray.is_null() { 0 } else { asked.processSamplesCount };
            let given = write_list(&processes, &raw mut count, asked.procUtilArray);
            (&raw mut (*info).processSamplesCount).write_unaligned(count);
            given
        }
    }

    /// Processes of a mode: those that compute, those that draw, those of a multi-process service, or all.
    fn nvmlDeviceGetRunningProcessDetailList(cards; device: nvmlDevice_t, details: *mut nvmlProcessDetailList_v1_t) {
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe {
            check_version(details.cast(), nvmlProcessDetailList_v1)?;
            let asked = details.read_unaligned();
            let processes = match asked.mode {
                NVML_PROCESS_MODE_COMPUTE | NVML_PROCESS_MODE_ALL => computing(cards, device)?,
                NVML_PROCESS_MODE_GRAPHICS | NVML_PROCESS_MODE_MPS => card(cards, device).map(|_| Vec::new())?,
                _ => return Err(ReturnCode::InvalidArgument),
            };
            let mut count = if asked.procArray.is_null() { 0 } else { asked.numProcArrayEntries };
            let given = write_list(&processes, &raw mut count, asked.procArray);
            (&raw mut (*details).numProcArrayEntries).write_unaligned(count);
            given
        }
    }
}

impl From<&ProcessReading> for nvmlProcessInfo_v1_t {
    fn from(process: &ProcessReading) -> Self {
        Self { pid: process.pid, usedGpuMemory: process.used_memory }
    }
}

impl From<&ProcessReading> for nvmlProcessInfo_t {
    fn from(process: &ProcessReading) -> Self {
        Self {
            pid: process.pid,
            usedGpuMemory: process.used_memory,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        }
    }
}

impl From<&ProcessReading> for nvmlProcessUtilizationSample_t {
    fn from(process: &ProcessReading) -> Self {
        Self {
            pid: process.pid,
            timeStamp: now(),
            smUtil: process.utilization,
            memUtil: process.utilization / 2,
            encUtil: 0,
            decUtil: 0,
        }
    }
}

impl From<&ProcessReading> for nvmlProcessUtilizationInfo_v1_t {
    fn from(process: &ProcessReading) -> Self {
        Self {
            timeStamp: now(),
            pid: process.pid,
            smUtil: process.utilization,
            memUtil: process.utilization / 2,
            ..Self::default()
        }
    }
}

impl From<&ProcessReading> for nvmlProcessDetail_v1_t {
    fn from(process: &ProcessReading) -> Self {
        Self {
            pid: process.pid,
            usedGpuMemory: process.used_memory,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
            usedGpuCcProtectedMemory: 0,
        }
    }
}

/// A process that can be seen from here.
struct ProcessReading {
    pid: u32,
    /// Bytes.
    used_memory: u64,
    /// Percent.
    utilization: u32,
}

/// Microseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Those that the caller's pid namespace has no number for are left out.
fn computing(
    cards: &'static SimulatedCards,
    device: nvmlDevice_t,
) -> Result<Vec<ProcessReading>, ReturnCode> {
    Ok(visible(card(cards, device)?.processes()))
}

fn visible(processes: Vec<ProcessUse>) -> Vec<ProcessReading> {
    let visible = |one: ProcessUse| {
        Some(ProcessReading { pid: one.pid?, used_memory: one.memory, utilization: one.utilisation })
    };
    processes.into_iter().filter_map(visible).collect()
}

/// The processes that the card worked for since a moment (microseconds since 1970).
fn busy(
    cards: &'static SimulatedCards,
    device: nvmlDevice_t,
    since: u64,
) -> Result<Vec<ProcessReading>, ReturnCode> {
    let card = card(cards, device)?;
    let ago = now().saturating_sub(since).saturating_mul(1000);
    let mut processes = visible(card.processes_since(simgpu_device::now_ns().saturating_sub(ago)));
    processes.retain(|process| process.utilization > 0);
    if ago == 0 || processes.is_empty() { Err(ReturnCode::NotFound) } else { Ok(processes) }
}

/// Fills the caller's list, or says how long it must be. A caller asks with a count of 0 first and, told that this is
/// not enough, comes back with room for a few more, since the list may grow meanwhile.
///
/// # Safety
/// `count` is null or can be read and written; `list` is null or has room for `*count` entries.
unsafe fn write_list<T: for<'a> From<&'a ProcessReading>>(
    processes: &[ProcessReading],
    count: *mut u32,
    list: *mut T,
) -> Result<(), ReturnCode> {
    if count.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    let needed = u32::try_from(processes.len()).map_err(|_| ReturnCode::Unknown)?;
    // SAFETY: not null, and the caller's promise is ours.
    let room = unsafe { count.replace(needed) };
    if needed == 0 {
        return Ok(());
    }
    if room < needed {
        return Err(ReturnCode::InsufficientSize);
    }
    if list.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    for (place, process) in processes.iter().enumerate() {
        // SAFETY: the list has room for `room` entries, which is no fewer than there are processes.
        unsafe { list.add(place).write_unaligned(T::from(process)) };
    }
    Ok(())
}
