//! The driver's calls that let another process open memory and events.

use gpupool_nvidia::cuda::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

use crate::{
    calls::entry::{entry, put},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::{
        ipc::{self, IpcHandle},
        space::{self, AllocationKind},
    },
    objects::{context::current, event},
};

fn handle_of_memory(pointer: u64) -> CuResult<IpcHandle> {
    current()?;
    let found = space::find(pointer)
        .filter(|found| found.kind == AllocationKind::Device)
        .ok_or(CuError::INVALID_VALUE)?;
    let segment = space::sharing::share(found.base)?;
    Ok(IpcHandle::new(ipc::MEMORY, &segment, found.size))
}

/// Opens memory of another process.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn open_memory(out: *mut u64, handle: IpcHandle, flags: u32) -> CuResult {
    if out.is_null() || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
        return Err(CuError::INVALID_VALUE);
    }
    let context = current()?;
    // SAFETY: by this function's contract.
    unsafe { put(out, ipc::open(&handle, ipc::MEMORY, AllocationKind::Opened, context.owner())?) }
}

entry! {
    cuIpcGetMemHandle(out: *mut IpcHandle, pointer: u64) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, handle_of_memory(pointer)?)
    }
    cuIpcOpenMemHandle(out: *mut u64, handle: IpcHandle, flags: u32) { open_memory(out, handle, flags) }
    cuIpcOpenMemHandle_v2(out: *mut u64, handle: IpcHandle, flags: u32) { open_memory(out, handle, flags) }
    cuIpcCloseMemHandle(pointer: u64) {
        current()?;
        ipc::close(pointer, |kind| kind == AllocationKind::Opened)
    }
    cuIpcGetEventHandle(out: *mut IpcHandle, event: Handle) {
        initialised()?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, event::share(event)?)
    }
    cuIpcOpenEventHandle(out: *mut Handle, handle: IpcHandle) {
        current()?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, event::open(&handle)?)
    }
}
