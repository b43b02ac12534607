//! What this process is to its pool: nothing, introduced, or holder of a lease; and what it holds.
//!
//! All of it lies in pages that the kernel wipes in a forked child, so a child starts from nothing under its own
//! process id. Zero must therefore mean "nothing yet" in every field. Nothing here calls the driver.

pub(crate) mod account;
pub(crate) mod contexts;
pub(crate) mod launch_costs;
pub(crate) mod memory_pools;
pub(crate) mod shared_memory;
pub(crate) mod tables;

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gpupool_nvidia::cuda::{CUDA_ERROR_INVALID_CONTEXT, CUresult};
use gpupool_wire::cards::Card;
use gpupool_wire::limits::LimitsPage;
use gpupool_wire::{SOCKET_VARIABLE, SYSTEM_SOCKET};

use self::account::Account;
use self::contexts::Contexts;
use self::launch_costs::LaunchCosts;
use self::memory_pools::MemoryPools;
use self::shared_memory::SharedMemory;
use self::tables::Tables;
use crate::agent::connection::{Connection, SocketLink, SocketPath};
use crate::agent::pages::Pages;
use crate::lock::{Lock, Turn};
use crate::sys;
use crate::table::{COUNT, Class, Entry};

/// This process's state.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Process {
    /// By row: where a call may jump at once; 0 while something has to be done first. Read by the trampolines, so it
    /// comes first.
    pub(crate) targets: [AtomicUsize; COUNT],
    /// The limits, the card table and the ledger.
    pub(crate) pages: Pages,
    mode: AtomicU32,
    stage: AtomicU32,
    /// 1 while this process holds a lease.
    pub(crate) held: AtomicU32,
    /// The code that everything is answered with once the agent has refused this process; 0 before.
    pub(crate) refused: AtomicI32,
    /// Contexts that are being made, so that a release cannot slip between the lease and the context.
    pub(crate) contexts_being_made: AtomicU32,
    /// The thread in which the real driver is being started, [`ANYBODY`] when that has taken long; 0 at any other time.
    pub(crate) starter: AtomicUsize,
    /// When the connection was looked after last, in milliseconds of the coarse clock.
    pub(crate) last_connection_check: AtomicU64,
    socket_path: SocketPath,
    /// The connection to the agent.
    pub(crate) connection: Lock<Connection>,
    /// What is remembered of the driver's things.
    pub(crate) tables: Tables,
    /// Contexts of this process.
    pub(crate) contexts: Contexts,
    /// Memory pools of this process.
    pub(crate) memory_pools: MemoryPools,
    /// What its launches cost.
    pub(crate) launch_costs: LaunchCosts,
    /// Memory that this process holds together with others.
    pub(crate) shared_memory: SharedMemory,
    /// Held while what is known of physical memory changes.
    pub(crate) physical: Turn,
    /// 1 once a graph of this process may allocate.
    pub(crate) graphs_allocate: AtomicU32,
}

/// The one state. It must lie in memory that is zero and belongs to no file, which [`decide_mode`] counts on.
pub(crate) static PROCESS: Process = Process {
    targets: [const { AtomicUsize::new(0) }; COUNT],
    pages: Pages::new(),
    mode: AtomicU32::new(0),
    stage: AtomicU32::new(0),
    held: AtomicU32::new(0),
    refused: AtomicI32::new(0),
    contexts_being_made: AtomicU32::new(0),
    starter: AtomicUsize::new(0),
    last_connection_check: AtomicU64::new(0),
    socket_path: SocketPath::new(),
    connection: Lock::new(Connection::new()),
    tables: Tables::new(),
    contexts: Contexts::new(),
    memory_pools: MemoryPools::new(),
    launch_costs: LaunchCosts::new(),
    shared_memory: SharedMemory::new(),
    physical: Turn::new(),
    graphs_allocate: AtomicU32::new(0),
};

impl Process {
    /// The way to the agent over a connection that the caller has locked.
    pub(crate) fn link<'a>(&'a self, connection: &'a mut Connection) -> SocketLink<'a> {
        SocketLink { connection, path: &self.socket_path, pages: &self.pages }
    }
}

/// In place of a thread: any of them may be part of the driver's start.
pub(crate) const ANYBODY: usize = usize::MAX;

/// Where launches leave their mark when there is no ledger.
static NOBODY_LOOKS: AtomicU32 = AtomicU32::new(1);

/// Whether this process has to do with a pool at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No agent is known here: nothing is done, ever.
    NoPool,
    /// An agent's socket is known.
    Pooled,
}

const MODE_NO_POOL: u32 = 1;
const MODE_POOLED: u32 = 2;

