//! Memory that one process lets another open: charged once for both, for as long as either has it.
//!
//! Who is given a handle of its memory for others moves its charge beside the slots, under the handle's bytes; who
//! opens one looks for it there. What is opened from outside the pod is its maker's, and is not charged.

use gpupool_nvidia::cuda::{CUDA_SUCCESS, CUresult};

use crate::charging::physical_memory::{self, OPENED, erase, first, folded, leave, retain};
use crate::real::arguments::Arguments;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::pointers::{Allocation, Kind, Owner};
use crate::state::shared_memory::key_of;
use crate::table::Entry;

/// `cuIpcGetMemHandle(handle, address)`.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn get(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let address = arguments.word(1) as u64;
    // SAFETY: the caller's arguments; what the driver has written is read.
    let key = unsafe {
        let code = arguments.call(entry);
        if code != CUDA_SUCCESS {
            return code;
        }
        key_of(&arguments.pointer::<[u64; 8]>(0).read_unaligned())
    };
    let pointers = &PROCESS.pointers;
    if let Some(piece) = pointers.get(address).filter(|piece| piece.bytes != 0)
        && let Some(place) = PROCESS.shared_memory.hold(account, key, Some(piece.bytes))
    {
        let shared = Allocation { bytes: place as u64 + 1, owner: piece.owner.shared() };
        let _ = pointers.insert(Kind::Place.of(address), shared);
        let _ = pointers.insert(address, Allocation { bytes: 0, ..piece });
        account.release(piece.bytes);
    }
    CUDA_SUCCESS
}

/// Memory that others may have opened was freed.
#[cold]
#[inline(never)]
pub(crate) fn freed(account: &Account, address: u64) {
    leave(account, erase(Kind::Place, address));
}

/// The context at a place is gone, and with it the memory in it that others may have opened.
pub(crate) fn forget(account: &Account, context: Option<usize>) {
    let Some(context) = context else { return };
    while let Some(piece) = PROCESS.pointers.take_one(Owner::context(context).shared()) {
        leave(account, Some(piece.bytes));
    }
}

/// `cuIpcOpenMemHandle(address, handle, flags)`: the handle is passed as it is.
pub(crate) unsafe fn open(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // Before the call: whoever holds it may let go of it at any moment.
    let joined = PROCESS.shared_memory.hold(account, key_of(&arguments.on_stack()), None);
    // SAFETY: the caller's arguments; what the driver has written is read.
    let (code, opened) = unsafe {
        let code = arguments.call(entry);
        (code, if code == CUDA_SUCCESS { folded(arguments.written(0)) | OPENED } else { 0 })
    };
    let _turn = PROCESS.physical.lock();
    // Opened again, it has to be closed as often.
    if code != CUDA_SUCCESS || retain(opened) {
        leave(account, joined.map(|place| place as u64 + 1));
    } else if joined.is_some() {
        first(opened, joined, 0);
    }
    code
}

/// `cuIpcCloseMemHandle`.
///
/// # Safety
/// `arguments` are those of a call of the row's function: pointers among them are the program's, of the types and lengths
/// that NVIDIA documents for it, or null.
pub(crate) unsafe fn close(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { physical_memory::end(entry, arguments, account, Kind::Opened) }
}
