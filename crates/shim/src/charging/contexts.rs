//! Which context memory belongs to, and the primary one, which may turn up unannounced.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use gpupool_nvidia::cuda::CUDA_SUCCESS;

use crate::lease;
use crate::real::call;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::tables::values::Owner;
use crate::table::Entry;

/// A handle of the driver.
pub(crate) type Context = *mut c_void;

/// The number of a handle.
pub(crate) fn word(context: Context) -> u64 {
    context.expose_provenance() as u64
}

/// The current context of this thread; 0 where there is none.
pub(crate) fn current() -> u64 {
    let mut context: Context = core::ptr::null_mut();
    // SAFETY: a place for the answer.
    let code = unsafe { call!(Entry::cuCtxGetCurrent, &raw mut context => *mut Context) };
    if code == CUDA_SUCCESS { word(context) } else { 0 }
}

/// Whose memory an allocation on this thread is: the current context's.
pub(crate) fn current_owner(account: &Account) -> Owner {
    let context = current();
    if context == 0 {
        return Owner::UNKNOWN;
    }
    let place = PROCESS.contexts.place(context).or_else(|| {
        note_primary(account);
        PROCESS.contexts.place(context)
    });
    place.map_or(Owner::UNKNOWN, Owner::context)
}

/// NVIDIA's runtime library makes the primary context through tables of its own, and green contexts bring it along, so
/// it may turn up unannounced. It is charged then, over the limit too: the driver has it already. Bytes charged.
#[cold]
#[inline(never)]
pub(crate) fn note_primary(account: &Account) -> u64 {
    let contexts = &PROCESS.contexts;
    // Who has the turn notes it, or is in the middle of making it, and may wait for this very thread.
    let Some(_turn) = contexts.primary.try_take() else { return 0 };
    if contexts.primary_handle.load(Ordering::Acquire) != 0 || !lease::primary_context_is_active() {
        return 0;
    }
    let mut primary: Context = core::ptr::null_mut();
    // SAFETY: a place for the answer; the context lives, so this only counts up and down.
    unsafe {
        if call!(Entry::cuDevicePrimaryCtxRetain, &raw mut primary => *mut Context, 0 => c_int)
            == CUDA_SUCCESS
        {
            call!(Entry::cuDevicePrimaryCtxRelease_v2, 0 => c_int);
        }
    }
    let handle = word(primary);
    if handle == 0 {
        return 0;
    }
    let bytes = account.context_bytes();
    account.charge_anyway(bytes);
    account.slot().context_made();
    contexts.add(handle, bytes);
    contexts.primary_handle.store(handle, Ordering::Release);
    bytes
}
