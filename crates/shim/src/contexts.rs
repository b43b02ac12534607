//! Contexts: each takes device memory that nobody asks for by size, and memory dies with its context.
//!
//! A context is charged what the agent says one costs. While a process has a context its pod's lease lasts; when the
//! last one is gone and nothing is charged any more, the lease is given back.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::account::{Account, Charge};
use crate::arguments::Arguments;
use crate::code::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::ipc;
use crate::lock::Lock;
use crate::pointers::Owner;
use crate::pools;
use crate::process::{self, PROCESS, Way};
use crate::real::call;
use crate::stop;
use crate::table::Entry;

/// Most contexts that are told apart. Memory allocated in any beyond is charged until it is freed one by one.
const MOST: usize = 64;

/// A handle of the driver.
type Context = *mut c_void;

/// The contexts of this process.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// By place; 0 for a free place.
    handles: [AtomicU64; MOST],
    charges: [AtomicU64; MOST],
    /// Held while the primary context may begin or end.
    primary: Lock<()>,
    /// Handle of the primary context while it is charged.
    primary_handle: AtomicU64,
}

impl Contexts {
    pub(crate) const fn new() -> Self {
        Self {
            handles: [const { AtomicU64::new(0) }; MOST],
            charges: [const { AtomicU64::new(0) }; MOST],
            primary: Lock::new(()),
            primary_handle: AtomicU64::new(0),
        }
    }

    fn place(&self, handle: u64) -> Option<usize> {
        self.handles.iter().position(|known| known.load(Ordering::Acquire) == handle)
    }

    /// Remembers a context and what it is charged.
    fn add(&self, handle: u64, charge: u64) {
        for (known, charged) in self.handles.iter().zip(&self.charges) {
            if known.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                charged.store(charge, Ordering::Release);
                return;
            }
        }
    }

    /// Forgets a context: what it and the memory in it were charged, if it was known.
    fn remove(&self, handle: u64) -> Option<u64> {
        let place = self.place(handle)?;
        let charge = self.charges.get(place)?.swap(0, Ordering::AcqRel);
        let memory = PROCESS.pointers.remove_owner(Owner::context(place));
        self.handles.get(place)?.store(0, Ordering::Release);
        Some(charge + memory)
    }
}

/// The number of a handle.
fn word(context: Context) -> u64 {
    context.expose_provenance() as u64
}

