//! The memory ledger: what a pod's processes take of their card, counted together and without locks.
//!
//! Every process owns one slot of 64 bytes and is the only one to change it; everybody reads all of them. A slot
//! says what the process holds (`committed`) and what it is about to take (`pending`). Taking memory is
//!
//! 1. [`Ledger::reserve`]: announce in `pending`, then add up everybody's slots; over the limit, take it back;
//! 2. the driver's own call;
//! 3. [`Reservation::commit`] with what the driver really took, or [`Reservation::cancel`] when it refused.
//!
//! Each step is one atomic operation on the own slot, so a process can be killed between any two of them and leaves
//! a slot that counts at least what it holds. The agent zeroes it once the process is really gone
//! ([`Ledger::reclaim`]). Nothing else ever repairs anything.
//!
//! Memory that several processes of the pod hold is charged once, beside the slots ([`Ledger::share`]).
//!
//! Why the limit is never exceeded: the sum reads a slot's `pending` before its `committed`, and a commit adds to
//! `committed` before it takes from `pending`; so a sum may count a reservation twice but never misses one. All of it
//! is sequentially consistent, so of two that reserve at once at least one sees the other.

use core::ffi::c_void;

use crate::atomic::{AtomicU32, Ordering};
use crate::bucket::Bucket;

mod owner;
mod reservation;
mod shared;
mod slot;

pub use owner::Owner;
pub use reservation::{Reservation, ReserveError};
pub use shared::{SHARED, Shared};
pub use slot::Slot;

/// First four bytes of the ledger.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GPLG");

/// Layout of the ledger. Things are only ever added at its end, so whoever shares it takes any layout from its own on;
/// where that cannot be, [`MAGIC`] changes.
pub const VERSION: u32 = 4;

/// Slots of a ledger, hence the most processes of a pod that use its card at the same time.
pub const SLOTS: usize = 1024;

/// Length of the ledger's file in bytes: header, slots, shared memory, filled up to whole pages.
pub const FILE_LENGTH: usize = (SHARED_START + SHARED * SHARED_LENGTH).next_multiple_of(4096);

const HEADER_LENGTH: usize = 128;
const SLOT_LENGTH: usize = 64;
const SHARED_START: usize = HEADER_LENGTH + SLOTS * SLOT_LENGTH;
const SHARED_LENGTH: usize = 24 + SLOTS / 8;

/// What the ledger starts with: two cache lines that no slot shares, the second for the bucket, which launches write.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LedgerHeader {
    magic: AtomicU32,
    version: AtomicU32,
    slots: AtomicU32,
    /// Slots from this index on were never given out, so sums stop here.
    high_water: AtomicU32,
    /// The same for shared memory.
    shared_high_water: AtomicU32,
    bucket: Bucket,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<LedgerHeader>() == HEADER_LENGTH);
    assert!(size_of::<Slot>() == SLOT_LENGTH);
    assert!(size_of::<Shared>() == SHARED_LENGTH);
    assert!(FILE_LENGTH == 86_016);
};

/// Why a piece of memory is no ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The memory is too small or not aligned to 64 bytes.
    #[error("the ledger has {0} bytes, which is too few, or lies askew")]
    Memory(usize),
    /// It does not start as a ledger does.
    #[error("this is not a ledger of layout {VERSION} or a later one")]
    Foreign,
}

/// A view of a ledger. Copies are views of the same one.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a> {
    header: &'a LedgerHeader,
    slots: &'a [Slot],
    shared: &'a [Shared],
}

impl<'a> Ledger<'a> {
    /// A view of a header, its slots and its shared memory, wherever they lie.
    pub const fn new(header: &'a LedgerHeader, slots: &'a [Slot], shared: &'a [Shared]) -> Self {
        Self { header, slots, shared }
    }

    /// Makes zeroed shared memory a ledger of [`SLOTS`] slots.
    ///
    /// # Safety
    /// `memory` must point to `length` bytes that stay mapped for reads and writes as long as `'a`, and that nobody
    /// (this process or another) changes meanwhile but through atomics. A `length` below [`FILE_LENGTH`] and a
    /// `memory` that is not a multiple of 64 are refused before anything is read.
    pub unsafe fn create(memory: *mut c_void, length: usize) -> Result<Self, LedgerError> {
        // SAFETY: `memory` and `length` are the caller's, under the same terms.
        let ledger = unsafe { Self::view(memory, length) }?;
        ledger.header.set(SLOTS);
        Ok(ledger)
    }

