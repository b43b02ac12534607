//! What this process is to the pool: nothing, introduced, or holder of a lease; and the way from one to the next.
//!
//! All of it lies in pages that the kernel wipes in a forked child, so a child starts from nothing under its own
//! process id. Zero must therefore mean "nothing yet" in every field.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gpupool_wire::cards::{Card, CardTable};
use gpupool_wire::ledger::{FILE_LENGTH, Ledger};
use gpupool_wire::limits::LimitsPage;
use gpupool_wire::message::Release;
use gpupool_wire::{SOCKET_VARIABLE, SYSTEM_SOCKET};
use zerocopy::IntoBytes;

use crate::account::Account;
use crate::client::{self, Failure, Patience, Surroundings};
use crate::code::{CuResult, DEVICE_UNAVAILABLE, INVALID_CONTEXT, NO_DEVICE, OUT_OF_MEMORY, SUCCESS};
use crate::connection::Connection;
use crate::contexts::{self, Contexts};
use crate::costs::Costs;
use crate::lock::Lock;
use crate::pointers::PointerMap;
use crate::pools::Pools;
use crate::real::call;
use crate::shares::Shares;
use crate::table::{COUNT, Class, Entry};
use crate::text::Text;
use crate::{environment, sys};

/// A running program looks after its connection at most this often, in milliseconds.
const LOOK_EVERY: u64 = 1_000;

/// This process's state.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Process {
    /// By row: where a call may jump at once; 0 while something has to be done first. Read by the trampolines, so it
    /// comes first.
    pub(crate) targets: [AtomicUsize; COUNT],
    /// Where launches leave their mark. Valid before any launch has a target.
    pub(crate) submitted: AtomicUsize,
    mode: AtomicU32,
    stage: AtomicU32,
    held: AtomicU32,
    refused: AtomicI32,
    /// Contexts on their way, so that a release cannot slip between the lease and the context.
    making: AtomicU32,
    last_look: AtomicU64,
    path_length: AtomicUsize,
    path: [AtomicU32; 27],
    pub(crate) limits: AtomicPtr<LimitsPage>,
    pub(crate) table: AtomicPtr<u8>,
    pub(crate) table_length: AtomicUsize,
    pub(crate) ledger: AtomicPtr<c_void>,
    pub(crate) slot: AtomicU32,
    connection: Lock<Connection>,
    /// Device memory by address.
    pub(crate) pointers: PointerMap,
    /// Contexts of this process.
    pub(crate) contexts: Contexts,
    /// Pools of this process.
    pub(crate) pools: Pools,
    /// What its launches cost.
    pub(crate) costs: Costs,
    /// Memory that this process holds together with others.
    pub(crate) shares: Shares,
    /// Held while what is known of physical memory changes.
    pub(crate) physical: Lock<()>,
    /// Whether a graph of this process may allocate.
    pub(crate) graphs_allocate: AtomicU32,
}

/// The one state. It must lie in memory that is zero and belongs to no file, which [`decide`] counts on.
pub(crate) static PROCESS: Process = Process {
    targets: [const { AtomicUsize::new(0) }; COUNT],
    submitted: AtomicUsize::new(0),
    mode: AtomicU32::new(0),
    stage: AtomicU32::new(0),
    held: AtomicU32::new(0),
    refused: AtomicI32::new(0),
    making: AtomicU32::new(0),
    last_look: AtomicU64::new(0),
    path_length: AtomicUsize::new(0),
    path: [const { AtomicU32::new(0) }; 27],
    limits: AtomicPtr::new(core::ptr::null_mut()),
    table: AtomicPtr::new(core::ptr::null_mut()),
    table_length: AtomicUsize::new(0),
    ledger: AtomicPtr::new(core::ptr::null_mut()),
    slot: AtomicU32::new(0),
    connection: Lock::new(Connection::new()),
    pointers: PointerMap::new(),
    contexts: Contexts::new(),
    pools: Pools::new(),
    costs: Costs::new(),
    shares: Shares::new(),
    physical: Lock::new(()),
    graphs_allocate: AtomicU32::new(0),
};

