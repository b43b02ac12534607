//! Memory and semaphores of other interfaces, which come as descriptors.
//!
//! What a descriptor stands for here is a file in memory. It becomes memory of the card when it is imported, once for
//! a process however often it is imported: the interface that made it has no card of its own to take it from.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{Mutex, atomic::AtomicU64},
};

use gpupool_nvidia::cuda::{
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD, CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32, CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    CUDA_EXTERNAL_MEMORY_DEDICATED, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
};

use crate::{
    device::initialised::{Initialised, initialised},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::space::{self, AllocationKind},
    objects::context::current,
    sync::lock,
};

/// A `CUexternalMemory`.
#[derive(Debug)]
pub(crate) struct ExternalMemory {
    file: OwnedFd,
    size: u64,
    /// Which file it is, and the card that it was charged to.
    file_id: (u64, u64),
    card: usize,
}

/// How often each file is imported, and for how many bytes it is charged.
static IMPORTED: Mutex<BTreeMap<(u64, u64), (u32, u64)>> = Mutex::new(BTreeMap::new());
pub(crate) static MEMORIES: Registry<ExternalMemory> = Registry::new();
/// The value of each semaphore.
pub(crate) static SEMAPHORES: Registry<AtomicU64> = Registry::new();

impl Drop for ExternalMemory {
    fn drop(&mut self) {
        let mut imported = lock(&IMPORTED);
        let Some((count, charged)) = imported.get_mut(&self.file_id) else { return };
        *count -= 1;
        if *count == 0 {
            if let Ok(process) = initialised().and_then(Initialised::process) {
                process.give_memory(self.card, *charged);
            }
            imported.remove(&self.file_id);
        }
    }
}

/// Which file a descriptor leads to, if it has `size` bytes.
pub(crate) fn file_id(descriptor: i32, size: u64) -> CuResult<(u64, u64)> {
    // SAFETY: the structure is ours to be written; a wrong descriptor is an error.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        let whole = libc::fstat(descriptor, &raw mut about) == 0 && about.st_size.unsigned_abs() >= size;
        if whole && about.st_mode & libc::S_IFMT == libc::S_IFREG {
            Ok((about.st_dev, about.st_ino))
        } else {
            Err(CuError::INVALID_VALUE)
        }
    }
}

/// Imports memory; the descriptor is the driver's from then on.
pub(crate) fn import(description: &CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> CuResult<Handle> {
    match description.r#type {
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD => {}
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32..=CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD => {
            return Err(CuError::NOT_SUPPORTED);
        }
        _ => return Err(CuError::INVALID_VALUE),
    }
    let (descriptor, size) = (description.fd, description.size);
    if size == 0 || description.flags & !CUDA_EXTERNAL_MEMORY_DEDICATED != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let file_id = file_id(descriptor, size)?;
    let card = current()?.card.index();
    let process = initialised()?.process()?;
    let mut imported = lock(&IMPORTED);
    if let Some((count, _)) = imported.get_mut(&file_id) {
        *count += 1;
    } else {
        process.take_memory(card, size)?;
        imported.insert(file_id, (1, size));
    }
    drop(imported);
    // SAFETY: a successful import takes the descriptor over.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(MEMORIES.add(ExternalMemory { file, size, file_id, card }))
}

/// Maps a part of imported memory; gives its address.
pub(crate) fn map(handle: Handle, buffer: &CUDA_EXTERNAL_MEMORY_BUFFER_DESC) -> CuResult<u64> {
    let memory = MEMORIES.get(handle)?;
    let fits = buffer.offset.checked_add(buffer.size).is_some_and(|end| end <= memory.size);
    if !fits || buffer.size == 0 || buffer.flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let owner = current()?.owner();
    space::sharing::open_file(
        memory.file.as_raw_fd(),
        buffer.offset,
        buffer.size,
        AllocationKind::External,
        owner,
    )
}
