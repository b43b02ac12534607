//! Physical memory, which lives for as long as there is a handle of it or a mapping: so does its charge.

use gpupool_nvidia::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, CUDA_SUCCESS, CUmemLocation,
    CUresult,
};

use crate::lease;
use crate::real::arguments::Arguments;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::pointers::{Allocation, Kind, Owner};
use crate::table::Entry;

/// Whether memory at a location takes memory of the card: all of it or a part of it.
pub(crate) const fn is_on_device(location: CUmemLocation) -> bool {
    matches!(location.r#type, CU_MEM_LOCATION_TYPE_DEVICE | CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
}

/// What physical memory is known by here: its handle in 48 bits, so that it can be kept as a note, and a bit for memory
/// from elsewhere.
pub(crate) type Physical = u64;

/// Tells memory of another API, and memory that another process has let this one open, from the driver's own.
pub(crate) const EXTERNAL: u64 = 1 << 56;
pub(crate) const OPENED: u64 = 1 << 57;

/// The 48 bits of a handle. Handles are addresses or numbers with the same upper bits, of which no two become one.
pub(crate) fn folded(handle: u64) -> Physical {
    (handle ^ (handle >> 44)) & ((1 << 48) - 1)
}

/// A note about a thing of a kind.
pub(crate) fn note(kind: Kind, handle: u64) -> Option<u64> {
    PROCESS.pointers.get(kind.of(handle)).map(|piece| piece.bytes)
}

/// Writes one. Without memory for it the note is lost, and what it is about stays charged.
pub(crate) fn write(kind: Kind, handle: u64, number: u64) {
    let _ = PROCESS.pointers.insert(kind.of(handle), Allocation::note(number));
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
pub(crate) fn let_go(account: &Account, memory: Physical) {
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
        PROCESS.shared_memory.leave(account, place);
    }
}

/// Ends what a handle stands for: `cuMemRelease`, `cuArrayDestroy` and the like.
pub(crate) unsafe fn end(entry: Entry, arguments: &Arguments, account: &Account, kind: Kind) -> CUresult {
    let handle = arguments.word(0) as u64;
    // Held over the call, or another thread could be given the handle anew in between.
    let _turn = PROCESS.physical.lock();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != CUDA_SUCCESS {
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
        lease::release_if_idle();
    }
    code
}