/// How far the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum ProcessStage {
    /// The agent does not know it.
    Unknown = 0,
    /// The pages are mapped; the program has not initialised the driver.
    Introduced = 1,
    /// `cuInit` was answered; the real one was not called.
    Initialised = 2,
    /// The real driver is initialised on the granted card.
    Granted = 3,
}

/// The process's mode, found out once: the first time that anything of CUDA or NVML is asked for.
#[inline]
pub(crate) fn mode() -> Mode {
    match PROCESS.mode.load(Ordering::Acquire) {
        MODE_NO_POOL => Mode::NoPool,
        MODE_POOLED => Mode::Pooled,
        _ => decide_mode(),
    }
}

#[cold]
#[inline(never)]
fn decide_mode() -> Mode {
    let start = (&raw const PROCESS).cast();
    // SAFETY: the state is made for this. On a kernel that cannot do it (before 4.14) a forked child takes itself for
    // its parent, as it would without this library.
    let _ = unsafe { sys::wipe_on_fork(start, size_of::<Process>()) };
    let _turn = PROCESS.connection.lock();
    let named = sys::variable(SOCKET_VARIABLE.as_bytes()).map(core::ffi::CStr::to_bytes);
    let path = match named {
        // In a sharing container (`LIBRARY_IN_CONTAINERS`), whether or not the agent is there at this moment, and whatever
        // the pod has in its environment: it could name an agent of its own.
        _ if sys::exists(c"/usr/lib/gpupool/libgpupool.so") => SYSTEM_SOCKET.as_bytes(),
        Some(path) if !path.is_empty() => path,
        _ => {
            leave_pool();
            return Mode::NoPool;
        }
    };
    PROCESS.socket_path.keep(path);
    PROCESS.mode.store(MODE_POOLED, Ordering::Release);
    Mode::Pooled
}

/// The process has nothing to do with a pool from now on. It must not have been introduced to one.
#[cold]
pub(crate) fn leave_pool() {
    PROCESS.pages.submitted.store((&raw const NOBODY_LOOKS).expose_provenance(), Ordering::Release);
    PROCESS.mode.store(MODE_NO_POOL, Ordering::Release);
}

/// The process's stage, as this thread finds it: what the driver calls while it is being started (a profiler that is
/// loaded into it) is answered by the driver.
#[inline]
pub(crate) fn stage() -> ProcessStage {
    match PROCESS.stage.load(Ordering::Acquire) {
        0 => ProcessStage::Unknown,
        1 => ProcessStage::Introduced,
        2 if !is_in_the_start() => ProcessStage::Initialised,
        _ => ProcessStage::Granted,
    }
}

/// Whether the real driver is being started at this moment and this call comes out of the start: what it asks is for the
/// driver to answer.
#[cold]
#[inline(never)]
pub(crate) fn is_in_the_start() -> bool {
    let starter = PROCESS.starter.load(Ordering::SeqCst);
    starter == sys::this_thread() || starter == ANYBODY
}

/// The process has come this far.
pub(crate) fn set_stage(stage: ProcessStage) {
    PROCESS.stage.store(stage as u32, Ordering::Release);
}

/// The program initialised the driver, as far as it can tell.
pub(crate) fn initialised() {
    let (known, next) = (ProcessStage::Introduced as u32, ProcessStage::Initialised as u32);
    let _ = PROCESS.stage.compare_exchange(known, next, Ordering::AcqRel, Ordering::Relaxed);
}

/// The limits page, once there is one.
#[inline]
pub(crate) fn limits() -> Option<&'static LimitsPage> {
    PROCESS.pages.limits()
}

/// The one card that the pod sees: the granted one, or the likeliest.
#[inline(never)]
pub(crate) fn visible_card() -> Option<&'static Card> {
    let index = limits()?.read().card as usize;
    let cards = PROCESS.pages.cards();
    cards.get(index).or_else(|| cards.first())
}

/// The pod's account, once there is one.
#[inline(never)]
pub(crate) fn account() -> Option<Account> {
    let (ledger, slot) = PROCESS.pages.ledger()?;
    Account::new(ledger, slot, limits()?)
}

/// For queries that need a current context: before the grant there is none, and asking must not take a card.
pub(crate) fn context_possible() -> Result<(), CUresult> {
    if stage() == ProcessStage::Initialised { Err(CUDA_ERROR_INVALID_CONTEXT) } else { Ok(()) }
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
    let barred = entry.class() == Class::NeedsLease
        && mode() == Mode::Pooled
        && PROCESS.held.load(Ordering::SeqCst) == 0;
    // What holds for the thread that starts the driver does not hold for the others yet.
    if barred || PROCESS.starter.load(Ordering::SeqCst) != 0 {
        target.store(0, Ordering::SeqCst);
    }
}
