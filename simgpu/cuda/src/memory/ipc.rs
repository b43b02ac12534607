//! Handles by which one process opens memory and events of another, and the memory that this process has opened.

use std::{collections::BTreeMap, sync::Mutex};

use gpupool_nvidia::cuda::CU_IPC_HANDLE_SIZE;
use simgpu_device::Segment;

use crate::{
    device::segments,
    error::{CuError, CuResult},
    memory::space::{self, AllocationKind, Owner},
    sync::lock,
};

/// What a handle stands for; the first word of each.
pub(crate) const MEMORY: u64 = 0x5349_4D47_4D45_4D31;
pub(crate) const EVENT: u64 = 0x5349_4D47_4556_4531;
pub(crate) const POOLED: u64 = 0x5349_4D47_504F_4F31;

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`: opaque to programs, which carry it to another
/// process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpcHandle {
    purpose: u64,
    index: u64,
    serial: u64,
    size: u64,
    /// The process that made it, in its own pid namespace.
    process: u64,
    rest: [u64; 3],
}

/// Memory opened by this process: its address by the segment's serial, and how often.
static OPENED: Mutex<BTreeMap<u64, (u64, u32)>> = Mutex::new(BTreeMap::new());

impl IpcHandle {
    /// A handle for the first `size` bytes of a segment.
    pub(crate) fn new(purpose: u64, segment: &Segment, size: u64) -> Self {
        let process = u64::from(std::process::id());
        Self { purpose, index: segment.index as u64, serial: segment.serial, size, process, rest: [0; 3] }
    }

    /// The segment, held once more. Fails where the handle is none of that purpose, or what it stood for is gone.
    pub(crate) fn segment(&self, purpose: u64) -> CuResult<Segment> {
        let index = usize::try_from(self.index).ok().filter(|_| self.purpose == purpose);
        let segment = segments::open(index.ok_or(CuError::INVALID_HANDLE)?, self.serial)?;
        segment.ok_or(CuError::INVALID_HANDLE)
    }

    /// Whether the calling process made it.
    fn is_own(&self) -> bool {
        self.process == u64::from(std::process::id()) && segments::holds(self.index, self.serial)
    }
}

/// Opens the memory that a handle of another process stands for. Opening it again gives the same address, and it has
/// to be closed as often.
pub(crate) fn open(handle: &IpcHandle, purpose: u64, kind: AllocationKind, owner: Owner) -> CuResult<u64> {
    let mut opened = lock(&OPENED);
    if let Some((address, count)) = opened.get_mut(&handle.serial) {
        *count += 1;
        return Ok(*address);
    }
    if handle.is_own() {
        return Err(CuError::INVALID_CONTEXT);
    }
    let segment = handle.segment(purpose)?;
    let made = if handle.size == 0 || handle.size > segment.bytes {
        Err(CuError::INVALID_HANDLE)
    } else {
        space::sharing::open(segment, handle.size, kind, owner)
    };
    let address = made.inspect_err(|_| segments::release(&segment))?;
    opened.insert(segment.serial, (address, 1));
    Ok(address)
}

/// Closes opened memory of a kind once; the last time it goes.
pub(crate) fn close(address: u64, fits: impl Fn(AllocationKind) -> bool) -> CuResult {
    let mut opened = lock(&OPENED);
    let found = space::find(address).filter(|found| found.base == address && fits(found.kind));
    let serial = found.and_then(|found| found.segment).ok_or(CuError::INVALID_VALUE)?.serial;
    let (_, count) = opened.get_mut(&serial).ok_or(CuError::INVALID_VALUE)?;
    *count -= 1;
    if *count == 0 {
        opened.remove(&serial);
        space::release(address, |found| fits(found.kind));
    }
    Ok(())
}

/// Forgets memory that went with its context.
pub(crate) fn forget(segment: &Segment) {
    lock(&OPENED).remove(&segment.serial);
}

const _: () = assert!(size_of::<IpcHandle>() == CU_IPC_HANDLE_SIZE);
