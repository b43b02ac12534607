//! Memory that several processes of a pod hold, charged once for all of them for as long as one of them holds it.
//!
//! An entry stands for one piece of such memory: a key by which processes recognise it (whatever both sides can tell:
//! the identity of a file, the bytes of a handle), its bytes, and a bit per slot for who holds it. Its bytes count
//! while any bit is set. So neither the end of the process that made the memory nor a kill at any instruction makes
//! the sum wrong, and the agent repairs nothing: it clears the bits of a dead process's slot.
//!
//! An entry is taken and given up in two steps, with a state in between that names the slot whose process is at it,
//! since a process may join an entry at the very moment that the last holder leaves: who joins sets its bit and then
//! looks whether the entry still lives; who frees takes its life and then looks whether a bit is set. All of it is
//! sequentially consistent, so one of the two sees the other.

use super::Ledger;
use crate::atomic::{AtomicU64, Ordering::SeqCst};

/// Most pieces of shared memory of a pod at the same time. What finds no place is charged to every process that
/// holds it.
pub const SHARED: usize = 128;

#[cfg(not(loom))]
const WORDS: usize = super::SLOTS / 64;
/// The model checker follows every atomic, so it gets few.
#[cfg(loom)]
const WORDS: usize = 1;

/// One piece of shared memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Shared {
    /// [`FREE`], [`LIVES`], or [`at_it`] for the slot that takes the entry or frees it.
    state: AtomicU64,
    key: AtomicU64,
    bytes: AtomicU64,
    /// A bit per slot.
    holders: [AtomicU64; WORDS],
}

const FREE: u64 = 0;
const LIVES: u64 = 1;

/// The state while the process in slot `index` takes an entry or frees it.
const fn at_it(index: u32) -> u64 {
    2 + index as u64
}

impl Shared {
    fn is_held(&self) -> bool {
        self.holders.iter().any(|word| word.load(SeqCst) != 0)
    }

    fn first_holder(&self) -> Option<u32> {
        let words = (0..).zip(&self.holders).map(|(word, bits): (u32, _)| (word, bits.load(SeqCst)));
        words.filter(|(_, bits)| *bits != 0).map(|(word, bits)| word * 64 + bits.trailing_zeros()).next()
    }

    fn set(&self, index: u32) {
        if let Some(word) = self.holders.get(index as usize / 64) {
            word.fetch_or(1 << (index % 64), SeqCst);
        }
    }

    fn lives_as(&self, key: u64) -> bool {
        self.state.load(SeqCst) == LIVES && self.key.load(SeqCst) == key
    }

    /// The process in slot `index` does not hold it any more; without a holder the entry is free.
    fn leave(&self, index: u32) {
        if let Some(word) = self.holders.get(index as usize / 64) {
            word.fetch_and(!(1 << (index % 64)), SeqCst);
        }
        self.free_unheld(index);
    }

    /// Frees it if nobody holds it. Somebody who joins meanwhile may step back again and leave that to this process,
    /// so what was given its life back is looked at once more.
    fn free_unheld(&self, index: u32) {
        while !self.is_held() && self.state.compare_exchange(LIVES, at_it(index), SeqCst, SeqCst).is_ok() {
            self.decide();
        }
    }

    /// Ends the time between the states.
    fn decide(&self) {
        if self.is_held() {
            self.state.store(LIVES, SeqCst);
        } else {
            self.bytes.store(0, SeqCst);
            self.key.store(0, SeqCst);
            self.state.store(FREE, SeqCst);
        }
    }

    #[cfg(all(test, loom))]
    pub(super) fn is_free(&self) -> bool {
        self.state.load(SeqCst) == FREE
    }

    fn charge(&self) -> u64 {
        if self.is_held() { self.bytes.load(SeqCst) } else { 0 }
    }
}

impl Ledger<'_> {
    /// The process in slot `index` joins those who hold the memory of `key`. Its place, and the bytes that it is
    /// charged; nothing if nobody of the pod holds it. Where several pieces have the key, one that `suits` is taken,
    /// and if there is none the first.
    ///
    /// One thread of a process at a time may share and leave, and it must count for itself how often it joined.
    pub fn join_shared(&self, index: u32, key: u64, suits: impl Fn(usize) -> bool) -> Option<(usize, u64)> {
        let mut of_key = self.used_shared().filter(|(_, entry)| entry.lives_as(key));
        let first = of_key.next()?;
        let (place, entry) =
            if suits(first.0) { first } else { of_key.find(|(place, _)| suits(*place)).unwrap_or(first) };
        entry.set(index);
        if entry.lives_as(key) {
            return Some((place, entry.bytes.load(SeqCst)));
        }
        entry.leave(index);
        None
    }

    /// The process in slot `index` holds memory of `bytes` that others may come to hold: charged here from now on, so
    /// that it can be taken from the slot. Its place; nothing where there is no room.
    pub fn share(&self, index: u32, key: u64, bytes: u64) -> Option<usize> {
        let take = |entry: &Shared| entry.state.compare_exchange(FREE, at_it(index), SeqCst, SeqCst).is_ok();
        let place = self.shared.iter().position(take)?;
        let entry = self.shared.get(place)?;
        // Sums must look here before the entry counts anything.
        self.header.shared_high_water.fetch_max(u32::try_from(place).ok()? + 1, SeqCst);
        entry.key.store(key, SeqCst);
        entry.bytes.store(bytes, SeqCst);
        entry.set(index);
        entry.state.store(LIVES, SeqCst);
        Some(place)
    }

    /// The process in slot `index` no longer holds the memory at `place`.
    pub fn leave_shared(&self, index: u32, place: usize) {
        if let Some(entry) = self.shared.get(place) {
            entry.leave(index);
        }
    }

    /// Bytes of all memory that somebody holds.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.used_shared().fold(0, |sum: u64, (_, entry)| sum.saturating_add(entry.charge()))
    }

    /// Bytes of the memory that the process in slot `index` holds as the first of those who do.
    pub(super) fn shared_bytes_of(&self, index: u32) -> u64 {
        let first = self.used_shared().filter(|(_, entry)| entry.first_holder() == Some(index));
        first.fold(0, |sum: u64, (_, entry)| sum.saturating_add(entry.charge()))
    }

    /// The process in slot `index` is gone.
    pub(super) fn clear_shared(&self, index: u32) {
        for (_, entry) in self.used_shared() {
            entry.leave(index);
            if entry.state.load(SeqCst) == at_it(index) {
                entry.decide();
                entry.free_unheld(index);
            }
        }
    }

    fn used_shared(&self) -> impl Iterator<Item = (usize, &Shared)> {
        let used = self.header.shared_high_water.load(SeqCst) as usize;
        self.shared.iter().take(used).enumerate()
    }
}