/// Where launches leave their mark when there is no ledger.
static NOBODY_LOOKS: AtomicU32 = AtomicU32::new(1);

/// Whether the real driver was initialised, by this process or before it was forked: not wiped, as the driver's own
/// state is not.
static DRIVER_STARTED: AtomicU32 = AtomicU32::new(0);

/// Whether this process has to do with a pool at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No agent is known here: nothing is done, ever.
    Pass,
    /// An agent's socket is known.
    Held,
}

const MODE_PASS: u32 = 1;
const MODE_HELD: u32 = 2;

/// How far the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Stage {
    /// The agent does not know it.
    Untouched = 0,
    /// The pages are mapped; the program has not initialised the driver.
    Known = 1,
    /// `cuInit` was answered; the real one was not called.
    Initialised = 2,
    /// The real driver is initialised on the granted card.
    Ready = 3,
}

/// The process's mode, found out once: the first time that anything of CUDA or NVML is asked for.
#[inline]
pub(crate) fn mode() -> Mode {
    match PROCESS.mode.load(Ordering::Acquire) {
        MODE_PASS => Mode::Pass,
        MODE_HELD => Mode::Held,
        _ => decide(),
    }
}

#[cold]
#[inline(never)]
fn decide() -> Mode {
    let start = (&raw const PROCESS).cast();
    // SAFETY: the state is made for this. On a kernel that cannot do it (before 4.14) a forked child takes itself for
    // its parent, as it would without this library.
    let _ = unsafe { sys::wipe_on_fork(start, size_of::<Process>()) };
    let _turn = PROCESS.connection.lock();
    let named = sys::variable(SOCKET_VARIABLE.as_bytes()).map(core::ffi::CStr::to_bytes);
    let path = match named {
        Some(path) if !path.is_empty() => path,
        // In a sharing container, whether or not the agent is there at this moment: `LIBRARY_IN_CONTAINERS`.
        _ if sys::exists(c"/usr/lib/gpupool/libgpupool.so") => SYSTEM_SOCKET.as_bytes(),
        _ => {
            PROCESS.submitted.store((&raw const NOBODY_LOOKS).expose_provenance(), Ordering::Release);
            PROCESS.mode.store(MODE_PASS, Ordering::Release);
            return Mode::Pass;
        }
    };
    // Kept, since the program may change its environment.
    for (word, bytes) in PROCESS.path.iter().zip(path.chunks(4)) {
        let mut four = [0; 4];
        for (to, from) in four.iter_mut().zip(bytes) {
            *to = *from;
        }
        word.store(u32::from_ne_bytes(four), Ordering::Relaxed);
    }
    PROCESS.path_length.store(path.len(), Ordering::Relaxed);
    PROCESS.mode.store(MODE_HELD, Ordering::Release);
    Mode::Held
}

/// Copies the socket's path; its length, which is more than the buffer when no socket can have that path.
pub(crate) fn socket_path(buffer: &mut [u8; 108]) -> usize {
    for (word, four) in PROCESS.path.iter().zip(buffer.chunks_mut(4)) {
        for (to, from) in four.iter_mut().zip(word.load(Ordering::Relaxed).to_ne_bytes()) {
            *to = from;
        }
    }
    PROCESS.path_length.load(Ordering::Relaxed)
}

/// The process's stage.
#[inline]
pub(crate) fn stage() -> Stage {
    match PROCESS.stage.load(Ordering::Acquire) {
        0 => Stage::Untouched,
        1 => Stage::Known,
        2 => Stage::Initialised,
        _ => Stage::Ready,
    }
}

fn set_stage(stage: Stage) {
    PROCESS.stage.store(stage as u32, Ordering::Release);
}

/// The limits page, once there is one.
#[inline]
pub(crate) fn limits() -> Option<&'static LimitsPage> {
    // SAFETY: set to a page that stays mapped for as long as the process lives.
    unsafe { PROCESS.limits.load(Ordering::Acquire).as_ref() }
}

