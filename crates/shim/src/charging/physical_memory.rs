//! Physical memory, which lives for as long as there is a handle of it or a mapping: so does its charge.

use gpupool_nvidia::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, CUDA_SUCCESS, CUmemLocation,
    CUresult,
};

use crate::lease;
use crate::real::arguments::Arguments;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::shared_memory::SharedPlace;
use crate::state::tables::keys::PhysicalMemory;
use crate::state::tables::values::{Bytes, References};
use crate::table::Entry;

/// Whether memory at a location takes memory of the card: all of it or a part of it.
pub(crate) const fn is_on_device(location: CUmemLocation) -> bool {
    matches!(location.r#type, CU_MEM_LOCATION_TYPE_DEVICE | CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
}

/// Memory gets to be known by its first handle: it is charged at a place of the ledger, or to this process.
pub(crate) fn first(memory: PhysicalMemory, place: Option<SharedPlace>, bytes: u64) {
    let tables = &PROCESS.tables;
    tables.references.set(memory, References(1));
    match place {
        Some(place) => tables.shared_places.set(memory, place),
        None => tables.physical_bytes.set(memory, Bytes(bytes)),
    }
}

/// One handle or mapping more. Whether the memory is known.
pub(crate) fn retain(memory: PhysicalMemory) -> bool {
    let references = PROCESS.tables.references.get(memory);
    if let Some(References(count)) = references {
        PROCESS.tables.references.set(memory, References(count + 1));
    }
    references.is_some()
}

/// One handle or mapping less; with the last the charge goes.
#[inline(never)]
pub(crate) fn let_go(account: &Account, memory: PhysicalMemory) {
    let tables = &PROCESS.tables;
    match tables.references.remove(memory) {
        None => {}
        Some(References(0 | 1)) => {
            tables.imported_keys.remove(memory);
            leave(account, tables.shared_places.remove(memory));
            account.release(tables.physical_bytes.remove(memory).map_or(0, |bytes| bytes.0));
        }
        Some(References(count)) => tables.references.set(memory, References(count - 1)),
    }
}

/// Leaves the place in the ledger where memory was charged, if there is one.
pub(crate) fn leave(account: &Account, place: Option<SharedPlace>) {
    if let Some(place) = place {
        PROCESS.shared_memory.leave(account, place);
    }
}

/// Ends what a handle stands for: `cuMemRelease`, `cuArrayDestroy` and the like. What is remembered of it is let go of
/// by `forget`, once the driver has ended it.
///
/// # Safety
/// `arguments` are those of a call of the row's function, the first of which is a handle or an address on the card;
/// pointers among the others are null or the program's, as NVIDIA documents them.
pub(crate) unsafe fn end(
    entry: Entry,
    arguments: &Arguments,
    account: &Account,
    forget: fn(&Account, u64),
) -> CUresult {
    // Held over the call, or another thread could be given the handle anew in between.
    let _turn = PROCESS.physical.take();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != CUDA_SUCCESS {
        return code;
    }
    forget(account, arguments.word(0) as u64);
    if account.slot().contexts() == 0 {
        lease::release_if_idle();
    }
    code
}
