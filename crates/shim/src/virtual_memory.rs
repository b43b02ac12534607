//! Virtual memory: physical memory made, mapped, shared and let go of in calls of their own.
//!
//! Physical memory lives for as long as there is a handle of it or a mapping, and so does its charge: each is counted.
//! What was exported is charged beside the slots, for as long as any process of the pod holds it. What was imported
//! is charged only if nobody of the pod is: its size is known when it is mapped, so it is charged then. Memory of the
//! host is not charged, and what is not known here is left alone.

use core::ffi::c_int;

use crate::account::Account;
use crate::arguments::Arguments;
use crate::code::{CuResult, SUCCESS};
use crate::memory::{begin, failed};
use crate::pointers::{Kind, Owner, Piece};
use crate::pools::ON_DEVICE;
use crate::process::{self, PROCESS};
use crate::real::call;
use crate::shares::{Key, key_of, key_of_file};
use crate::stop;
use crate::table::Entry;

/// What physical memory is known by here: its handle in 48 bits, so that it can be kept as a note, and a bit for memory
/// from elsewhere.
type Physical = u64;

/// Tells memory of another API, and memory that another process has let this one open, from the driver's own.
pub(crate) const EXTERNAL: u64 = 1 << 56;
pub(crate) const OPENED: u64 = 1 << 57;