/// The cards of the table, once there is one.
#[inline(never)]
pub(crate) fn cards() -> &'static [Card] {
    let (length, start) =
        (PROCESS.table_length.load(Ordering::Acquire), PROCESS.table.load(Ordering::Acquire));
    if length == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: start and length belong to a sealed file that stays mapped.
    let bytes = unsafe { core::slice::from_raw_parts(start, length) };
    CardTable::parse(bytes).map(|table| table.cards()).unwrap_or_default()
}

/// The one card that the pod sees: the granted one, or the likeliest.
#[inline(never)]
pub(crate) fn visible_card() -> Option<&'static Card> {
    let index = limits()?.read().card as usize;
    let cards = cards();
    cards.get(index).or_else(|| cards.first())
}

/// The pod's account, once there is one.
#[inline(never)]
pub(crate) fn account() -> Option<Account> {
    let ledger = PROCESS.ledger.load(Ordering::Acquire);
    if ledger.is_null() {
        return None;
    }
    // SAFETY: set to a ledger of that length that stays mapped.
    let ledger = unsafe { Ledger::open(ledger, FILE_LENGTH) }.ok()?;
    Account::new(ledger, PROCESS.slot.load(Ordering::Acquire), limits()?)
}

/// Makes the process known to the agent.
pub(crate) fn introduce(patience: Patience) -> Result<(), CuResult> {
    if stage() >= Stage::Known {
        return Ok(());
    }
    refusal()?;
    let mut connection = match patience {
        Patience::Endless => PROCESS.connection.lock(),
        // Who was not answered a moment ago will not be now; and somebody else may be at it for long.
        Patience::Once if !may_look() => return Err(NO_DEVICE),
        Patience::Once => PROCESS.connection.try_lock().ok_or(NO_DEVICE)?,
    };
    if stage() >= Stage::Known {
        return Ok(());
    }
    refusal()?;
    let me = connection.me;
    match client::introduce(&mut *connection, &me, patience) {
        Ok(()) => {
            set_stage(Stage::Known);
            Ok(())
        }
        Err(Failure::Refused(_)) if patience == Patience::Endless => {
            PROCESS.refused.store(NO_DEVICE, Ordering::Release);
            Err(NO_DEVICE)
        }
        Err(_) => Err(NO_DEVICE),
    }
}