/// The current context of this thread; 0 where there is none.
pub(crate) fn current() -> u64 {
    let mut context: Context = core::ptr::null_mut();
    // SAFETY: a place for the answer.
    let code = unsafe { call!(Entry::cuCtxGetCurrent, &raw mut context => *mut Context) };
    if code == SUCCESS { word(context) } else { 0 }
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
    let _turn = contexts.primary.lock();
    if contexts.primary_handle.load(Ordering::Acquire) != 0 || !primary_is_active() {
        return 0;
    }
    let mut primary: Context = core::ptr::null_mut();
    // SAFETY: a place for the answer; the context lives, so this only counts up and down.
    unsafe {
        if call!(Entry::cuDevicePrimaryCtxRetain, &raw mut primary => *mut Context, 0 => c_int) == SUCCESS {
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

/// Announces a context; nothing where it need not be charged, a code where it cannot be made. Unless that is a code,
/// [`finish`] must follow.
#[inline(never)]
fn begin() -> Result<Option<Charge>, CuResult> {
    process::making();
    let charge = match process::lease() {
        Way::Plain => Ok(None),
        Way::Barred(code) => Err(code),
        Way::Leased(account) => {
            process::look_after_connection();
            let reservation = pools::reserve(&account, account.context_bytes()).ok_or(OUT_OF_MEMORY);
            reservation.map(|reservation| Some(Charge { account, reservation }))
        }
    };
    if charge.is_err() {
        process::made();
        process::release_if_idle();
    }
    charge
}

/// Charges the context that the driver has written to `handle`, if it succeeded (`code`).
#[inline(never)]
unsafe fn finish(charge: Option<Charge>, code: CuResult, handle: *const Context) -> CuResult {
    if let Some(Charge { account, reservation }) = charge {
        if code != SUCCESS || handle.is_null() {
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
    process::made();
    if code != SUCCESS {
        process::release_if_idle();
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
    let Some(account) = process::account() else { return };
    ipc::forget(&account, PROCESS.contexts.place(handle));
    if let Some(bytes) = PROCESS.contexts.remove(handle) {
        account.release(bytes);
        account.slot().context_gone();
    }
    pools::settle_all();
    process::release_if_idle();
}

/// `cuCtxCreate` in all its forms: the context comes first.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments) -> CuResult {
    let charge = begin!();
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        finish(charge, code, arguments.pointer(0))
    }
}

/// `cuCtxDestroy` in both its forms, and `cuCtxDetach`: of a context that nobody attached to a second time, which the
/// driver has not allowed for many years, that is the end.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments) -> CuResult {
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code == SUCCESS {
        gone(arguments.word(0) as u64);
    }
    code
}

/// `cuDevicePrimaryCtxRetain`: the first makes the context, the others count.
pub(crate) unsafe extern "C" fn retain_primary(context: *mut Context, device: c_int) -> CuResult {
    let contexts = &PROCESS.contexts;
    let _turn = contexts.primary.lock();
    let known = contexts.primary_handle.load(Ordering::Acquire) != 0;
    let charge = if known { None } else { begin!() };
    // SAFETY: the caller's arguments; what the driver has written is read.
    unsafe {
        let code = call!(Entry::cuDevicePrimaryCtxRetain, context => *mut Context, device => c_int);
        if known {
            return code;
        }
        finish(charge, code, context);
        if code == SUCCESS && !context.is_null() && contexts.place(word(*context)).is_some() {
            contexts.primary_handle.store(word(*context), Ordering::Release);
        }
        code
    }
}

/// Whether the primary context of the one device lives.
pub(crate) fn primary_is_active() -> bool {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: places for the answers.
    let code = unsafe {
        call!(Entry::cuDevicePrimaryCtxGetState, 0 => c_int, &raw mut flags => *mut c_uint,
            &raw mut active => *mut c_int)
    };
    code == SUCCESS && active != 0
}

/// After a release or reset that worked: if the context has ended, so has its charge. A reset that leaves it alive
/// has still freed the memory in it.
fn primary_may_be_gone(memory_is_gone: bool) {
    let contexts = &PROCESS.contexts;
    let handle = contexts.primary_handle.load(Ordering::Acquire);
    if handle == 0 {
        return;
    }
    if !primary_is_active() {
        contexts.primary_handle.store(0, Ordering::Release);
        gone(handle);
    } else if memory_is_gone
        && let (Some(account), Some(place)) = (process::account(), contexts.place(handle))
    {
        ipc::forget(&account, Some(place));
        account.release(PROCESS.pointers.remove_owner(Owner::context(place)));
        pools::settle_all();
    }
}

macro_rules! end_primary {
    ($name:ident, $entry:ident, $memory_is_gone:expr) => {
        pub(crate) unsafe extern "C" fn $name(device: c_int) -> CuResult {
            let _turn = PROCESS.contexts.primary.lock();
            PROCESS.costs.abandon();
            // SAFETY: the caller's arguments.
            let code = unsafe { call!(Entry::$entry, device => c_int) };
            if code == SUCCESS {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_found_until_it_is_gone_and_its_place_is_used_again() {
        let contexts = Contexts::new();
        contexts.add(10, 256);
        contexts.add(20, 256);
        assert_eq!((contexts.place(10), contexts.place(20), contexts.place(30)), (Some(0), Some(1), None));
        assert_eq!(contexts.remove(10), Some(256));
        assert_eq!(contexts.remove(10), None);
        contexts.add(30, 256);
        assert_eq!(contexts.place(30), Some(0));
    }

    #[test]
    fn contexts_beyond_the_list_are_merely_not_told_apart() {
        let contexts = Contexts::new();
        for handle in 1..=100 {
            contexts.add(handle, 1);
        }
        assert_eq!((contexts.place(64), contexts.place(65)), (Some(63), None));
    }
}
