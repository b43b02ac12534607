//! The limits page: what a pod may use and how it stands, written by the agent and read by the pod's processes.
//!
//! The agent makes it as a memfd that nobody else can write or resize. A reader maps it read-only and reads single
//! fields, or a consistent [`Limits`] by [`LimitsPage::read`]: the agent makes the sequence number odd while it
//! writes, so a reader knows when to look again.

use core::ffi::c_void;

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::bucket::Rate;

/// First four bytes of the page.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GPLP");

/// Layout of the page. Fields are only ever added at its end, so a reader takes any layout from its own on; where that
/// cannot be, [`MAGIC`] changes.
pub const VERSION: u32 = 2;

/// Length of the page's file in bytes: one page of memory.
pub const FILE_LENGTH: usize = 4096;

/// How often a reader looks again before it takes what it sees: the writer is done in nanoseconds, or was killed.
#[cfg(not(loom))]
const READ_ATTEMPTS: u32 = 64;
/// The model checker follows every value that every read may find, so it gets one attempt.
#[cfg(loom)]
const READ_ATTEMPTS: u32 = 1;

/// The state of a pod, by the number that the page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PodState {
    /// It holds nothing and wants nothing.
    Hibernating = 0,
    /// It waits in the queue; [`Limits::position`] says where.
    Ready = 1,
    /// It holds a lease.
    Running = 2,
}

impl PodState {
    /// The state with this number; an unknown one counts as hibernating, which promises nothing.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ready,
            2 => Self::Running,
            _ => Self::Hibernating,
        }
    }
}

/// What the page says, as one consistent value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Share of a card's computing time, 1..=100 percent.
    pub core_percent: u32,
    /// How fast its launches may go, so that it keeps to that share.
    pub core_rate: Rate,
    /// Device memory of the pod on its card, in bytes; of the likeliest card as long as none is granted.
    pub memory_bytes: u64,
    /// What one context is charged, in bytes, until it can be measured.
    pub context_reserve_bytes: u64,
    /// The state of the pod.
    pub state: PodState,
    /// Place in the queue, 1 for the head; 0 when the pod does not wait.
    pub position: u32,
    /// Index in the card table of the granted card, or of the likeliest one as long as none is.
    pub card: u32,
}

/// The page in shared memory. Only the agent writes it.
#[derive(Debug)]
#[repr(C)]
pub struct LimitsPage {
    magic: AtomicU32,
    version: AtomicU32,
    sequence: AtomicU64,
    memory_bytes: AtomicU64,
    context_reserve_bytes: AtomicU64,
    core_percent: AtomicU32,
    state: AtomicU32,
    position: AtomicU32,
    card: AtomicU32,
    core_per_second: AtomicU64,
    core_burst: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<LimitsPage>() == 64 && size_of::<LimitsPage>() <= FILE_LENGTH);

/// Why a piece of memory is no limits page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// The memory is too small or not aligned to 8 bytes.
    #[error("the limits page has {0} bytes, which is too few, or lies askew")]
    Memory(usize),
    /// It does not start as a limits page does.
    #[error("this is not a limits page of layout {VERSION} or a later one")]
    Foreign,
}

impl LimitsPage {
    /// A page that says nothing yet, for tests and for the agent before it copies it into shared memory.
    pub fn new(limits: &Limits) -> Self {
        let page = Self {
            magic: AtomicU32::new(MAGIC),
            version: AtomicU32::new(VERSION),
            sequence: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            context_reserve_bytes: AtomicU64::new(0),
            core_percent: AtomicU32::new(0),
            state: AtomicU32::new(0),
            position: AtomicU32::new(0),
            card: AtomicU32::new(0),
            core_per_second: AtomicU64::new(0),
            core_burst: AtomicU64::new(0),
        };
        page.publish(limits);
        page
    }