/// The 48 bits of a handle. Handles are addresses or numbers with the same upper bits, of which no two become one.
pub(crate) fn folded(handle: u64) -> Physical {
    (handle ^ (handle >> 44)) & ((1 << 48) - 1)
}
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR` and `CU_MEM_HANDLE_TYPE_FABRIC`, whose handles have eight words.
const DESCRIPTOR: u32 = 1;
const FABRIC: u32 = 8;
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

pub(crate) fn erase(kind: Kind, handle: u64) -> Option<u64> {
    PROCESS.pointers.remove(kind.of(handle)).map(|piece| piece.bytes)
}

/// Memory gets to be known by its first handle: it is charged at a place of the ledger, or to this process.
pub(crate) fn first(memory: Physical, place: Option<usize>, bytes: u64) {
    write(Kind::References, memory, 1);
    match place {
        Some(place) => write(Kind::Place, memory, place as u64 + 1),
        None => write(Kind::Physical, memory, bytes),
    }
}

/// One handle or mapping more. Whether the memory is known.
pub(crate) fn retain(memory: Physical) -> bool {
    let references = note(Kind::References, memory);
    if let Some(references) = references {
        write(Kind::References, memory, references + 1);
    }
    references.is_some()
}

/// One handle or mapping less; with the last the charge goes.
#[inline(never)]
fn let_go(account: &Account, memory: Physical) {
    match erase(Kind::References, memory) {
        None => {}
        Some(0 | 1) => {
            erase(Kind::Foreign, memory);
            leave(account, erase(Kind::Place, memory));
            account.release(erase(Kind::Physical, memory).unwrap_or(0));
        }
        Some(references) => write(Kind::References, memory, references - 1),
    }
}

/// Leaves a place, as a note says it.
pub(crate) fn leave(account: &Account, place: Option<u64>) {
    if let Some(place) = place.and_then(|place| usize::try_from(place - 1).ok()) {
        PROCESS.shares.leave(account, place);
    }
}

/// What the driver takes for `bytes` of memory with these properties.
unsafe fn granular(bytes: u64, properties: *const c_int) -> u64 {
    let mut step: usize = 0;
    // SAFETY: the caller's properties, and a place for the answer.
    unsafe {
        call!(Entry::cuMemGetAllocationGranularity, &raw mut step => *mut usize, properties => *const c_int,
            MINIMUM => c_int);
    }
    bytes.checked_next_multiple_of((step as u64).max(1)).unwrap_or(u64::MAX)
}

/// `cuMemCreate(handle, size, properties, flags)`.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments) -> CuResult {
    let properties = arguments.pointer::<c_int>(2);
    // SAFETY: the caller's arguments. The third word of the properties is the kind of their location.
    unsafe {
        if properties.is_null() || !ON_DEVICE.contains(&properties.add(2).read_unaligned()) {
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
        let _turn = PROCESS.physical.lock();
        let bytes = charge.reservation.bytes();
        first(folded(arguments.written(0)), None, bytes);
        charge.reservation.commit(bytes);
        stop::at(b"committed");
        code
    }
}

/// Ends what a handle stands for: `cuMemRelease`, `cuArrayDestroy` and the like.
pub(crate) unsafe fn end(entry: Entry, arguments: &Arguments, account: &Account, kind: Kind) -> CuResult {
    let handle = arguments.word(0) as u64;
    // Held over the call, or another thread could be given the handle anew in between.
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != SUCCESS {
        return code;
    }
    match kind {
        Kind::Physical => let_go(account, folded(handle)),
        Kind::External => let_go(account, folded(handle) | EXTERNAL),
        Kind::Opened => let_go(account, folded(handle) | OPENED),
        _ => account.release(erase(kind, handle).unwrap_or(0)),
    }
    // What was mapped into a sparse array is mapped there no more.
    if kind == Kind::Array
        && let Some(number) = erase(Kind::Number, handle)
    {
        while let Some(tile) = PROCESS.pointers.take_one(Owner::array(number)) {
            let_go(account, tile.bytes);
        }
    }
    if account.slot().contexts() == 0 {
        process::release_if_idle();
    }
    code
}

/// The key of memory of unknown size, 0 for one that only its size can tell.
fn foreign(memory: Physical) -> Option<Key> {
    note(Kind::Foreign, memory)
}

/// `cuMemMap(address, size, offset, handle, flags)`.
pub(crate) unsafe fn map(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let (address, size) = (arguments.word(0) as u64, arguments.word(1) as u64);
    let memory = folded(arguments.word(3) as u64);
    let mut charge = None;
    let mut joined = None;
    if let Some(key) = foreign(memory) {
        joined = if key == 0 { PROCESS.shares.hold(account, key_of(&[size]), None) } else { None };
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
    let key = if code == SUCCESS { erase(Kind::Foreign, memory) } else { None };
    if key.is_some() && joined.is_none() {
        let key = key.filter(|&key| key != 0).unwrap_or_else(|| key_of(&[size]));
        joined = PROCESS.shares.hold(account, key, Some(size));
        if joined.is_none() {
            write(Kind::Physical, memory, size);
            account.charge_anyway(size);
        }
    }
    match joined {
        Some(place) if key.is_some() => write(Kind::Place, memory, place as u64 + 1),
        Some(place) => PROCESS.shares.leave(account, place),
        None => {}
    }
    if let Some(charge) = charge {
        charge.reservation.cancel();
    }
    if code == SUCCESS && retain(memory) {
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
    let mut at = arguments.word(0) as u64;
    let end = if code == SUCCESS { at.saturating_add(arguments.word(1) as u64) } else { at };
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
            retain(folded(arguments.written(0)));
        }
        code
    }
}

/// The key of a handle that memory is passed on by: a descriptor, or eight words at an address.
unsafe fn key_of_handle(kind: u32, descriptor: u32, words: *const u64) -> Option<Key> {
    match kind {
        DESCRIPTOR => key_of_file(descriptor.cast_signed()),
        FABRIC if words.is_aligned() && !words.is_null() => {
            // SAFETY: the caller's promise: a fabric handle.
            Some(key_of(unsafe { core::slice::from_raw_parts(words, 8) }))
        }
        _ => None,
    }
}

/// `cuMemExportToShareableHandle(shareable, handle, kind, flags)`.
pub(crate) unsafe fn export(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let (words, memory) = (arguments.pointer::<u64>(0), folded(arguments.word(1) as u64));
    // SAFETY: the caller's arguments; what the driver has written is read.
    let key = unsafe {
        let code = arguments.call(entry);
        if code != SUCCESS {
            return code;
        }
        key_of_handle(arguments.half(2), words.cast::<u32>().read_unaligned(), words)
    };
    let _turn = PROCESS.physical.lock();
    if let Some(bytes) = note(Kind::Physical, memory) {
        let key = key.unwrap_or_else(|| key_of(&[bytes]));
        if let Some(place) = PROCESS.shares.hold(account, key, Some(bytes)) {
            erase(Kind::Physical, memory);
            write(Kind::Place, memory, place as u64 + 1);
            account.release(bytes);
        }
    }
    SUCCESS
}

/// `cuMemImportFromShareableHandle(handle, shareable, kind)`.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    // SAFETY: the caller's arguments; a descriptor is passed as the word itself.
    let key = unsafe { key_of_handle(arguments.half(2), arguments.half(1), arguments.pointer(1)) };
    // Before the call: whoever holds it may let go of it at any moment.
    let joined = key.and_then(|key| PROCESS.shares.hold(account, key, None));
    // SAFETY: the caller's arguments; what the driver has written is read.
    let (code, memory) = unsafe {
        let code = arguments.call(entry);
        (code, if code == SUCCESS { folded(arguments.written(0)) } else { 0 })
    };
    let _turn = PROCESS.physical.lock();
    if code != SUCCESS || retain(memory) {
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

/// `CUarrayMapInfo`, as far as it matters: what is mapped or unmapped where.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Tile {
    resource_kind: u32,
    resource: u64,
    part_kind: u32,
    part: [u64; 4],
    operation: u32,
    memory_kind: u32,
    memory: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Tile>() == 96);

/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: u32 = 1;

/// `cuMemMapArrayAsync(list, count, stream)`.
pub(crate) unsafe fn map_array(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let count = if code == SUCCESS { arguments.half(1) } else { 0 };
    for index in 0..count as usize {
        // SAFETY: the driver has accepted a list of that length.
        let tile = unsafe { arguments.pointer::<Tile>(0).add(index).read_unaligned() };
        let [a, b, c, d] = tile.part;
        // Not among the addresses of programs, which have fewer bits.
        let place = key_of(&[tile.resource, a, b, c, d]) | EXTERNAL;
        // What lay there is there no more.
        if let Some(memory) = erase(Kind::Mapping, place) {
            let_go(account, memory);
        }
        let memory = folded(tile.memory);
        if tile.operation == MAP && retain(memory) {
            let piece = Piece { bytes: memory, owner: Owner::array(number_of(tile.resource)) };
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
