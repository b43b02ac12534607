//! Virtual memory: physical memory made, mapped, shared and let go of in calls of their own.
//!
//! Physical memory lives for as long as there is a handle of it or a mapping, and so does its charge: each is counted.
//! What was exported is charged beside the slots, for as long as any process of the pod holds it. What was imported
//! is charged only if nobody of the pod is: its size is known when it is mapped, so it is charged then. Memory of the
//! host is not charged, and what is not known here is left alone.

use core::mem::offset_of;

use gpupool_nvidia::cuda::{
    CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    CU_MEM_OPERATION_TYPE_MAP, CUDA_SUCCESS, CUarrayMapInfo, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemFabricHandle, CUmemLocation, CUresult,
};

use crate::charging::allocations::{begin, failed};
use crate::charging::physical_memory::{self, first, is_on_device, leave, let_go, retain};
use crate::real::arguments::Arguments;
use crate::real::call;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::shared_memory::{MemoryKey, key_of, key_of_file};
use crate::state::tables::keys::{Address, ArrayHandle, PhysicalMemory, Tile};
use crate::state::tables::values::{ArrayNumber, Bytes, References, TileMapping};
use crate::stop;
use crate::table::Entry;

/// Where in a range that is unmapped something is mapped that is not known here, the search goes on after this much:
/// the smallest piece that drivers map.
const STEP: u64 = 64 << 10;

/// What the driver takes for `bytes` of memory with these properties.
///
/// # Safety
/// `properties` points to a `CUmemAllocationProp`, 32 bytes: those of memory that is to be made.
unsafe fn granular(bytes: u64, properties: *const CUmemAllocationProp) -> u64 {
    let mut step: usize = 0;
    // SAFETY: the caller's properties, and a place for the answer.
    unsafe {
        call!(Entry::cuMemGetAllocationGranularity, &raw mut step => *mut usize,
            properties => *const CUmemAllocationProp,
            CU_MEM_ALLOC_GRANULARITY_MINIMUM => CUmemAllocationGranularity_flags);
    }
    bytes.checked_next_multiple_of((step as u64).max(1)).unwrap_or(u64::MAX)
}

/// `cuMemCreate(handle, size, properties, flags)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemCreate`: the first is null or points to a handle, 8
/// bytes, that may be written; the third is null or points to a `CUmemAllocationProp`, 32 bytes.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let properties = arguments.pointer::<CUmemAllocationProp>(2);
    // SAFETY: the caller's arguments.
    unsafe {
        let location = properties.wrapping_byte_add(offset_of!(CUmemAllocationProp, location));
        if properties.is_null() || !is_on_device(location.cast::<CUmemLocation>().read_unaligned()) {
            return arguments.call(entry);
        }
        let charge = match begin(granular(arguments.word(1) as u64, properties)) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        let Some(charge) = charge else { return code };
        if code != CUDA_SUCCESS {
            return failed(charge, code);
        }
        let _turn = PROCESS.physical.take();
        let bytes = charge.reservation.bytes();
        first(PhysicalMemory::created(arguments.written(0)), None, bytes);
        charge.reservation.commit(bytes);
        stop::at(b"committed");
        code
    }
}

/// `cuMemRelease`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemRelease`: a handle, which is not followed here.
pub(crate) unsafe fn release(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        physical_memory::end(entry, arguments, account, |account, handle| {
            let_go(account, PhysicalMemory::created(handle));
        })
    }
}

/// `cuMemMap(address, size, offset, handle, flags)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemMap`: an address on the card, a handle and numbers,
/// none of which is followed here.
pub(crate) unsafe fn map(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let (address, size) = (Address(arguments.word(0) as u64), arguments.word(1) as u64);
    let tables = &PROCESS.tables;
    let memory = PhysicalMemory::created(arguments.word(3) as u64);
    let mut charge = None;
    let mut joined = None;
    if let Some(key) = tables.imported_keys.get(memory) {
        joined =
            if key.is_none() { PROCESS.shared_memory.hold(account, key_of(&[size]), None) } else { None };
        if joined.is_none() {
            charge = match begin(size) {
                Ok(charge) => charge,
                Err(code) => return code,
            };
        }
    }
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let _turn = PROCESS.physical.take();
    // Of two threads that map it at once only one finds the note.
    let key = if code == CUDA_SUCCESS { tables.imported_keys.remove(memory) } else { None };
    if let Some(key) = key
        && joined.is_none()
    {
        let key = key.unwrap_or_else(|| key_of(&[size]));
        joined = PROCESS.shared_memory.hold(account, key, Some(size));
        if joined.is_none() {
            tables.physical_bytes.set(memory, Bytes(size));
            account.charge_anyway(size);
        }
    }
    match joined {
        Some(place) if key.is_some() => tables.shared_places.set(memory, place),
        Some(place) => PROCESS.shared_memory.leave(account, place),
        None => {}
    }
    if let Some(charge) = charge {
        charge.reservation.cancel();
    }
    if code == CUDA_SUCCESS && retain(memory) {
        tables.lengths.set(address, Bytes(size));
        tables.mappings.set(address, memory);
    }
    code
}

/// `cuMemUnmap(address, size)`: of every mapping in the range.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemUnmap`: an address on the card and a number. The
/// program does not use what is mapped there any more.
pub(crate) unsafe fn unmap(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let _turn = PROCESS.physical.take();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let mut at = arguments.word(0) as u64;
    let end = if code == CUDA_SUCCESS { at.saturating_add(arguments.word(1) as u64) } else { at };
    while at < end {
        if let Some(memory) = PROCESS.tables.mappings.remove(Address(at)) {
            let_go(account, memory);
        }
        let length = PROCESS.tables.lengths.remove(Address(at)).map_or(STEP, |bytes| bytes.0);
        at = at.saturating_add(length.max(1));
    }
    code
}

