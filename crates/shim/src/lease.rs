//! The lease: waiting for it before the first use of a card, holding it while there is something to hold, giving it
//! back.
//!
//! Knows when a lease is taken and when it ends; what is done under one is the hooks' business.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering};

use gpupool_nvidia::cuda::{
    CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult,
};
use gpupool_wire::message::{RefusalReason, Release};
use zerocopy::IntoBytes;

use crate::agent::connection::Connection;
use crate::agent::conversation::{self, Failure, Retry};
use crate::real::call;
use crate::state::account::Account;
use crate::state::{self, Mode, PROCESS, ProcessStage, account, close_row, mode, set_stage, stage};
use crate::table::{Class, Entry};
use crate::text::Text;
use crate::{environment, sys};

/// A running program looks after its connection at most this often, in milliseconds.
const CONNECTION_CHECK_EVERY_MS: u64 = 1_000;

/// How often other threads look whether the driver has started, before they go on without: five seconds, at five looks a
/// millisecond.
const LONGEST_START: u32 = 25_000;

/// Whether the real driver was initialised, by this process or before it was forked: not wiped, as the driver's own
/// state is not.
static DRIVER_STARTED: AtomicU32 = AtomicU32::new(0);

/// How a call may go on.
pub(crate) enum Access {
    /// To the real driver, uncharged: no pool here, or the program has not called `cuInit`, which the driver will say.
    Uncharged,
    /// To the real driver, under a lease.
    Leased(Account),
    /// Not at all; the code is the answer.
    Denied(CUresult),
}

/// Takes care that the process holds a lease, waiting for it where it must.
#[inline]
pub(crate) fn ensure() -> Access {
    if PROCESS.held.load(Ordering::SeqCst) == 0 {
        if mode() == Mode::NoPool || stage() < ProcessStage::Initialised {
            return Access::Uncharged;
        }
        if let Err(code) = take_lease() {
            return Access::Denied(code);
        }
    }
    account().map_or(Access::Uncharged, Access::Leased)
}

/// Makes the process known to the agent.
pub(crate) fn introduce(retry: Retry) -> Result<(), CUresult> {
    if stage() >= ProcessStage::Introduced {
        return Ok(());
    }
    refusal()?;
    let mut connection = match retry {
        Retry::UntilConnected => PROCESS.connection.lock(),
        // Who was not answered a moment ago will not be now; and somebody else may be at it for long.
        Retry::Once if !connection_check_is_due() => return Err(CUDA_ERROR_NO_DEVICE),
        Retry::Once => PROCESS.connection.try_lock().ok_or(CUDA_ERROR_NO_DEVICE)?,
    };
    if stage() >= ProcessStage::Introduced {
        return Ok(());
    }
    refusal()?;
    let me = connection.me;
    match conversation::introduce(&mut PROCESS.link(&mut connection), &me, retry) {
        Ok(()) => {
            set_stage(ProcessStage::Introduced);
            Ok(())
        }
        Err(Failure::Refused(RefusalReason::Unheld)) if retry == Retry::UntilConnected => {
            state::leave_pool();
            Err(CUDA_ERROR_NO_DEVICE)
        }
        Err(Failure::Refused(_)) if retry == Retry::UntilConnected => {
            PROCESS.refused.store(CUDA_ERROR_NO_DEVICE, Ordering::Release);
            Err(CUDA_ERROR_NO_DEVICE)
        }
        Err(_) => Err(CUDA_ERROR_NO_DEVICE),
    }
}

