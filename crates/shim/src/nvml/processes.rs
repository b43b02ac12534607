//! Who uses the card, as the pod may see it: its own processes, with what its ledger says they hold, and how busy they
//! keep the card, measured by the pod's limit.
//!
//! The lists of computing processes come from the ledger, so they add up to what `cuMemGetInfo` and the memory queries
//! say, and name processes as the pod's own pid namespace does. What only the driver knows (graphics, utilisation) is
//! asked of it and cut down to the pod's own: a driver names processes by the ids of its own namespace or of the
//! caller's, so both are recognised.

use core::ffi::c_uint;
use core::ptr;

use gpupool_wire::ledger::Owner;

use super::{Device, shown};
use crate::code::{NVML_INSUFFICIENT_SIZE, NVML_INVALID_ARGUMENT, NVML_NOT_FOUND, NVML_SUCCESS, NvmlReturn};
use crate::process;
use crate::real::call;
use crate::sys;
use crate::table::Entry;

/// The pod's processes that hold something, by number. One function for all the loops here: they are short, and this
/// library is small.
#[inline(never)]
fn owner(number: usize) -> Option<Owner> {
    process::account()?.owners().nth(number)
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
    let limit = process::limits().map_or(100, |page| page.read().core_percent).clamp(1, 100);
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
    busy: usize,
}

/// `nvmlProcessInfo_v1_t`: id, bytes of memory.
const INFO_V1: Layout = Layout { length: 16, pid: 0, busy: 0 };
/// `nvmlProcessInfo_t`: the same, then two numbers for an instance of a divided card.
const INFO: Layout = Layout { length: 24, pid: 0, busy: 0 };
/// `nvmlProcessDetail_v1_t`: the same, then bytes of protected memory.
const DETAIL: Layout = Layout { length: 32, pid: 0, busy: 0 };
/// `nvmlProcessUtilizationSample_t`: id, time, percent of multiprocessors, memory, encoder, decoder.
const SAMPLE: Layout = Layout { length: 32, pid: 0, busy: 16 };
/// `nvmlProcessUtilizationInfo_v1_t`: time, id, percent of the same, JPEG, optical flow.
const SAMPLE_INFO: Layout = Layout { length: 40, pid: 8, busy: 12 };

/// In the places for an instance of a divided card: the card is whole.
const NO_INSTANCE: u64 = u64::MAX;

/// An array of entries.
type Entries = *mut u8;

/// Writes the pod's processes where the caller has room for them, by NVML's rules: too little room is told with the
/// number needed.
#[inline(never)]
unsafe fn list(count: *mut c_uint, entries: Entries, length: usize) -> NvmlReturn {
    let needed = c_uint::try_from((0..).map_while(owner).count()).unwrap_or(c_uint::MAX);
    // SAFETY: a place for the count, which the callers of this function have checked; room for as many entries as it
    // says.
    unsafe {
        let room = count.replace(needed);
        if room < needed {
            return NVML_INSUFFICIENT_SIZE;
        }
        if entries.is_null() && needed > 0 {
            return NVML_INVALID_ARGUMENT;
        }
        let mut written = 0;
        while written < needed
            && let Some(owner) = owner(written as usize)
        {
            let entry = entries.add(written as usize * length);
            entry.cast::<c_uint>().write_unaligned(owner.pid);
            entry.add(8).cast::<u64>().write_unaligned(owner.bytes);
            if length > INFO_V1.length {
                entry.add(16).cast::<u64>().write_unaligned(NO_INSTANCE);
            }
            if length > INFO.length {
                entry.add(24).cast::<u64>().write_unaligned(0);
            }
            written += 1;
        }
        *count = written;
    }
    NVML_SUCCESS
}

/// Keeps of the entries that the driver wrote the pod's own, under the ids that the pod knows, measured by its limit.
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
            if layout.busy != 0 {
                let busy: *mut c_uint = entry.add(layout.busy).cast();
                busy.write_unaligned(of_limit(busy.read_unaligned()));
            }
            ptr::copy(entry, entries.add(kept as usize * layout.length), layout.length);
            kept += 1;
        }
    }
    *count = kept;
}

/// The pod's processes, by the ledger. The driver is asked whether the handle is good.
#[inline(never)]
unsafe fn computing_of(
    which: Entry,
    device: Device,
    count: *mut c_uint,
    entries: Entries,
    length: usize,
) -> NvmlReturn {
    // SAFETY: the caller's arguments, or a place for a count and no room.
    unsafe {
        if count.is_null() || shown().is_none() {
            return call!(which, device => Device, count => *mut c_uint, entries => Entries);
        }
        let (mut others, nowhere): (c_uint, Entries) = (0, ptr::null_mut());
        let others: *mut c_uint = &raw mut others;
        match call!(which, device => Device, others => *mut c_uint, nowhere => Entries) {
            NVML_SUCCESS | NVML_INSUFFICIENT_SIZE => list(count, entries, length),
            code => code,
        }
    }
}

