//! The pod's memory account as this process uses it: reserve, call, commit or cancel.

use gpupool_wire::bucket::{Bucket, Rate};
use gpupool_wire::ledger::{Ledger, Owner, Reservation, ReserveError, Slot};
use gpupool_wire::limits::LimitsPage;

use crate::{stop, sys};

/// The driver hands out plain memory in pieces of this many bytes; charging less would let a thousand small
/// allocations take more than the limit. (Known of NVIDIA's drivers, and how the simulated cards count.)
pub(crate) const GRANULE: u64 = 512;

/// What an allocation of `bytes` takes. An absurd size stays absurd.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
}

/// This process's part of the pod's account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    ledger: Ledger<'static>,
    index: u32,
    slot: &'static Slot,
    limits: &'static LimitsPage,
}

impl Account {
    pub(crate) fn new(ledger: Ledger<'static>, index: u32, limits: &'static LimitsPage) -> Option<Self> {
        Some(Self { ledger, index, slot: ledger.slot(index)?, limits })
    }

    /// This process's slot.
    pub(crate) const fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// The pod's limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.memory_bytes()
    }

    /// The pod's device time.
    pub(crate) const fn bucket(&self) -> &'static Bucket {
        self.ledger.bucket()
    }

    /// How fast the pod may use its device time.
    pub(crate) fn core_rate(&self) -> Rate {
        self.limits.core_rate()
    }

    /// What the pod holds, in bytes; at most its limit, as people are shown it.
    pub(crate) fn used(&self) -> u64 {
        self.ledger.charged().min(self.limit())
    }

    /// The pod's processes that hold something.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> + use<> {
        self.ledger.owners()
    }

    /// What the pod holds, in bytes, without what is only announced.
    pub(crate) fn committed(&self) -> u64 {
        self.ledger.committed()
    }

    /// Whether the pod holds more than it may.
    pub(crate) fn over_limit(&self) -> bool {
        self.ledger.charged() > self.limit()
    }

    /// What a context is charged.
    pub(crate) fn context_bytes(&self) -> u64 {
        self.limits.read().context_reserve_bytes
    }

    /// Announces `bytes`; refuses what does not fit.
    #[inline(never)]
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation<'static>, ReserveError> {
        stop::at(b"reserving");
        let reservation = self.ledger.reserve(self.index, bytes, self.limit(), wait);
        stop::at(b"reserved");
        reservation
    }

    /// Charges what the driver has taken already.
    pub(crate) fn charge_anyway(&self, bytes: u64) {
        self.ledger.charge_anyway(self.index, bytes);
    }

    /// Joins those of the pod who hold the memory of `key`, if possible at a place that `suits`; its place.
    pub(crate) fn join(&self, key: u64, suits: impl Fn(usize) -> bool) -> Option<usize> {
        self.ledger.join_shared(self.index, key, suits).map(|(place, _)| place)
    }

    /// Makes memory of `bytes` one that others may come to hold; its place, if there is room.
    pub(crate) fn share(&self, key: u64, bytes: u64) -> Option<usize> {
        self.ledger.share(self.index, key, bytes)
    }

    /// Holds the memory at `place` no more.
    pub(crate) fn leave(&self, place: usize) {
        self.ledger.leave_shared(self.index, place);
    }

    /// Gives back what the driver gave back.
    pub(crate) fn release(&self, bytes: u64) {
        stop::at(b"releasing");
        self.slot.release(bytes);
        stop::at(b"released");
    }
}

/// A call under way: what it has announced, and to whom.
#[derive(Debug)]
pub(crate) struct Charge {
    pub(crate) account: Account,
    pub(crate) reservation: Reservation<'static>,
}

/// Others are in the middle of an allocation. Most take microseconds; an agent that has to reclaim a killed process's
/// slot, milliseconds. After two seconds the pod is taken as full.
fn wait(attempt: u32) -> bool {
    const YIELDS: u32 = 64;
    const SLEEPS: u32 = 10_000;
    if attempt < YIELDS {
        sys::yield_now();
    } else {
        sys::sleep_microseconds(200);
    }
    attempt < YIELDS + SLEEPS
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn memory_is_charged_in_the_drivers_pieces() {
        assert_eq!([rounded(0), rounded(1), rounded(512), rounded(513)], [0, 512, 512, 1024]);
        assert_eq!(rounded(u64::MAX), u64::MAX);
    }
}
