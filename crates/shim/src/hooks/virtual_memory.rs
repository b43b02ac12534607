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
use crate::charging::physical_memory::{
    self, EXTERNAL, Physical, erase, first, folded, is_on_device, leave, let_go, note, retain, write,
};
use crate::real::arguments::Arguments;
use crate::real::call;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::pointers::{Allocation, Kind, Owner};
use crate::state::shared_memory::{Key, key_of, key_of_file};
use crate::stop;
use crate::table::Entry;

/// Where in a range that is unmapped something is mapped that is not known here, the search goes on after this much:
/// the smallest piece that drivers map.
const STEP: u64 = 64 << 10;

/// What the driver takes for `bytes` of memory with these properties.
///
/// # Safety
/// `properties` must be those of memory that is to be made.
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
/// `arguments` are those of a call of the row's function: pointers among them are the program's, of the types and lengths
/// that NVIDIA documents for it, or null.
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
        let _turn = PROCESS.physical.lock();
        let bytes = charge.reservation.bytes();
        first(folded(arguments.written(0)), None, bytes);
        charge.reservation.commit(bytes);
        stop::at(b"committed");
        code
    }
}

/// The key of memory of unknown size, 0 for one that only its size can tell.
fn foreign(memory: Physical) -> Option<Key> {
    note(Kind::Foreign, memory)
}

/// `cuMemRelease`.
///
/// # Safety
/// `arguments` are those of a call of the row's function: pointers among them are the program's, of the types and lengths
/// that NVIDIA documents for it, or null.
pub(crate) unsafe fn release(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { physical_memory::end(entry, arguments, account, Kind::Physical) }
}

/// `cuMemMap(address, size, offset, handle, flags)`.
pub(crate) unsafe fn map(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let (address, size) = (arguments.word(0) as u64, arguments.word(1) as u64);
    let memory = folded(arguments.word(3) as u64);
    let mut charge = None;
    let mut joined = None;
    if let Some(key) = foreign(memory) {
        joined = if key == 0 { PROCESS.shared_memory.hold(account, key_of(&[size]), None) } else { None };
        if joined.is_none() {
            charge = match begin(size) {
                Ok(charge) => charge,
                Err(code) => return code,
            };
        }
    }
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let _turn = PROCESS.physical.lock();
    // Of two threads that map it at once only one finds the note.
    let key = if code == CUDA_SUCCESS { erase(Kind::Foreign, memory) } else { None };
    if key.is_some() && joined.is_none() {
        let key = key.filter(|&key| key != 0).unwrap_or_else(|| key_of(&[size]));
        joined = PROCESS.shared_memory.hold(account, key, Some(size));
        if joined.is_none() {
            write(Kind::Physical, memory, size);
            account.charge_anyway(size);
        }
    }
    match joined {
        Some(place) if key.is_some() => write(Kind::Place, memory, place as u64 + 1),
        Some(place) => PROCESS.shared_memory.leave(account, place),
        None => {}
    }
    if let Some(charge) = charge {
        charge.reservation.cancel();
    }
    if code == CUDA_SUCCESS && retain(memory) {
        write(Kind::Length, address, size);
        write(Kind::Mapping, address, memory);
    }
    code
}

/// `cuMemUnmap(address, size)`: of every mapping in the range.
pub(crate) unsafe fn unmap(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let mut at = arguments.word(0) as u64;
    let end = if code == CUDA_SUCCESS { at.saturating_add(arguments.word(1) as u64) } else { at };
    while at < end {
        if let Some(memory) = erase(Kind::Mapping, at) {
            let_go(account, memory);
        }
        at = at.saturating_add(erase(Kind::Length, at).unwrap_or(STEP).max(1));
    }
    code
}

/// `cuMemRetainAllocationHandle(handle, address)`.
pub(crate) unsafe fn retain_handle(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        if code == CUDA_SUCCESS {
            retain(folded(arguments.written(0)));
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
unsafe fn key_of_handle(kind: CUmemAllocationHandleType, descriptor: u32, words: *const u64) -> Option<Key> {
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
pub(crate) unsafe fn export(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let (words, memory) = (arguments.pointer::<u64>(0), folded(arguments.word(1) as u64));
    // SAFETY: the caller's arguments; what the driver has written is read.
    let key = unsafe {
        let code = arguments.call(entry);
        if code != CUDA_SUCCESS {
            return code;
        }
        key_of_handle(arguments.half(2), words.cast::<u32>().read_unaligned(), words)
    };
    let _turn = PROCESS.physical.lock();
    if let Some(bytes) = note(Kind::Physical, memory) {
        let key = key.unwrap_or_else(|| key_of(&[bytes]));
        if let Some(place) = PROCESS.shared_memory.hold(account, key, Some(bytes)) {
            erase(Kind::Physical, memory);
            write(Kind::Place, memory, place as u64 + 1);
            account.release(bytes);
        }
    }
    CUDA_SUCCESS
}

/// `cuMemImportFromShareableHandle(handle, shareable, kind)`.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments; a descriptor is passed as the word itself.
    let key = unsafe { key_of_handle(arguments.half(2), arguments.half(1), arguments.pointer(1)) };
    // Before the call: whoever holds it may let go of it at any moment.
    let joined = key.and_then(|key| PROCESS.shared_memory.hold(account, key, None));
    // SAFETY: the caller's arguments; what the driver has written is read.
    let (code, memory) = unsafe {
        let code = arguments.call(entry);
        (code, if code == CUDA_SUCCESS { folded(arguments.written(0)) } else { 0 })
    };
    let _turn = PROCESS.physical.lock();
    if code != CUDA_SUCCESS || retain(memory) {
        // It came to nothing; or the driver knows its own, and gave the handle that there was.
        leave(account, joined.map(|place| place as u64 + 1));
    } else if joined.is_some() {
        first(memory, joined, 0);
    } else {
        write(Kind::References, memory, 1);
        write(Kind::Foreign, memory, key.unwrap_or(0));
    }
    code
}

/// `cuMemMapArrayAsync(list, count, stream)`.
pub(crate) unsafe fn map_array(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let count = if code == CUDA_SUCCESS { arguments.half(1) } else { 0 };
    for index in 0..count as usize {
        // SAFETY: the driver has accepted a list of that length.
        let tile = unsafe { arguments.pointer::<CUarrayMapInfo>(0).add(index).read_unaligned() };
        let [a, b, c, d] = tile.subresource;
        // Not among the addresses of programs, which have fewer bits.
        let place = key_of(&[tile.resource, a, b, c, d]) | EXTERNAL;
        // What lay there is there no more.
        if let Some(memory) = erase(Kind::Mapping, place) {
            let_go(account, memory);
        }
        let memory = folded(tile.memHandle);
        if tile.memOperationType == CU_MEM_OPERATION_TYPE_MAP && retain(memory) {
            let piece = Allocation { bytes: memory, owner: Owner::array(number_of(tile.resource)) };
            let _ = PROCESS.pointers.insert(Kind::Mapping.of(place), piece);
        }
    }
    code
}

/// The number of an array that tiles are mapped into.
fn number_of(array: u64) -> u64 {
    note(Kind::Number, array).unwrap_or_else(|| {
        let number = key_of(&[array]);
        write(Kind::Number, array, number);
        number
    })
}