    /// Makes zeroed shared memory a limits page.
    ///
    /// # Safety
    /// `memory` must point to `length` bytes that stay mapped for reads and writes as long as `'a`, and that nobody
    /// changes meanwhile but through atomics. A `length` below the page's 64 bytes and a `memory` that is not a
    /// multiple of 8 are refused before anything is read.
    pub unsafe fn create<'a>(
        memory: *mut c_void,
        length: usize,
        limits: &Limits,
    ) -> Result<&'a Self, LimitsError> {
        if length < size_of::<Self>() || !memory.cast::<Self>().is_aligned() {
            return Err(LimitsError::Memory(length));
        }
        // SAFETY: `length` bytes at `memory` cover the page and are aligned (checked above); they stay mapped for 'a by
        // the caller's promise, and atomics accept any bytes.
        let page = unsafe { &*memory.cast::<Self>() };
        page.publish(limits);
        page.version.store(VERSION, Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Recognises a limits page in shared memory. The page is only read through the answer if the mapping is
    /// read-only, which this function cannot see: [`Self::publish`] would fault there.
    ///
    /// # Safety
    /// `memory` must point to `length` bytes that stay mapped for reads as long as `'a`, and that nobody changes
    /// meanwhile but through atomics; what is too short or not aligned is refused as by [`Self::create`].
    pub unsafe fn open<'a>(memory: *const c_void, length: usize) -> Result<&'a Self, LimitsError> {
        if length < size_of::<Self>() || !memory.cast::<Self>().is_aligned() {
            return Err(LimitsError::Memory(length));
        }
        // SAFETY: as in `create`; a shared reference to atomics reads only unless a method writes.
        let page = unsafe { &*memory.cast::<Self>() };
        let ours =
            page.magic.load(Ordering::Acquire) == MAGIC && page.version.load(Ordering::Relaxed) >= VERSION;
        if ours { Ok(page) } else { Err(LimitsError::Foreign) }
    }

    /// Says something new. One writer at a time: the agent's pool task.
    pub fn publish(&self, limits: &Limits) {
        let sequence = self.sequence.load(Ordering::Relaxed) & !1;
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.memory_bytes.store(limits.memory_bytes, Ordering::Relaxed);
        self.context_reserve_bytes.store(limits.context_reserve_bytes, Ordering::Relaxed);
        self.core_percent.store(limits.core_percent, Ordering::Relaxed);
        self.core_per_second.store(limits.core_rate.per_second, Ordering::Relaxed);
        self.core_burst.store(limits.core_rate.burst, Ordering::Relaxed);
        self.state.store(limits.state as u32, Ordering::Relaxed);
        self.position.store(limits.position, Ordering::Relaxed);
        self.card.store(limits.card, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// What the page says now, if possible all fields from one and the same moment.
    ///
    /// If the agent died or was interrupted while it wrote, the fields may be of two moments; each on its own is
    /// still one it meant.
    pub fn read(&self) -> Limits {
        self.read_at_once().unwrap_or_else(|| self.fields())
    }

    /// What the page says now, all fields from one and the same moment; nothing when the agent is in the middle of a
    /// change for longer than a reader can wait.
    pub fn read_at_once(&self) -> Option<Limits> {
        for _ in 0..READ_ATTEMPTS {
            let before = self.sequence.load(Ordering::Acquire);
            let limits = self.fields();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return Some(limits);
            }
            core::hint::spin_loop();
        }
        None
    }

    fn fields(&self) -> Limits {
        Limits {
            core_percent: self.core_percent.load(Ordering::Relaxed),
            core_rate: self.core_rate(),
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
            context_reserve_bytes: self.context_reserve_bytes.load(Ordering::Relaxed),
            state: PodState::from_number(self.state.load(Ordering::Relaxed)),
            position: self.position.load(Ordering::Relaxed),
            card: self.card.load(Ordering::Relaxed),
        }
    }

    /// The memory limit alone, in bytes: all that the allocation path needs.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The rate alone: all that a launch needs. Its two fields may be of two moments; each is one that was meant.
    pub fn core_rate(&self) -> Rate {
        Rate {
            per_second: self.core_per_second.load(Ordering::Relaxed),
            burst: self.core_burst.load(Ordering::Relaxed),
        }
    }

    /// The place in the queue alone; 0 when the pod does not wait.
    pub fn position(&self) -> u32 {
        self.position.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
