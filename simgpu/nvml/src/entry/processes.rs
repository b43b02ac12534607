//! Who uses a card: the lists of processes, in their old and new layouts.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{card, entries};
use crate::Code;
use crate::cards::Cards;
use crate::layout::{Device, ProcessInfo, ProcessInfoV1, ProcessUtilization};

/// In a place for an instance of a divided card: the card is whole.
const NO_INSTANCE: u32 = u32::MAX;

entries! {
    /// Processes that compute, in the first layout.
    fn nvmlDeviceGetComputeRunningProcesses(cards; device: Device, count: *mut u32, list: *mut ProcessInfoV1) {
        // SAFETY: by this function's own contract.
        unsafe { give(&computing(cards, device)?, count, list) }
    }

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v2(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        // SAFETY: by this function's own contract.
        unsafe { give(&computing(cards, device)?, count, list) }
    }

    /// Processes that compute.
    fn nvmlDeviceGetComputeRunningProcesses_v3(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        // SAFETY: by this function's own contract.
        unsafe { give(&computing(cards, device)?, count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses(cards; device: Device, count: *mut u32, list: *mut ProcessInfoV1) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { give(&[], count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { give(&[], count, list) }
    }

    /// Processes that draw: none.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { give(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses(cards; device: Device, count: *mut u32, list: *mut ProcessInfoV1) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { give(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { give(&[], count, list) }
    }

    /// Processes of a multi-process service: none.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(cards; device: Device, count: *mut u32, list: *mut ProcessInfo) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { give(&[], count, list) }
    }

    /// How busy each process kept the card, if that is newer than `since` (microseconds since 1970).
    fn nvmlDeviceGetProcessUtilization(
        cards;
        device: Device,
        list: *mut ProcessUtilization,
        count: *mut u32,
        since: u64
    ) {
        let processes = computing(cards, device)?;
        if processes.is_empty() || since >= now() {
            return Err(Code::NotFound);
        }
        // SAFETY: by this function's own contract; a caller without a list asks for the length.
        unsafe {
            if list.is_null() && !count.is_null() {
                count.write_unaligned(0);
            }
            give(&processes, count, list)
        }
    }
}

impl From<&Process> for ProcessInfoV1 {
    fn from(process: &Process) -> Self {
        Self { pid: process.pid, used_memory: process.used_memory }
    }
}

impl From<&Process> for ProcessInfo {
    fn from(process: &Process) -> Self {
        let Process { pid, used_memory, .. } = *process;
        Self { pid, used_memory, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
    }
}

impl From<&Process> for ProcessUtilization {
    fn from(process: &Process) -> Self {
        let Process { pid, utilization, .. } = *process;
        let memory = utilization / 2;
        Self { pid, time_stamp: now(), multiprocessors: utilization, memory, encoder: 0, decoder: 0 }
    }
}

/// A process that can be seen from here.
struct Process {
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
fn computing(cards: &'static Cards, device: Device) -> Result<Vec<Process>, Code> {
    let visible = |one: simgpu_device::ProcessUse| {
        Some(Process { pid: one.pid?, used_memory: one.memory, utilization: one.utilisation })
    };
    Ok(card(cards, device)?.processes().into_iter().filter_map(visible).collect())
}

/// Fills the caller's list, or says how long it must be. A caller asks with a count of 0 first and, told that this is
/// not enough, comes back with room for a few more, since the list may grow meanwhile.
///
/// # Safety
/// `count` is null or can be read and written; `list` is null or has room for `*count` entries.
unsafe fn give<T: for<'a> From<&'a Process>>(
    processes: &[Process],
    count: *mut u32,
    list: *mut T,
) -> Result<(), Code> {
    if count.is_null() {
        return Err(Code::InvalidArgument);
    }
    let needed = u32::try_from(processes.len()).map_err(|_| Code::Unknown)?;
    // SAFETY: not null, and the caller's promise is ours.
    let room = unsafe { count.replace(needed) };
    if needed == 0 {
        return Ok(());
    }
    if room < needed {
        return Err(Code::InsufficientSize);
    }
    if list.is_null() {
        return Err(Code::InvalidArgument);
    }
    for (place, process) in processes.iter().enumerate() {
        // SAFETY: the list has room for `room` entries, which is no fewer than there are processes.
        unsafe { list.add(place).write_unaligned(T::from(process)) };
    }
    Ok(())
}
