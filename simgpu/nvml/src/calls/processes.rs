//! Who uses a card: the lists of processes, in their old and new layouts.

use std::time::{SystemTime, UNIX_EPOCH};

use simgpu_device::ProcessUse;

use super::{card, check_version, entries};
use crate::cards::SimulatedCards;
use crate::layout::{
    Device, ProcessDetail, ProcessDetails, ProcessInfo, ProcessInfoV1, ProcessUtilization,
    ProcessUtilizationInfo, ProcessesUtilization, version_of,
};
use crate::return_code::ReturnCode;

/// In a place for an instance of a divided card: the card is whole.
const NO_INSTANCE: u32 = u32::MAX;

entries! {
    /// Processes that compute, in the first layout.
    fn nvmlDeviceGetComputeRunningProcesses(cards; device: Device, count: *mut u32, list: *mut ProcessInfoV1) {
        // SAFETY: by this function's own contract.
        unsafe { write_list(&computing(cards, device)?, count, list) }
    }

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v2(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        // SAFETY: by this function's own contract.
        unsafe { write_list(&computing(cards, device)?, count, list) }
    }

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v3(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        // SAFETY: by this function's own contract.
        unsafe { write_list(&computing(cards, device)?, count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses(cards; device: Device, count: *mut u32, list: *mut ProcessInfoV1) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses(cards; device: Device, count: *mut u32, list: *mut ProcessInfoV1) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_list(&[], count, list) }
    }

    /// How busy each process kept the card since a moment (microseconds since 1970; at most the last second counts).
    /// Those that it did nothing for are left out.
    fn nvmlDeviceGetProcessUtilization(
        cards;
        device: Device,
        list: *mut ProcessUtilization,
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
    fn nvmlDeviceGetProcessesUtilizationInfo(cards; device: Device, info: *mut ProcessesUtilization) {
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe {
            check_version(info.cast(), version_of::<ProcessesUtilization>(1))?;
            let asked = info.read_unaligned();
            let processes = busy(cards, device, asked.last_seen)?;
            let mut count = if asked.list.is_null() { 0 } else { asked.count };
            let given = write_list(&processes, &raw mut count, asked.list);
            (&raw mut (*info).count).write_unaligned(count);
            given
        }
    }

    /// Processes of a mode: 0 those that compute, 1 those that draw, 2 those of a multi-process service, 3 all.
    fn nvmlDeviceGetRunningProcessDetailList(cards; device: Device, details: *mut ProcessDetails) {
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe {
            check_version(details.cast(), version_of::<ProcessDetails>(1))?;
            let asked = details.read_unaligned();
            let processes = match asked.mode {
                0 | 3 => computing(cards, device)?,
                1 | 2 => card(cards, device).map(|_| Vec::new())?,
                _ => return Err(ReturnCode::InvalidArgument),
            };
            let mut count = if asked.list.is_null() { 0 } else { asked.count };
            let given = write_list(&processes, &raw mut count, asked.list);
            (&raw mut (*details).count).write_unaligned(count);
            given
        }
    }
}

impl From<&ProcessReading> for ProcessInfoV1 {
    fn from(process: &ProcessReading) -> Self {
        Self { pid: process.pid, used_memory: process.used_memory }
    }
}

impl From<&ProcessReading> for ProcessInfo {
    fn from(process: &ProcessReading) -> Self {
        let ProcessReading { pid, used_memory, .. } = *process;
        Self { pid, used_memory, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
    }
}

impl From<&ProcessReading> for ProcessUtilization {
    fn from(process: &ProcessReading) -> Self {
        let ProcessReading { pid, utilization, .. } = *process;
        let memory = utilization / 2;
        Self { pid, time_stamp: now(), multiprocessors: utilization, memory, encoder: 0, decoder: 0 }
    }
}

impl From<&ProcessReading> for ProcessUtilizationInfo {
    fn from(process: &ProcessReading) -> Self {
        let ProcessReading { pid, utilization, .. } = *process;
        let memory = utilization / 2;
        Self { time_stamp: now(), pid, multiprocessors: utilization, memory, ..Self::default() }
    }
}

impl From<&ProcessReading> for ProcessDetail {
    fn from(process: &ProcessReading) -> Self {
        let ProcessReading { pid, used_memory, .. } = *process;
        Self {
            pid,
            used_memory,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
            protected_memory: 0,
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
fn computing(cards: &'static SimulatedCards, device: Device) -> Result<Vec<ProcessReading>, ReturnCode> {
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
    device: Device,
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
