//! Virtual memory: physical memory made, mapped, shared and let go of in calls of their own.
//!
//! Physical memory lives for as long as there is a handle of it or a mapping, and so does its charge: each is counted.
//! What was exported is charged beside the slots, for as long as any process of the pod holds it. What was imported
//! is charged only if nobody of the pod is: its size is known when it is mapped, so it is charged then. Memory of the
//! host is not charged, and what is not known here is left alone.

use core::ffi::c_int;

use crate::account::Account;
use crate::arguments::Arguments;
use crate::code::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::memory::{begin, failed};
use crate::pointers::{Kind, Owner, Piece};
use crate::process::{self, PROCESS};
use crate::real::call;
use crate::shares::Key;
use crate::table::Entry;

/// `CUmemGenericAllocationHandle`.
type Physical = u64;

/// `CU_MEM_LOCATION_TYPE_DEVICE`, and `…_DEVICE_LOCALITY_DOMAIN` for a part of it.
const ON_DEVICE: [u32; 2] = [1, 6];
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR` and `CU_MEM_HANDLE_TYPE_FABRIC`, whose handles have 64 bytes.
const DESCRIPTOR: u32 = 1;
const FABRIC: u32 = 8;
const FABRIC_BYTES: usize = 64;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const MINIMUM: c_int = 0;
/// Where in a range that is unmapped something is mapped that is not known here, the search goes on after this much:
/// the smallest piece that drivers map.
const STEP: u64 = 64 << 10;

/// A note about a thing of a kind.
fn note(kind: Kind, handle: u64) -> Option<u64> {
    PROCESS.pointers.get(kind.of(handle)).map(|piece| piece.bytes)
}

/// Writes one. Without memory for it the note is lost, and what it is about stays charged.
fn write(kind: Kind, handle: u64, number: u64) {
    let _ = PROCESS.pointers.insert(kind.of(handle), Piece::note(number));
}

fn erase(kind: Kind, handle: u64) -> Option<u64> {
    PROCESS.pointers.remove(kind.of(handle)).map(|piece| piece.bytes)
}

/// One handle or mapping more. Whether the memory is known.
fn retain(memory: Physical) -> bool {
    let references = note(Kind::References, memory);
    if let Some(references) = references {
        write(Kind::References, memory, references + 1);
    }
    references.is_some()
}

/// One handle or mapping less; with the last the charge goes.
fn let_go(account: &Account, memory: Physical) {
    match erase(Kind::References, memory) {
        None => {}
        Some(0 | 1) => {
            erase(Kind::Foreign, memory);
            if let Some(place) = erase(Kind::Place, memory).and_then(|place| usize::try_from(place - 1).ok())
            {
                PROCESS.shares.leave(account, place);
            }
            account.release(erase(Kind::Physical, memory).unwrap_or(0));
            if account.slot().contexts() == 0 {
                process::release_if_idle();
            }
        }
        Some(references) => write(Kind::References, memory, references - 1),
    }
}

/// From now on physical memory is charged at a place of the ledger.
fn place(memory: Physical, place: usize) {
    write(Kind::Place, memory, place as u64 + 1);
}

/// What the driver takes for `bytes` of memory with these properties.
unsafe fn granular(bytes: u64, properties: *const u32) -> u64 {
    let mut step: usize = 0;
    // SAFETY: the caller's properties, and a place for the answer.
    let code = unsafe {
        call!(Entry::cuMemGetAllocationGranularity, &raw mut step => *mut usize, properties => *const u32,
            MINIMUM => c_int)
    };
    let step = if code == SUCCESS { (step as u64).max(1) } else { 1 };
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}

/// `cuMemCreate(handle, size, properties, flags)`.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments) -> CuResult {
    let properties = arguments.pointer::<u32>(2);
    // SAFETY: the caller's arguments. The third word of the properties is the kind of their location.
    unsafe {
        if properties.is_null()
            || arguments.word(0) == 0
            || !ON_DEVICE.contains(&properties.add(2).read_unaligned())
        {
            return arguments.call(entry);
        }
        let charge = match begin(granular(arguments.word(1) as u64, properties)) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        let Some(charge) = charge else { return code };
        if code != SUCCESS {
            return failed(charge, code);
        }
        let (memory, bytes) = (arguments.written(0), charge.reservation.bytes());
        let _turn = PROCESS.physical.lock();
        let references = Kind::References.of(memory);
        if PROCESS.pointers.insert(Kind::Physical.of(memory), Piece::note(bytes)).is_err()
            || PROCESS.pointers.insert(references, Piece::note(1)).is_err()
        {
            erase(Kind::Physical, memory);
            call!(Entry::cuMemRelease, memory => Physical);
            return failed(charge, OUT_OF_MEMORY);
        }
        charge.reservation.commit(bytes);
        code
    }
}

/// `cuMemRelease(handle)`.
pub(crate) unsafe fn release(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    // Held over the call, or another thread could be given the handle anew in between.
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code == SUCCESS {
        let_go(account, arguments.word(0) as u64);
    }
    code
}

/// `cuMemMap(address, size, offset, handle, flags)`.
pub(crate) unsafe fn map(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let (address, size) = (arguments.word(0) as u64, arguments.word(1) as u64);
    let memory = arguments.word(3) as u64;
    let charge = match note(Kind::Foreign, memory).map(|_| begin(size)) {
        None | Some(Ok(None)) => None,
        Some(Ok(charge)) => charge,
        Some(Err(code)) => return code,
    };
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != SUCCESS {
        return charge.map_or(code, |charge| failed(charge, code));
    }
    let _turn = PROCESS.physical.lock();
    if let Some(charge) = charge {
        // Of two threads that map it at once only one finds the note.
        let key = erase(Kind::Foreign, memory);
        let bytes = charge.reservation.bytes();
        match key.map(|key| PROCESS.shares.share(account, key, bytes)) {
            None => charge.reservation.cancel(),
            Some(Some(at)) => {
                place(memory, at);
                charge.reservation.cancel();
            }
            Some(None) => {
                write(Kind::Physical, memory, bytes);
                charge.reservation.commit(bytes);
            }
        }
    }
    if retain(memory) {
        write(Kind::Length, address, size);
        write(Kind::Mapping, address, memory);
    }
    code
}

/// `cuMemUnmap(address, size)`: of every mapping in the range.
pub(crate) unsafe fn unmap(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != SUCCESS {
        return code;
    }
    let mut at = arguments.word(0) as u64;
    let end = at.saturating_add(arguments.word(1) as u64);
    while at < end {
        if let Some(memory) = erase(Kind::Mapping, at) {
            let_go(account, memory);
        }
        at = at.saturating_add(erase(Kind::Length, at).unwrap_or(STEP).max(1));
    }
    code
}

/// `cuMemRetainAllocationHandle(handle, address)`.
pub(crate) unsafe fn retain_handle(entry: Entry, arguments: &Arguments) -> CuResult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        if code == SUCCESS {
            retain(arguments.written(0));
        }
        code
    }
}

/// The key of what was exported to a place, or is to be imported from what stands there.
unsafe fn key_of(kind: u32, handle: *const u8, descriptor: i32) -> Option<Key> {
    match kind {
        DESCRIPTOR => Key::of_file(descriptor),
        // SAFETY: a fabric handle has that many bytes.
        FABRIC if !handle.is_null() => {
            Some(Key::of_bytes(unsafe { core::slice::from_raw_parts(handle, FABRIC_BYTES) }))
        }
        _ => None,
    }
}

/// `cuMemExportToShareableHandle(shareable, handle, kind, flags)`.
pub(crate) unsafe fn export(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let (kind, memory) = (arguments.half(2), arguments.word(1) as u64);
    // SAFETY: the caller's arguments; what the driver has written is read.
    let (code, key) = unsafe {
        let code = arguments.call(entry);
        if code != SUCCESS {
            return code;
        }
        let written = arguments.pointer::<u8>(0);
        let descriptor = if kind == DESCRIPTOR { written.cast::<i32>().read_unaligned() } else { -1 };
        (code, key_of(kind, written, descriptor))
    };
    let _turn = PROCESS.physical.lock();
    let bytes = note(Kind::Physical, memory).filter(|_| note(Kind::Place, memory).is_none());
    if let (Some(key), Some(bytes)) = (key, bytes) {
        // Others may say that it is the pod's; where it can be recognised, it can also be charged to all.
        let bytes = if key.unique { bytes } else { 0 };
        let known = !key.unique && PROCESS.shares.join(account, key.word).is_some();
        if !known && let Some(at) = PROCESS.shares.share(account, key.word, bytes) {
            if key.unique {
                write(Kind::Physical, memory, 0);
                place(memory, at);
                account.release(bytes);
            }
        }
    }
    code
}

/// `cuMemImportFromShareableHandle(handle, shareable, kind)`.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let kind = arguments.half(2);
    // SAFETY: the caller's arguments; a descriptor is passed as the word itself.
    let key = unsafe { key_of(kind, arguments.pointer(1), arguments.half(1).cast_signed()) };
    // Before the call: whoever holds it may let go of it at any moment.
    let joined = key.and_then(|key| PROCESS.shares.join(account, key.word));
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let leave = || {
        if let Some((at, _)) = joined {
            PROCESS.shares.leave(account, at);
        }
    };
    if code != SUCCESS {
        leave();
        return code;
    }
    // SAFETY: the call has succeeded.
    let memory = unsafe { arguments.written(0) };
    let _turn = PROCESS.physical.lock();
    if retain(memory) {
        // The driver knows its own and gave the handle that there was.
        leave();
        return code;
    }
    match (joined, key) {
        (Some((at, _)), _) => place(memory, at),
        (None, Some(key)) if key.unique => write(Kind::Foreign, memory, key.word),
        _ => return code,
    }
    write(Kind::References, memory, 1);
    code
}

/// `CUarrayMapInfo`, as far as it matters: what is mapped or unmapped where.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Tile {
    resource_kind: u32,
    resource: u64,
    /// Which part of the resource: five words, of which the last may be half of something that does not count.
    part_kind: u32,
    part: [u64; 4],
    operation: u32,
    memory_kind: u32,
    memory: Physical,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Tile>() == 96);

/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: u32 = 1;

impl Tile {
    /// Where a note about it is kept.
    fn place(&self) -> u64 {
        let words = [
            self.resource,
            u64::from(self.part_kind),
            self.part[0],
            self.part[1],
            self.part[2],
            self.part[3],
        ];
        let hash = words
            .iter()
            .fold(0, |hash: u64, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        // Not among the addresses of programs.
        hash & ((1 << 60) - 1) | (1 << 59)
    }
}

/// `cuMemMapArrayAsync(list, count, stream)`.
pub(crate) unsafe fn map_array(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let list = arguments.pointer::<Tile>(0);
    if code != SUCCESS || list.is_null() {
        return code;
    }
    for index in 0..arguments.half(1) as usize {
        // SAFETY: the driver has accepted a list of that length.
        let tile = unsafe { list.add(index).read_unaligned() };
        // What lay there is there no more.
        if let Some(memory) = erase(Kind::Mapping, tile.place()) {
            let_go(account, memory);
        }
        if tile.operation == MAP && retain(tile.memory) {
            let piece = Piece { bytes: tile.memory, owner: Owner::array(number_of(tile.resource)) };
            let _ = PROCESS.pointers.insert(Kind::Mapping.of(tile.place()), piece);
        }
    }
    code
}

/// The number of an array that tiles are mapped into.
fn number_of(array: u64) -> u64 {
    note(Kind::Number, array).unwrap_or_else(|| {
        let number = PROCESS.shares.next_number();
        write(Kind::Number, array, number);
        number
    })
}

/// An array is gone, and what was mapped into it is mapped there no more.
pub(crate) fn forget_tiles(account: &Account, array: Owner) {
    let _turn = PROCESS.physical.lock();
    while let Some(tile) = PROCESS.pointers.take_one(array) {
        let_go(account, tile.bytes);
    }
}