/// `cuMemRetainAllocationHandle(handle, address)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemRetainAllocationHandle`: the first is null or points to
/// a handle, 8 bytes, that may be written.
pub(crate) unsafe fn retain_handle(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let _turn = PROCESS.physical.take();
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        if code == CUDA_SUCCESS {
            retain(PhysicalMemory::created(arguments.written(0)));
        }
        code
    }
}

/// Words of a fabric handle.
const FABRIC_WORDS: usize = size_of::<CUmemFabricHandle>() / size_of::<u64>();

/// The key of a handle that memory is passed on by: a descriptor, or a fabric handle at an address.
///
/// # Safety
/// With `CU_MEM_HANDLE_TYPE_FABRIC`, `words` must be null or point to a fabric handle, 64 bytes.
unsafe fn key_of_handle(
    kind: CUmemAllocationHandleType,
    descriptor: u32,
    words: *const u64,
) -> Option<MemoryKey> {
    match kind {
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => key_of_file(descriptor.cast_signed()),
        CU_MEM_HANDLE_TYPE_FABRIC if words.is_aligned() && !words.is_null() => {
            // SAFETY: the caller's promise: a fabric handle.
            Some(key_of(unsafe { core::slice::from_raw_parts(words, FABRIC_WORDS) }))
        }
        _ => None,
    }
}

/// `cuMemExportToShareableHandle(shareable, handle, kind, flags)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemExportToShareableHandle`: the first is null or points
/// to what the kind asks for that may be written: a descriptor, 4 bytes, or a `CUmemFabricHandle`, 64 bytes.
pub(crate) unsafe fn export(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let (words, memory) = (arguments.pointer::<u64>(0), PhysicalMemory::created(arguments.word(1) as u64));
    // SAFETY: the caller's arguments; what the driver has written is read.
    let key = unsafe {
        let code = arguments.call(entry);
        if code != CUDA_SUCCESS {
            return code;
        }
        key_of_handle(arguments.half(2), words.cast::<u32>().read_unaligned(), words)
    };
    let _turn = PROCESS.physical.take();
    if let Some(Bytes(bytes)) = PROCESS.tables.physical_bytes.get(memory) {
        let key = key.unwrap_or_else(|| key_of(&[bytes]));
        if let Some(place) = PROCESS.shared_memory.hold(account, key, Some(bytes)) {
            PROCESS.tables.physical_bytes.remove(memory);
            PROCESS.tables.shared_places.set(memory, place);
            account.release(bytes);
        }
    }
    CUDA_SUCCESS
}

/// `cuMemImportFromShareableHandle(handle, shareable, kind)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemImportFromShareableHandle`: the first is null or points
/// to a handle, 8 bytes, that may be written; the second is a descriptor or, as the third says, null or a pointer to a
/// `CUmemFabricHandle`, 64 bytes.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments; a descriptor is passed as the word itself.
    let key = unsafe { key_of_handle(arguments.half(2), arguments.half(1), arguments.pointer(1)) };
    // Before the call: whoever holds it may let go of it at any moment.
    let joined = key.and_then(|key| PROCESS.shared_memory.hold(account, key, None));
    // SAFETY: the caller's arguments; what the driver has written is read.
    let (code, memory) = unsafe {
        let code = arguments.call(entry);
        (code, PhysicalMemory::created(if code == CUDA_SUCCESS { arguments.written(0) } else { 0 }))
    };
    let _turn = PROCESS.physical.take();
    if code != CUDA_SUCCESS || retain(memory) {
        // It came to nothing; or the driver knows its own, and gave the handle that there was.
        leave(account, joined);
    } else if joined.is_some() {
        first(memory, joined, 0);
    } else {
        PROCESS.tables.references.set(memory, References(1));
        PROCESS.tables.imported_keys.set(memory, key);
    }
    code
}

/// `cuMemMapArrayAsync(list, count, stream)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemMapArrayAsync`: the first is null or points to as many
/// `CUarrayMapInfo` as the second says, 96 bytes each.
pub(crate) unsafe fn map_array(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let _turn = PROCESS.physical.take();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let count = if code == CUDA_SUCCESS { arguments.half(1) } else { 0 };
    for index in 0..count as usize {
        // SAFETY: the driver has accepted a list of that length.
        let tile = unsafe { arguments.pointer::<CUarrayMapInfo>(0).add(index).read_unaligned() };
        let array = ArrayHandle(tile.resource);
        let place = Tile::new(array, tile.subresource);
        // What lay there is there no more.
        if let Some(before) = PROCESS.tables.tiles.remove(place) {
            let_go(account, before.memory);
        }
        let memory = PhysicalMemory::created(tile.memHandle);
        if tile.memOperationType == CU_MEM_OPERATION_TYPE_MAP && retain(memory) {
            PROCESS.tables.tiles.set(place, TileMapping { memory, array: number_of(array) });
        }
    }
    code
}

/// The number of an array that tiles are mapped into.
fn number_of(array: ArrayHandle) -> ArrayNumber {
    PROCESS.tables.sparse_arrays.get(array).unwrap_or_else(|| {
        let number = ArrayNumber::of(array);
        PROCESS.tables.sparse_arrays.set(array, number);
        number
    })
}