/// The driver's list, cut down to the pod's processes.
#[inline(never)]
unsafe fn others_of(
    which: Entry,
    device: Device,
    count: *mut c_uint,
    entries: Entries,
    layout: Layout,
) -> NvmlReturn {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(which, device => Device, count => *mut c_uint, entries => Entries);
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
        pub(crate) unsafe extern "C" fn $name(
            device: Device,
            count: *mut c_uint,
            entries: Entries,
        ) -> NvmlReturn {
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

/// `nvmlProcessDetailList_v1_t`.
#[repr(C)]
pub(crate) struct Details {
    version: c_uint,
    mode: c_uint,
    count: c_uint,
    entries: Entries,
}

/// Modes of a list of details: computing processes, and all.
const COMPUTING: c_uint = 0;
const ALL: c_uint = 3;

pub(crate) unsafe extern "C" fn details(device: Device, details: *mut Details) -> NvmlReturn {
    let which = Entry::nvmlDeviceGetRunningProcessDetailList;
    // SAFETY: the caller's arguments, or a structure like the caller's without room for entries.
    unsafe {
        let Some(asked) = details.as_mut().filter(|_| shown().is_some()) else {
            return call!(which, device => Device, details => *mut Details);
        };
        if !matches!(asked.mode, COMPUTING | ALL) {
            let code = call!(which, device => Device, details => *mut Details);
            if code == NVML_SUCCESS && !asked.entries.is_null() {
                keep_own(&mut asked.count, asked.entries, DETAIL);
            }
            return code;
        }
        let mut roomless = Details { count: 0, entries: ptr::null_mut(), ..*asked };
        let roomless: *mut Details = &raw mut roomless;
        match call!(which, device => Device, roomless => *mut Details) {
            NVML_SUCCESS | NVML_INSUFFICIENT_SIZE => list(&raw mut asked.count, asked.entries, DETAIL.length),
            code => code,
        }
    }
}

pub(crate) unsafe extern "C" fn utilisation_of_processes(
    device: Device,
    samples: Entries,
    count: *mut c_uint,
    since: u64,
) -> NvmlReturn {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::nvmlDeviceGetProcessUtilization, device => Device, samples => Entries,
            count => *mut c_uint, since => u64);
        match count.as_mut() {
            Some(count) if code == NVML_SUCCESS && !samples.is_null() && shown().is_some() => {
                keep_own(count, samples, SAMPLE);
                if *count == 0 { NVML_NOT_FOUND } else { NVML_SUCCESS }
            }
            _ => code,
        }
    }
}

/// `nvmlProcessesUtilizationInfo_v1_t`.
#[repr(C)]
pub(crate) struct SampleInfos {
    version: c_uint,
    count: c_uint,
    since: u64,
    entries: Entries,
}

pub(crate) unsafe extern "C" fn utilisation_infos(device: Device, infos: *mut SampleInfos) -> NvmlReturn {
    // SAFETY: the caller's arguments.
    unsafe {
        let code =
            call!(Entry::nvmlDeviceGetProcessesUtilizationInfo, device => Device, infos => *mut SampleInfos);
        match infos.as_mut() {
            Some(infos) if code == NVML_SUCCESS && !infos.entries.is_null() && shown().is_some() => {
                keep_own(&mut infos.count, infos.entries, SAMPLE_INFO);
                if infos.count == 0 { NVML_NOT_FOUND } else { NVML_SUCCESS }
            }
            _ => code,
        }
    }
}

/// `nvmlUtilization_t`: percent.
#[repr(C)]
pub(crate) struct Utilisation {
    multiprocessors: c_uint,
    memory: c_uint,
}

/// `nvmlProcessUtilizationSample_t`: what of it matters here.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sample {
    pid: c_uint,
    time: u64,
    multiprocessors: c_uint,
    memory: c_uint,
    others: u64,
}

const _: () = assert!(size_of::<Sample>() == SAMPLE.length);

/// More processes than use one card together.
const MOST_PROCESSES: usize = 128;

/// How busy the pod keeps the card, in percent of the card; nothing where the driver does not tell processes apart.
unsafe fn own_utilisation(device: Device) -> Option<Utilisation> {
    let mut sum = Utilisation { multiprocessors: 0, memory: 0 };
    if owner(0).is_none() {
        return Some(sum);
    }
    let none = Sample { pid: 0, time: 0, multiprocessors: 0, memory: 0, others: 0 };
    let mut samples = [none; MOST_PROCESSES];
    let mut room = c_uint::try_from(MOST_PROCESSES).unwrap_or(0);
    let since = sys::wall_microseconds().saturating_sub(1_000_000);
    let (start, count): (*mut Sample, *mut c_uint) = (samples.as_mut_ptr(), &raw mut room);
    // SAFETY: room for as many samples as the count says.
    let code = unsafe {
        call!(Entry::nvmlDeviceGetProcessUtilization, device => Device, start => *mut Sample,
            count => *mut c_uint, since => u64)
    };
    match code {
        NVML_SUCCESS => {}
        NVML_NOT_FOUND => return Some(sum),
        _ => return None,
    }
    for sample in samples.iter().take(room as usize).filter(|sample| own(sample.pid).is_some()) {
        sum.multiprocessors = sum.multiprocessors.saturating_add(sample.multiprocessors);
        sum.memory = sum.memory.saturating_add(sample.memory);
    }
    Some(sum)
}

/// The pod's own utilisation: of the multiprocessors relative to its limit, of the memory (which has no limit in time)
/// as it is.
pub(crate) unsafe extern "C" fn utilisation(device: Device, rates: *mut Utilisation) -> NvmlReturn {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::nvmlDeviceGetUtilizationRates, device => Device, rates => *mut Utilisation);
        if code == NVML_SUCCESS
            && let Some(rates) = rates.as_mut()
            && shown().is_some()
            && let Some(own) = own_utilisation(device)
        {
            rates.multiprocessors = of_limit(own.multiprocessors);
            rates.memory = own.memory.min(100);
        }
        code
    }
}
