//! The driver's calls that take memory and give it back, on the card and on the host.

use std::ffi::c_void;

use gpupool_nvidia::cuda::{
    CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY,
    CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY,
};

use crate::{
    calls::entry::{entry, put, put_if_wanted},
    error::{CuError, CuResult},
    memory::{
        ipc,
        space::{self, Allocation, AllocationKind},
    },
    objects::{
        capture,
        context::{Context, context, current},
    },
};

/// Rows of pitched memory begin on multiples of this many bytes.
const PITCH: u64 = 512;
/// Every flag of `cuMemHostRegister`; `cuMemHostAlloc` takes them too.
const HOST_FLAGS: u32 = CU_MEMHOSTREGISTER_PORTABLE
    | CU_MEMHOSTREGISTER_DEVICEMAP
    | CU_MEMHOSTREGISTER_IOMEMORY
    | CU_MEMHOSTREGISTER_READ_ONLY;

fn allocate(size: usize) -> CuResult<u64> {
    capture::forbid()?;
    space::allocate(AllocationKind::Device, size as u64, current()?.owner(), 0)
}

/// Frees device memory; waits for its card first, as the real call does. The pointer says whose it is: programs free
/// without a current context too (numba does while it closes).
pub(crate) fn free(pointer: u64) -> CuResult {
    if pointer == 0 {
        return Ok(());
    }
    capture::forbid()?;
    let freeable = |found: &Allocation| found.kind.freeable();
    let found = space::find(pointer).filter(freeable).ok_or(CuError::INVALID_VALUE)?;
    if let AllocationKind::PoolOpened(_) = found.kind {
        return ipc::close(pointer, |kind| kind == found.kind);
    }
    owner_of(&found)?.engine().end().wait()?;
    let freed = space::release(pointer, freeable).ok_or(CuError::INVALID_VALUE)?;
    crate::memory::graph_memory::note_freed(&freed);
    Ok(())
}

/// The context of an allocation; fails when its card is lost.
fn owner_of(allocation: &Allocation) -> CuResult<std::sync::Arc<Context>> {
    context(allocation.owner.context)
}

/// Makes page-locked memory of the host.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn allocate_host(out: *mut u64, size: usize, flags: u32) -> CuResult {
    if flags & !HOST_FLAGS != 0 || out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let address = space::allocate(AllocationKind::Host, size as u64, current()?.owner(), flags)?;
    // SAFETY: by this function's contract.
    unsafe { put(out, address) }
}

entry! {
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let card = current()?.card;
        let all = card.total_memory();
        put(free, usize::try_from(all.saturating_sub(card.used_memory())).unwrap_or(usize::MAX))?;
        put(total, usize::try_from(all).unwrap_or(usize::MAX))
    }
    cuMemAlloc_v2(out: *mut u64, size: usize) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, allocate(size)?)
    }
    cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) {
        if out.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(CuError::OUT_OF_MEMORY)?;
        let row = usize::try_from(row).map_err(|_| CuError::OUT_OF_MEMORY)?;
        let size = row.checked_mul(height).ok_or(CuError::OUT_OF_MEMORY)?;
        put(out, allocate(size)?)?;
        put(pitch, row)
    }
    cuMemFree_v2(pointer: u64) { free(pointer) }
    cuMemAllocManaged(out: *mut u64, size: usize, flags: u32) {
        if out.is_null() || !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(CuError::INVALID_VALUE);
        }
        capture::forbid()?;
        put(out, space::allocate(AllocationKind::Managed, size as u64, current()?.owner(), flags)?)
    }
    cuMemAllocHost(out: *mut u64, size: usize) { allocate_host(out, size, 0) }
    cuMemAllocHost_v2(out: *mut u64, size: usize) { allocate_host(out, size, 0) }
    cuMemHostAlloc(out: *mut u64, size: usize, flags: u32) { allocate_host(out, size, flags) }
    cuMemFreeHost(pointer: u64) {
        space::release(pointer, |found| found.kind == AllocationKind::Host).map(|_| ()).ok_or(CuError::INVALID_VALUE)
    }
    cuMemHostRegister(pointer: u64, size: usize, flags: u32) {
        register(pointer, size, flags)
    }
    cuMemHostRegister_v2(pointer: u64, size: usize, flags: u32) {
        register(pointer, size, flags)
    }
    cuMemHostUnregister(pointer: u64) {
        let found = space::release(pointer, |found| found.kind == AllocationKind::Registered);
        found.map(|_| ()).ok_or(CuError::HOST_MEMORY_NOT_REGISTERED)
    }
    cuMemHostGetDevicePointer_v2(out: *mut u64, pointer: u64, flags: u32) {
        current()?;
        let host = space::find(pointer).filter(|found| !found.kind.on_device());
        if flags != 0 || host.is_none() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, pointer)
    }
    cuMemHostGetFlags(flags: *mut u32, pointer: u64) {
        current()?;
        let host = space::find(pointer).filter(|found| !found.kind.on_device());
        put(flags, host.ok_or(CuError::INVALID_VALUE)?.flags)
    }
    cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, pointer: u64) {
        current()?;
        let found = space::find(pointer).ok_or(CuError::NOT_FOUND)?;
        put_if_wanted(base, found.base);
        put_if_wanted(size, usize::try_from(found.size).unwrap_or(usize::MAX));
        Ok(())
    }
    // Memory of the host is reachable from simulated cards wherever it lies: there is nothing to move or to advise.
    cuMemPrefetchAsync(pointer: u64, size: usize, _device: i32, _stream: *mut c_void) {
        managed(pointer, size)
    }
    cuMemPrefetchAsync_ptsz(pointer: u64, size: usize, _device: i32, _stream: *mut c_void) {
        managed(pointer, size)
    }
    // A location is two words, passed in one register.
    cuMemPrefetchAsync_v2(pointer: u64, size: usize, _location: u64, _flags: u32, _stream: *mut c_void) {
        managed(pointer, size)
    }
    cuMemPrefetchAsync_v2_ptsz(pointer: u64, size: usize, _location: u64, _flags: u32, _stream: *mut c_void) {
        managed(pointer, size)
    }
    cuMemAdvise(pointer: u64, size: usize, _advice: i32, _device: i32) {
        managed(pointer, size)
    }
    cuMemAdvise_v2(pointer: u64, size: usize, _advice: i32, _location: u64) {
        managed(pointer, size)
    }
}

fn register(pointer: u64, size: usize, flags: u32) -> CuResult {
    if flags & !HOST_FLAGS != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    space::register(pointer, size as u64, current()?.owner(), flags)
}

fn managed(pointer: u64, size: usize) -> CuResult {
    current()?;
    let found = space::find(pointer)
        .filter(|found| found.kind == AllocationKind::Managed && found.holds(pointer, size as u64));
    found.map(|_| ()).ok_or(CuError::INVALID_VALUE)
}
