//! The driver's calls about memory and semaphores of other interfaces.

use std::{
    os::fd::{FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use gpupool_nvidia::cuda::{
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32, CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
};

use crate::{
    calls::entry::{entry, put, read},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        array::{self, ArrayDescriptor},
        context::current,
        external::{MEMORIES, SEMAPHORES, file_id, import, map},
        stream::{legacy, own, target},
    },
};

/// Signals semaphores, or waits for them: both take effect at once, as all bytes do.
///
/// # Safety
/// `list` is null or valid for reads of `count` handles; it need not be aligned.
unsafe fn each(list: *const Handle, count: u32, stream: Handle, act: impl Fn(&AtomicU64)) -> CuResult {
    target(stream)?.not_capturing()?;
    for place in 0..count as usize {
        // SAFETY: by this function's contract the list has that many.
        act(&*SEMAPHORES.get(unsafe { read(list.wrapping_add(place)) }?)?);
    }
    Ok(())
}

/// Signals semaphores.
///
/// # Safety
/// As for [`each`].
unsafe fn signal(list: *const Handle, count: u32, stream: Handle) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        each(list, count, stream, |value| {
            value.fetch_add(1, Relaxed);
        })
    }
}

/// Waits for semaphores.
///
/// # Safety
/// As for [`each`].
unsafe fn wait(list: *const Handle, count: u32, stream: Handle) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe { each(list, count, stream, |_| {}) }
}

entry! {
    cuImportExternalMemory(out: *mut Handle, description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, import(&read(description)?)?)
    }
    cuExternalMemoryGetMappedBuffer(out: *mut u64, handle: Handle, buffer: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, map(handle, &read(buffer)?)?)
    }
    cuExternalMemoryGetMappedMipmappedArray(
        out: *mut Handle,
        handle: Handle,
        levels: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    ) {
        MEMORIES.get(handle)?;
        let levels = read(levels)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, array::create_mipmapped(ArrayDescriptor::from(levels.arrayDesc).without_memory(), levels.numLevels)?)
    }
    cuDestroyExternalMemory(handle: Handle) { MEMORIES.remove(handle).map(|_| ()) }
    cuImportExternalSemaphore(out: *mut Handle, description: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) {
        current()?;
        let description = read(description)?;
        match description.r#type {
            CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
            | CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD => {}
            CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32
                ..=CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT
            | CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32 => {
                return Err(CuError::NOT_SUPPORTED);
            }
            _ => return Err(CuError::INVALID_VALUE),
        }
        file_id(description.fd, 0)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        // SAFETY: a successful import takes the descriptor over; the semaphore itself is this process's.
        drop(unsafe { OwnedFd::from_raw_fd(description.fd) });
        put(out, SEMAPHORES.add(AtomicU64::new(0)))
    }
    cuDestroyExternalSemaphore(handle: Handle) { SEMAPHORES.remove(handle).map(|_| ()) }
    cuSignalExternalSemaphoresAsync(list: *const Handle, _values: usize, count: u32, stream: Handle) {
        signal(list, count, legacy(stream))
    }
    cuSignalExternalSemaphoresAsync_ptsz(list: *const Handle, _values: usize, count: u32, stream: Handle) {
        signal(list, count, own(stream))
    }
    cuWaitExternalSemaphoresAsync(list: *const Handle, _values: usize, count: u32, stream: Handle) {
        wait(list, count, legacy(stream))
    }
    cuWaitExternalSemaphoresAsync_ptsz(list: *const Handle, _values: usize, count: u32, stream: Handle) {
        wait(list, count, own(stream))
    }
}