fn refusal() -> Result<(), CUresult> {
    match PROCESS.refused.load(Ordering::Acquire) {
        CUDA_SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// In a child of a process whose real driver was initialised, the driver's own word on whether it can be used here:
/// NVIDIA's cannot.
pub(crate) fn driver_survived_fork() -> Result<(), CUresult> {
    if DRIVER_STARTED.load(Ordering::Acquire) == 0 || stage() == ProcessStage::Granted {
        return Ok(());
    }
    // SAFETY: as any caller of cuInit.
    match unsafe { call!(Entry::cuInit, 0 => u32) } {
        CUDA_SUCCESS => Ok(()),
        code => Err(code),
    }
}

#[cold]
#[inline(never)]
fn take_lease() -> Result<(), CUresult> {
    let mut looks = 0;
    let mut connection = loop {
        let connection = PROCESS.connection.lock();
        if PROCESS.held.load(Ordering::SeqCst) != 0 || state::is_in_the_start() {
            return Ok(());
        }
        let starter = PROCESS.starter.load(Ordering::SeqCst);
        if starter == 0 {
            break connection;
        }
        drop(connection);
        sys::sleep_microseconds(200);
        looks += 1;
        if looks == LONGEST_START {
            // The start may be waiting for this very thread: what is asked is asked of the driver from now on.
            let anybody = state::ANYBODY;
            let _ = PROCESS.starter.compare_exchange(starter, anybody, Ordering::SeqCst, Ordering::SeqCst);
        }
    };
    let me = connection.me;
    let grant = conversation::acquire(&mut PROCESS.link(&mut connection), &me)
        .map_err(|_| CUDA_ERROR_DEVICE_UNAVAILABLE)?;
    connection.me.lease = grant.lease;
    connection.me.card = grant.card;
    // What was owed for an older lease would now end this one.
    connection.owes_release = false;
    if stage() != ProcessStage::Granted {
        PROCESS.starter.store(sys::this_thread(), Ordering::SeqCst);
        // Profilers are loaded into the driver's start and call it from there.
        drop(connection);
        let code = initialise_on(&grant.card);
        connection = PROCESS.connection.lock();
        if code == CUDA_SUCCESS {
            set_stage(ProcessStage::Granted);
        }
        PROCESS.starter.store(0, Ordering::SeqCst);
        if code != CUDA_SUCCESS {
            end_lease(&mut connection);
            return Err(code);
        }
    }
    PROCESS.held.store(1, Ordering::SeqCst);
    Ok(())
}

/// Calls the real `cuInit` so that the driver sees this card and no other.
fn initialise_on(card: &[u8; 16]) -> CUresult {
    let mut setting = Text::new();
    setting.add(b"CUDA_VISIBLE_DEVICES=").add_uuid(card);
    let name = b"CUDA_VISIBLE_DEVICES";
    // SAFETY: as any caller of cuInit.
    let init = || unsafe { call!(Entry::cuInit, 0 => u32) };
    let code = environment::with_variable(name, setting.as_bytes(), init).unwrap_or(CUDA_ERROR_OUT_OF_MEMORY);
    if code == CUDA_SUCCESS {
        DRIVER_STARTED.store(1, Ordering::Release);
    }
    code
}

#[inline(never)]
fn end_lease(connection: &mut Connection) {
    connection.me.lease = 0;
    connection.owes_release = !connection.send(Release::new().as_bytes());
}

/// A context is being made: no release until [`context_was_made`].
pub(crate) fn context_is_being_made() {
    PROCESS.contexts_being_made.fetch_add(1, Ordering::SeqCst);
}

/// It was made, or not.
pub(crate) fn context_was_made() {
    PROCESS.contexts_being_made.fetch_sub(1, Ordering::SeqCst);
}

/// Gives the lease back if this process has no context and holds no memory any more.
pub(crate) fn release_if_idle() {
    let idle = || {
        PROCESS.contexts_being_made.load(Ordering::SeqCst) == 0
            && PROCESS.shared_memory.none()
            && account().is_some_and(|account| account.slot().is_empty())
    };
    if PROCESS.held.load(Ordering::SeqCst) == 0 || !idle() || primary_context_is_active() {
        return;
    }
    let mut connection = PROCESS.connection.lock();
    PROCESS.held.store(0, Ordering::SeqCst);
    if !idle() || connection.me.lease == 0 {
        PROCESS.held.store(u32::from(connection.me.lease != 0), Ordering::SeqCst);
        return;
    }
    for entry in Entry::all() {
        if entry.class() == Class::NeedsLease {
            close_row(entry);
        }
    }
    end_lease(&mut connection);
}

/// Whether it is time to try the connection again; true once a second at most.
fn connection_check_is_due() -> bool {
    let now = sys::coarse_milliseconds();
    let last = PROCESS.last_connection_check.load(Ordering::Relaxed);
    now.wrapping_sub(last) >= CONNECTION_CHECK_EVERY_MS
        && PROCESS
            .last_connection_check
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}

/// Looks after the connection of a process with a lease, at most once a second: an agent that was restarted learns
/// from it that the lease is in use.
#[inline]
pub(crate) fn look_after_connection() {
    if connection_check_is_due() {
        check_connection();
    }
}

#[cold]
#[inline(never)]
fn check_connection() {
    let Some(mut connection) = PROCESS.connection.try_lock() else { return };
    let something_to_say = connection.me.lease != 0 || connection.owes_release;
    if !something_to_say || connection.stands() && !connection.owes_release {
        return;
    }
    let me = connection.me;
    if conversation::introduce(&mut PROCESS.link(&mut connection), &me, Retry::Once).is_ok()
        && connection.owes_release
    {
        connection.owes_release = !connection.send(Release::new().as_bytes());
    }
}

/// Whether the primary context of the one device lives.
pub(crate) fn primary_context_is_active() -> bool {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: places for the answers.
    let code = unsafe {
        call!(Entry::cuDevicePrimaryCtxGetState, 0 => c_int, &raw mut flags => *mut c_uint,
            &raw mut active => *mut c_int)
    };
    code == CUDA_SUCCESS && active != 0
}
