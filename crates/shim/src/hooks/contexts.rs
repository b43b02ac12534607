//! Contexts: each takes device memory that nobody asks for by size, and memory dies with its context.
//!
//! A context is charged what the agent says one costs. While a process has a context its pod's lease lasts; when the
//! last one is gone and nothing is charged any more, the lease is given back.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use gpupool_nvidia::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult};

use super::ipc;
use crate::charging::contexts::{Context, word};
use crate::charging::memory_pools;
use crate::lease::{self, Access};
use crate::real::arguments::Arguments;
use crate::real::call;
use crate::state::account::{Account, Charge};
use crate::state::tables::values::Owner;
use crate::state::{self, PROCESS};
use crate::stop;
use crate::table::Entry;

/// Announces a context; nothing where it need not be charged, a code where it cannot be made. Unless that is a code,
/// [`finish`] must follow.
#[inline(never)]
fn begin() -> Result<Option<Charge>, CUresult> {
    lease::context_is_being_made();
    let charge = match lease::ensure() {
        Access::Uncharged => Ok(None),
        Access::Denied(code) => Err(code),
        Access::Leased(account) => {
            lease::look_after_connection();
            let reservation =
                memory_pools::reserve(&account, account.context_bytes()).ok_or(CUDA_ERROR_OUT_OF_MEMORY);
            reservation.map(|reservation| Some(Charge { account, reservation }))
        }
    };
    if charge.is_err() {
        lease::context_was_made();
        lease::release_if_idle();
    }
    charge
}

/// Charges the context that the driver has written to `handle`, if it succeeded (`code`).
///
/// # Safety
/// `handle` is null, or the driver has written a `CUcontext`, 8 bytes, there if `code` is success.
#[inline(never)]
unsafe fn finish(charge: Option<Charge>, code: CUresult, handle: *const Context) -> CUresult {
    if let Some(Charge { account, reservation }) = charge {
        if code != CUDA_SUCCESS || handle.is_null() {
            reservation.cancel();
        } else {
            // SAFETY: the driver has just written it.
            let handle = word(unsafe { *handle });
            let bytes = reservation.bytes();
            stop::at(b"called");
            account.slot().context_made();
            reservation.commit(bytes);
            stop::at(b"committed");
            PROCESS.contexts.add(handle, bytes);
        }
    }
    lease::context_was_made();
    if code != CUDA_SUCCESS {
        lease::release_if_idle();
    }
    code
}

/// Begins a context, or answers at once.
macro_rules! begin {
    () => {
        match begin() {
            Ok(charge) => charge,
            Err(code) => return code,
        }
    };
}

/// A context is gone: so are its charge and its memory's.
fn gone(handle: u64) {
    let Some(account) = state::account() else { return };
    ipc::forget(&account, PROCESS.contexts.place(handle));
    if let Some(bytes) = PROCESS.contexts.remove(handle, &PROCESS.tables) {
        account.release(bytes);
        account.slot().context_gone();
    }
    memory_pools::settle_all();
    lease::release_if_idle();
}

/// `cuCtxCreate` in all its forms: the context comes first.
///
/// # Safety
/// `arguments` are those of a call of the row's function, whose pointers are null or the program's, as NVIDIA documents
/// them. Read is the first: null, or to a `CUcontext`, 8 bytes, which the driver writes.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let charge = begin!();
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        finish(charge, code, arguments.pointer(0))
    }
}

/// `cuCtxDestroy` in both its forms, and `cuCtxDetach`: of a context that nobody attached to a second time, which the
/// driver has not allowed for many years, that is the end.
///
/// # Safety
/// `arguments` are those of a call of the row's function: a `CUcontext`, which is not followed here.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code == CUDA_SUCCESS {
        gone(arguments.word(0) as u64);
    }
    code
}

/// `cuDevicePrimaryCtxRetain`: the first makes the context, the others count.
///
/// # Safety
/// `context` is null or points to a `CUcontext`, 8 bytes, that may be written.
pub(crate) unsafe extern "C" fn retain_primary(context: *mut Context, device: c_int) -> CUresult {
    let contexts = &PROCESS.contexts;
    // The first lease starts the driver, and whatever is loaded into that may want the primary context.
    if contexts.primary_handle.load(Ordering::Acquire) == 0
        && let Access::Denied(code) = lease::ensure()
    {
        return code;
    }
    let _turn = contexts.primary.take();
    let known = contexts.primary_handle.load(Ordering::Acquire) != 0;
    let charge = if known { None } else { begin!() };
    // SAFETY: the caller's arguments; what the driver has written is read.
    unsafe {
        let code = call!(Entry::cuDevicePrimaryCtxRetain, context => *mut Context, device => c_int);
        if known {
            return code;
        }
        finish(charge, code, context);
        if code == CUDA_SUCCESS && !context.is_null() && contexts.place(word(*context)).is_some() {
            contexts.primary_handle.store(word(*context), Ordering::Release);
        }
        code
    }
}

/// After a release or reset that worked: if the context has ended, so has its charge. A reset that leaves it alive
/// has still freed the memory in it.
fn primary_may_be_gone(memory_is_gone: bool) {
    let contexts = &PROCESS.contexts;
    let handle = contexts.primary_handle.load(Ordering::Acquire);
    if handle == 0 {
        return;
    }
    if !lease::primary_context_is_active() {
        contexts.primary_handle.store(0, Ordering::Release);
        gone(handle);
    } else if memory_is_gone && let (Some(account), Some(place)) = (state::account(), contexts.place(handle))
    {
        ipc::forget(&account, Some(place));
        account.release(PROCESS.tables.remove_owner(Owner::context(place)));
        memory_pools::settle_all();
    }
}

macro_rules! end_primary {
    ($name:ident, $entry:ident, $memory_is_gone:expr) => {
        /// Releases or resets the primary context.
        ///
        /// # Safety
        /// No argument is a pointer. The program does not use what the context had any more.
        pub(crate) unsafe extern "C" fn $name(device: c_int) -> CUresult {
            let _turn = PROCESS.contexts.primary.take();
            PROCESS.launch_costs.abandon();
            // SAFETY: the caller's arguments.
            let code = unsafe { call!(Entry::$entry, device => c_int) };
            if code == CUDA_SUCCESS {
                primary_may_be_gone($memory_is_gone);
            }
            code
        }
    };
}

end_primary!(release_primary, cuDevicePrimaryCtxRelease, false);
end_primary!(release_primary_v2, cuDevicePrimaryCtxRelease_v2, false);
end_primary!(reset_primary, cuDevicePrimaryCtxReset, true);
end_primary!(reset_primary_v2, cuDevicePrimaryCtxReset_v2, true);
