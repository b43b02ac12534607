//! The driver's calls about memory and semaphores of other interfaces, which come as descriptors.
//!
//! What a descriptor stands for here is a file in memory. It becomes memory of the card when it is imported, once for
//! a process however often it is imported: the interface that made it has no card of its own to take it from.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::{Initialised, initialised},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::space::{self, AllocationKind},
    objects::{
        array::{self, Descriptor},
        context::current,
        stream::{legacy, own, target},
    },
    sync::lock,
};

/// A descriptor, of memory or a semaphore; the others are another system's.
const DESCRIPTOR: u32 = 1;
const TIMELINE: u32 = 9;
const LAST_MEMORY_TYPE: u32 = 9;
const LAST_SEMAPHORE_TYPE: u32 = 10;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, and the same for semaphores, which has no size.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct MemoryDescription {
    kind: u32,
    padding: u32,
    descriptor: [i32; 4],
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// See [`MemoryDescription`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct SemaphoreDescription {
    kind: u32,
    padding: u32,
    descriptor: i32,
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Buffer {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Levels {
    offset: u64,
    descriptor: Descriptor,
    count: u32,
    reserved: [u32; 16],
}

/// Imported memory.
#[derive(Debug)]
struct Memory {
    file: OwnedFd,
    size: u64,
    /// Which file it is, and the card that it was charged to.
    file_id: (u64, u64),
    card: usize,
}

/// How often each file is imported, and for how many bytes it is charged.
static IMPORTED: Mutex<BTreeMap<(u64, u64), (u32, u64)>> = Mutex::new(BTreeMap::new());
static MEMORIES: Registry<Memory> = Registry::new();
/// The value of each semaphore.
static SEMAPHORES: Registry<AtomicU64> = Registry::new();

impl Drop for Memory {
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
fn file_id(descriptor: i32, size: u64) -> CuResult<(u64, u64)> {
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
fn import(description: &MemoryDescription) -> CuResult<Handle> {
    match description.kind {
        DESCRIPTOR => {}
        0 => return Err(CuError::INVALID_VALUE),
        kind if kind > LAST_MEMORY_TYPE => return Err(CuError::INVALID_VALUE),
        _ => return Err(CuError::NOT_SUPPORTED),
    }
    let (descriptor, size) = (description.descriptor[0], description.size);
    if size == 0 || description.flags & !1 != 0 {
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
    Ok(MEMORIES.add(Memory { file, size, file_id, card }))
}

fn map(handle: Handle, buffer: &Buffer) -> CuResult<u64> {
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

/// Signals semaphores, or waits for them: both take effect at once, as all bytes do.
unsafe fn each(list: *const Handle, count: u32, stream: Handle, act: impl Fn(&AtomicU64)) -> CuResult {
    target(stream)?.not_capturing()?;
    for place in 0..count as usize {
        // SAFETY: the driver API's contract: a list of that many.
        act(&*SEMAPHORES.get(unsafe { read(list.wrapping_add(place)) }?)?);
    }
    Ok(())
}

unsafe fn signal(list: *const Handle, count: u32, stream: Handle) -> CuResult {
    // SAFETY: the driver API's contract.
    unsafe {
        each(list, count, stream, |value| {
            value.fetch_add(1, Relaxed);
        })
    }
}

unsafe fn wait(list: *const Handle, count: u32, stream: Handle) -> CuResult {
    // SAFETY: the driver API's contract.
    unsafe { each(list, count, stream, |_| {}) }
}

entry! {
    cuImportExternalMemory(out: *mut Handle, description: *const MemoryDescription) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, import(&read(description)?)?)
    }
    cuExternalMemoryGetMappedBuffer(out: *mut u64, handle: Handle, buffer: *const Buffer) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, map(handle, &read(buffer)?)?)
    }
    cuExternalMemoryGetMappedMipmappedArray(out: *mut Handle, handle: Handle, levels: *const Levels) {
        MEMORIES.get(handle)?;
        let levels = read(levels)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, array::create_mipmapped(levels.descriptor.without_memory(), levels.count)?)
    }
    cuDestroyExternalMemory(handle: Handle) { MEMORIES.remove(handle).map(|_| ()) }
    cuImportExternalSemaphore(out: *mut Handle, description: *const SemaphoreDescription) {
        current()?;
        let description = read(description)?;
        match description.kind {
            DESCRIPTOR | TIMELINE => {}
            1..=LAST_SEMAPHORE_TYPE => return Err(CuError::NOT_SUPPORTED),
            _ => return Err(CuError::INVALID_VALUE),
        }
        file_id(description.descriptor, 0)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        // SAFETY: a successful import takes the descriptor over; the semaphore itself is this process's.
        drop(unsafe { OwnedFd::from_raw_fd(description.descriptor) });
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

const _: () = {
    assert!(size_of::<MemoryDescription>() == 104);
    assert!(size_of::<Buffer>() == 88);
    assert!(size_of::<Levels>() == 120);
};