fn refusal() -> Result<(), CuResult> {
    match PROCESS.refused.load(Ordering::Acquire) {
        SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// In a child of a process whose real driver was initialised, the driver's own word on whether it can be used here:
/// NVIDIA's cannot.
pub(crate) fn driver_survived_fork() -> Result<(), CuResult> {
    if DRIVER_STARTED.load(Ordering::Acquire) == 0 || stage() == Stage::Ready {
        return Ok(());
    }
    // SAFETY: as any caller of cuInit.
    match unsafe { call!(Entry::cuInit, 0 => u32) } {
        SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// The program initialised the driver, as far as it can tell.
pub(crate) fn initialised() {
    let (known, next) = (Stage::Known as u32, Stage::Initialised as u32);
    let _ = PROCESS.stage.compare_exchange(known, next, Ordering::AcqRel, Ordering::Relaxed);
}

/// How a call may go on.
pub(crate) enum Way {
    /// To the real driver, uncharged: no pool here, or the program has not called `cuInit`, which the driver will say.
    Plain,
    /// To the real driver, under a lease.
    Leased(Account),
    /// Not at all; the code is the answer.
    Barred(CuResult),
}

/// Takes care that the process holds a lease, waiting for it where it must.
#[inline]
pub(crate) fn lease() -> Way {
    if PROCESS.held.load(Ordering::SeqCst) == 0 {
        if mode() == Mode::Pass || stage() < Stage::Initialised {
            return Way::Plain;
        }
        if let Err(code) = take_lease() {
            return Way::Barred(code);
        }
    }
    account().map_or(Way::Plain, Way::Leased)
}

/// For queries that need a current context: before the grant there is none, and asking must not take a card.
pub(crate) fn context_possible() -> Result<(), CuResult> {
    if stage() == Stage::Initialised { Err(INVALID_CONTEXT) } else { Ok(()) }
}

#[cold]
#[inline(never)]
fn take_lease() -> Result<(), CuResult> {
    let mut connection = PROCESS.connection.lock();
    if PROCESS.held.load(Ordering::SeqCst) != 0 {
        return Ok(());
    }
    let me = connection.me;
    let grant = client::acquire(&mut *connection, &me).map_err(|_| DEVICE_UNAVAILABLE)?;
    connection.me.lease = grant.lease;
    connection.me.card = grant.card;
    // What was owed for an older lease would now end this one.
    connection.owes_release = false;
    if stage() != Stage::Ready {
        let code = initialise_on(&grant.card);
        if code != SUCCESS {
            end_lease(&mut connection);
            return Err(code);
        }
        set_stage(Stage::Ready);
    }
    PROCESS.held.store(1, Ordering::SeqCst);
    Ok(())
}

/// Calls the real `cuInit` so that the driver sees this card and no other.
fn initialise_on(card: &[u8; 16]) -> CuResult {
    let mut setting = Text::new();
    setting.add(b"CUDA_VISIBLE_DEVICES=").add_uuid(card);
    let name = b"CUDA_VISIBLE_DEVICES";
    // SAFETY: as any caller of cuInit.
    let init = || unsafe { call!(Entry::cuInit, 0 => u32) };
    let code = environment::with_variable(name, setting.as_bytes(), init).unwrap_or(OUT_OF_MEMORY);
    if code == SUCCESS {
        DRIVER_STARTED.store(1, Ordering::Release);
    }
    code
}

fn end_lease(connection: &mut Connection) {
    connection.me.lease = 0;
    connection.owes_release = !connection.send(Release::new().as_bytes(), false);
}

/// A context is being made: no release until [`made`].
pub(crate) fn making() {
    PROCESS.making.fetch_add(1, Ordering::SeqCst);
}

/// It was made, or not.
pub(crate) fn made() {
    PROCESS.making.fetch_sub(1, Ordering::SeqCst);
}

/// Gives the lease back if this process has no context and holds no memory any more.
pub(crate) fn release_if_idle() {
    let idle = || {
        PROCESS.making.load(Ordering::SeqCst) == 0
            && PROCESS.shares.none()
            && account().is_some_and(|account| account.slot().is_empty())
    };
    if PROCESS.held.load(Ordering::SeqCst) == 0 || !idle() || contexts::primary_is_active() {
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
fn may_look() -> bool {
    let now = sys::coarse_milliseconds();
    let last = PROCESS.last_look.load(Ordering::Relaxed);
    now.wrapping_sub(last) >= LOOK_EVERY
        && PROCESS.last_look.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Looks after the connection of a process with a lease, at most once a second: an agent that was restarted learns
/// from it that the lease is in use.
#[inline]
pub(crate) fn look_after_connection() {
    if may_look() {
        look();
    }
}

#[cold]
#[inline(never)]
fn look() {
    let Some(mut connection) = PROCESS.connection.try_lock() else { return };
    let something_to_say = connection.me.lease != 0 || connection.owes_release;
    if !something_to_say || connection.stands() && !connection.owes_release {
        return;
    }
    let me = connection.me;
    if client::introduce(&mut *connection, &me, Patience::Once).is_ok() && connection.owes_release {
        connection.owes_release = !connection.send(Release::new().as_bytes(), false);
    }
}

/// Has the next call of a row ask again where to go.
pub(crate) fn close_row(entry: Entry) {
    if let Some(target) = PROCESS.targets.get(entry.index()) {
        target.store(0, Ordering::SeqCst);
    }
}

/// Lets every further call of a row jump straight to `address`.
pub(crate) fn open_row(entry: Entry, address: usize) {
    let Some(target) = PROCESS.targets.get(entry.index()) else { return };
    target.store(address, Ordering::SeqCst);
    // A release may have closed the rows a moment ago; then this one must not stay open.
    if entry.class() == Class::NeedsLease && mode() == Mode::Held && PROCESS.held.load(Ordering::SeqCst) == 0
    {
        target.store(0, Ordering::SeqCst);
    }
}
