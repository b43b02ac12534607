//! Memory that one process lets another open: charged once for both, for as long as either has it.
//!
//! Who is given a handle of its memory for others moves its charge beside the slots, under the handle's bytes; who
//! opens one looks for it there. What is opened from outside the pod is its maker's, and is not charged.

use gpupool_nvidia::cuda::{CUDA_SUCCESS, CUresult};

use crate::charging::physical_memory::{self, first, leave, let_go, retain};
use crate::real::arguments::Arguments;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::shared_memory::key_of;
use crate::state::tables::keys::{Address, PhysicalMemory};
use crate::state::tables::values::{Allocation, ExportedAllocation, Owner};
use crate::table::Entry;

/// `cuIpcGetMemHandle(handle, address)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuIpcGetMemHandle`: the first is null or points to a
/// `CUipcMemHandle`, 64 bytes, that may be written.
pub(crate) unsafe fn get(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let address = Address(arguments.word(1) as u64);
    // SAFETY: the caller's arguments; what the driver has written is read.
    let key = unsafe {
        let code = arguments.call(entry);
        if code != CUDA_SUCCESS {
            return code;
        }
        key_of(&arguments.pointer::<[u64; 8]>(0).read_unaligned())
    };
    let tables = &PROCESS.tables;
    if let Some(piece) = tables.allocations.get(address).filter(|piece| piece.bytes != 0)
        && let Some(place) = PROCESS.shared_memory.hold(account, key, Some(piece.bytes))
    {
        tables.exported.set(address, ExportedAllocation { place, owner: piece.owner });
        tables.allocations.set(address, Allocation { bytes: 0, ..piece });
        account.release(piece.bytes);
    }
    CUDA_SUCCESS
}

/// Memory that others may have opened was freed.
#[cold]
#[inline(never)]
pub(crate) fn freed(account: &Account, address: Address) {
    let exported = PROCESS.tables.exported.remove(address);
    leave(account, exported.map(|exported| exported.place));
}

/// The context at a place is gone, and with it the memory in it that others may have opened.
pub(crate) fn forget(account: &Account, context: Option<usize>) {
    let Some(context) = context else { return };
    while let Some(exported) = PROCESS.tables.exported.take_one(Owner::context(context)) {
        PROCESS.shared_memory.leave(account, exported.place);
    }
}

/// `cuIpcOpenMemHandle(address, handle, flags)`: the handle is passed as it is.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuIpcOpenMemHandle`: the first is null or points to a
/// `CUdeviceptr`, 8 bytes, that may be written; the caller's stack holds the handle, 64 bytes.
pub(crate) unsafe fn open(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // Before the call: whoever holds it may let go of it at any moment.
    let joined = PROCESS.shared_memory.hold(account, key_of(&arguments.on_stack()), None);
    // SAFETY: the caller's arguments; what the driver has written is read.
    let (code, opened) = unsafe {
        let code = arguments.call(entry);
        (code, PhysicalMemory::opened(if code == CUDA_SUCCESS { arguments.written(0) } else { 0 }))
    };
    let _turn = PROCESS.physical.take();
    // Opened again, it has to be closed as often.
    if code != CUDA_SUCCESS || retain(opened) {
        leave(account, joined);
    } else if joined.is_some() {
        first(opened, joined, 0);
    }
    code
}

/// `cuIpcCloseMemHandle`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuIpcCloseMemHandle`: an address on the card, which is not
/// followed here.
pub(crate) unsafe fn close(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        physical_memory::end(entry, arguments, account, |account, address| {
            let_go(account, PhysicalMemory::opened(address));
        })
    }
}