    /// Recognises a ledger in shared memory. Its own word on its size is not trusted: it is always [`SLOTS`] slots.
    ///
    /// # Safety
    /// `memory` must point to `length` bytes, under the terms of [`Self::create`]; writable too, since a view reserves
    /// and releases.
    pub unsafe fn open(memory: *mut c_void, length: usize) -> Result<Self, LedgerError> {
        // SAFETY: `memory` and `length` are the caller's, under the same terms.
        let ledger = unsafe { Self::view(memory, length) }?;
        let header = ledger.header;
        let ours = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) >= VERSION
            && header.slots.load(Ordering::Relaxed) as usize == SLOTS;
        if ours { Ok(ledger) } else { Err(LedgerError::Foreign) }
    }

    /// The view of `memory`, whatever it holds: for a ledger that was recognised before. Its first bytes may have been
    /// made rubbish of since, by another program of the pod.
    ///
    /// # Safety
    /// `memory` and `length` as for [`Self::create`].
    pub unsafe fn view(memory: *mut c_void, length: usize) -> Result<Self, LedgerError> {
        if length < FILE_LENGTH || !memory.cast::<LedgerHeader>().is_aligned() {
            return Err(LedgerError::Memory(length));
        }
        // SAFETY: `length` covers header, slots and shared memory (checked against `FILE_LENGTH`), `memory` is aligned to
        // 64 bytes (checked) and each part begins a multiple of its alignment after it; the bytes stay mapped for 'a
        // by the caller's promise, and atomics accept any bytes.
        unsafe {
            let header = &*memory.cast::<LedgerHeader>();
            let slots = core::slice::from_raw_parts(memory.byte_add(HEADER_LENGTH).cast(), SLOTS);
            let shared = core::slice::from_raw_parts(memory.byte_add(SHARED_START).cast(), SHARED);
            Ok(Self { header, slots, shared })
        }
    }

    /// The bucket of the pod's device time, in the header.
    pub const fn bucket(&self) -> &'a Bucket {
        &self.header.bucket
    }

    /// The slot at `index`; nothing where the ledger has none there.
    pub fn slot(&self, index: u32) -> Option<&'a Slot> {
        self.slots.get(index as usize)
    }

    /// The agent gives a slot to a process: from now on sums include it. Returns it, zeroed.
    pub fn assign(&self, index: u32) -> Option<&'a Slot> {
        let slot = self.slot(index)?;
        slot.clear();
        self.clear_shared(index);
        self.header.high_water.fetch_max(index + 1, Ordering::SeqCst);
        Some(slot)
    }

    /// The agent takes a slot back, once its process is dead beyond doubt (its pidfd says so, or it said so itself
    /// by a release). Returns the bytes that it still counted.
    pub fn reclaim(&self, index: u32) -> Option<u64> {
        let slot = self.slot(index)?;
        let bytes = slot.charge();
        slot.clear();
        self.clear_shared(index);
        Some(bytes)
    }

    /// Bytes that the pod holds or is about to hold. Never less than it holds.
    pub fn charged(&self) -> u64 {
        // Shared memory last: what becomes shared is charged there before it is taken from its slot.
        let slots = self.used_slots().iter().fold(0, |sum: u64, slot| sum.saturating_add(slot.charge()));
        slots.saturating_add(self.shared_bytes())
    }

    /// Bytes that the pod holds, without what is only announced.
    pub fn committed(&self) -> u64 {
        let slots = self.used_slots().iter().fold(0, |sum: u64, slot| sum.saturating_add(slot.committed()));
        slots.saturating_add(self.shared_bytes())
    }

    fn used_slots(&self) -> &'a [Slot] {
        let used = self.header.high_water.load(Ordering::SeqCst) as usize;
        &self.slots[..used.min(self.slots.len())]
    }

    /// Charges `bytes` that the driver has taken already, whatever the limit says: truth comes before limits.
    pub fn charge_anyway(&self, index: u32, bytes: u64) {
        if let Some(slot) = self.slot(index) {
            slot.committed.fetch_add(bytes, Ordering::SeqCst);
        }
    }
}

impl LedgerHeader {
    fn set(&self, slots: usize) {
        self.slots.store(u32::try_from(slots).unwrap_or(u32::MAX), Ordering::Relaxed);
        // Not lowered: a newer agent may have made this ledger, and is started again one day.
        self.version.fetch_max(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// A header outside shared memory, for a ledger of `slots` slots.
    pub fn in_private_memory(slots: usize) -> Self {
        let header = Self {
            magic: AtomicU32::new(0),
            version: AtomicU32::new(0),
            slots: AtomicU32::new(0),
            high_water: AtomicU32::new(0),
            shared_high_water: AtomicU32::new(0),
            bucket: Bucket::default(),
        };
        header.set(slots);
        header
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
