//! Taking memory in two steps: announced before the driver's call, charged or given up after it.

use super::Ledger;
use super::slot::{Slot, subtract};
use crate::atomic::Ordering;

/// Why memory was not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The pod holds so much that this does not fit. CUDA's own out-of-memory error is the answer.
    #[error("{wanted} bytes do not fit: {held} of {limit} bytes are held")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that the pod held at that moment.
        held: u64,
        /// The pod's limit in bytes.
        limit: u64,
    },
    /// What is held leaves room, but others kept announcing more than fits for as long as the caller would wait.
    #[error("other processes of the pod kept asking for memory at the same moment")]
    Contended,
    /// The slot lies outside the ledger.
    #[error("slot {0} is not in this ledger")]
    NoSuchSlot(u32),
}

/// Memory that is announced and must be committed or cancelled. Dropping it does neither: the caller may be on its
/// way through the driver, and a lost reservation costs the process its own share, not the pod its limit.
#[derive(Debug)]
#[must_use = "a reservation is charged until it is committed or cancelled"]
pub struct Reservation<'a> {
    slot: &'a Slot,
    bytes: u64,
}

impl Reservation<'_> {
    /// Bytes that [`Ledger::reserve`] announced.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The driver took `actual` bytes: charged first, then no longer announced.
    pub fn commit(self, actual: u64) {
        self.slot.committed.fetch_add(actual, Ordering::SeqCst);
        subtract(&self.slot.pending, self.bytes);
    }

    /// The driver took nothing.
    pub fn cancel(self) {
        subtract(&self.slot.pending, self.bytes);
    }
}

impl<'a> Ledger<'a> {
    /// Reserves `bytes` for the process in slot `index`, so that the pod stays within `limit` bytes.
    ///
    /// Where only somebody else's announcement stands in the way, `wait` is called with 0, 1, 2… before each further
    /// attempt; it may yield or sleep, and gives up with `false`.
    pub fn reserve(
        &self,
        index: u32,
        bytes: u64,
        limit: u64,
        mut wait: impl FnMut(u32) -> bool,
    ) -> Result<Reservation<'a>, ReserveError> {
        let slot = self.slot(index).ok_or(ReserveError::NoSuchSlot(index))?;
        let mut attempt = 0;
        loop {
            // Before anything is announced: an absurd size must not wrap the counter around.
            if bytes > limit {
                return Err(ReserveError::OutOfMemory { wanted: bytes, held: self.committed(), limit });
            }
            slot.pending.fetch_add(bytes, Ordering::SeqCst);
            if self.charged() <= limit {
                return Ok(Reservation { slot, bytes });
            }
            subtract(&slot.pending, bytes);
            let held = self.committed();
            if held.saturating_add(bytes) > limit {
                return Err(ReserveError::OutOfMemory { wanted: bytes, held, limit });
            }
            if !wait(attempt) {
                return Err(ReserveError::Contended);
            }
            attempt += 1;
        }
    }
}
