//! The calling process as a holder of memory, contexts and device time.

mod segments;

use std::sync::atomic::Ordering::SeqCst;

use crate::{
    error::Error,
    fork::ForkMark,
    layout::{HoldingState, MAX_PROCESSES},
    locks::{self, SlotHolder},
    machine::Machine,
    memory::{self, CardAccount, GRANULE, SlotLost, TAGS, TakeRefusal, change, empty},
    time::{self, Booking},
};

/// Why a process did not get what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The card has not that much memory left.
    #[error("the card has not that much memory left")]
    NoMemory,
    /// The card is lost.
    #[error("the card is lost")]
    CardLost,
    /// The membership isn't the calling process's: it forked, or closed the descriptor of the state file.
    #[error("the process lost its place among the simulated GPUs' processes")]
    PlaceLost,
    /// The file beside the state file can't hold a segment.
    #[error("the file beside the state of the simulated GPUs, *.shared, can't be made or can't hold more")]
    NoShare,
}

/// The calling process's membership. It ends with the process; nothing has to be given back.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    machine: Machine,
    slot: usize,
    tag: u64,
    mark: ForkMark,
}

impl Machine {
    /// Makes the calling process one that can hold memory and contexts. A process has one membership: when another
    /// copy of this code in the process has joined already, this returns the same one.
    /// Fails when [`crate::MAX_PROCESSES`] others hold one.
    pub fn join(&self) -> Result<Process, Error> {
        let machine = *self;
        let mark = ForkMark::here();
        let fd = machine.fd();
        let found = locks::one_at_a_time(fd, || {
            let me = SlotHolder::Process(Some(std::process::id()));
            let mine = (0..machine.slots_in_use()).find(|&slot| machine.holder(slot) == me);
            if let Some(slot) = mine {
                return Some((slot, machine.slots()[slot].tag.load(SeqCst)));
            }
            let slot = (0..MAX_PROCESSES).find(|&slot| locks::try_hold(fd, slot))?;
            Some((slot, move_in(machine, slot)))
        });
        let (slot, tag) = found.ok_or(Error::Full { slots: MAX_PROCESSES })?;
        Ok(Process { machine, slot, tag, mark })
    }
}

/// Writes a new tag into every word of the slot. What its last owner held is forgotten, which gives it back.
fn move_in(machine: Machine, slot: usize) -> u64 {
    let tag = 1 + machine.header().joined.fetch_add(1, SeqCst) % (TAGS - 1);
    let state = &machine.slots()[slot];
    state.tag.store(0, SeqCst);
    let high_water = u32::try_from(slot + 1).unwrap_or_default();
    machine.header().high_water.fetch_max(high_water, SeqCst);
    for card in 0..machine.card_count() {
        let cell = &machine.cells(card)[slot];
        for word in [&cell.committed, &cell.pending, &cell.contexts] {
            word.store(empty(tag), SeqCst);
        }
        cell.busy.clear();
    }
    machine.forget_segments_of(slot);
    state.tag.store(tag, SeqCst);
    tag
}

impl Process {
    /// The machine that was joined.
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// Takes `bytes`, rounded up to [`GRANULE`], of card `card`; all or nothing. Dead processes' memory is reclaimed
    /// before it is refused. Fails when the card is full or lost or the membership is.
    pub fn take_memory(&self, card: usize, bytes: u64) -> Result<(), TakeError> {
        let granules = bytes.div_ceil(GRANULE);
        self.take_with(card, granules, || {
            change(&self.cell(card).committed, self.tag, i64::try_from(granules).unwrap_or(i64::MAX))
        })
    }

    /// Takes granules of card `card` that `enter` enters somewhere.
    pub(crate) fn take_with(
        &self,
        card: usize,
        granules: u64,
        enter: impl FnOnce() -> Result<(), SlotLost>,
    ) -> Result<(), TakeError> {
        self.check(card)?;
        let account = CardAccount {
            total: self.machine.card(card).map_or(0, |card| card.total_memory()) / GRANULE,
            cells: || &self.machine.cells(card)[..self.machine.slots_in_use()],
            shared: || self.machine.shared_granules(card),
            sweep: || self.machine.sweep(),
        };
        memory::take(&account, self.slot, self.tag, granules, enter).map_err(|refused| match refused {
            TakeRefusal::NoMemory => TakeError::NoMemory,
            TakeRefusal::SlotLost => TakeError::PlaceLost,
        })
    }

    pub(crate) const fn slot(&self) -> usize {
        self.slot
    }

    pub(crate) const fn tag(&self) -> u64 {
        self.tag
    }

    /// Whether the membership is still the calling process's.
    pub(crate) fn is_member(&self) -> bool {
        self.mark.holds() && self.machine.tag_of(self.slot) == self.tag
    }

    /// Gives back `bytes` that [`Self::take_memory`] gave; the same figure, so that it rounds the same way.
    pub fn give_memory(&self, card: usize, bytes: u64) {
        if self.mark.holds() {
            memory::give(self.cell(card), self.tag, bytes.div_ceil(GRANULE));
        }
    }

    /// Memory that this process holds of card `card`, in bytes.
    pub fn held_memory(&self, card: usize) -> u64 {
        memory::amount(&self.cell(card).committed) * GRANULE
    }

    /// Counts one more context and takes the card model's context memory; all or nothing.
    /// Fails as [`Self::take_memory`] does.
    pub fn open_context(&self, card: usize) -> Result<(), TakeError> {
        self.take_memory(card, self.context_memory(card))?;
        change(&self.cell(card).contexts, self.tag, 1).map_err(|_| TakeError::PlaceLost)
    }

    /// Takes back what [`Self::open_context`] did.
    pub fn close_context(&self, card: usize) {
        if self.mark.holds() && change(&self.cell(card).contexts, self.tag, -1).is_ok() {
            self.give_memory(card, self.context_memory(card));
        }
    }

    /// Books `duration` nanoseconds of card `card`'s time, after everything booked so far and not before `earliest`
    /// (nanoseconds of [`crate::now_ns`]). Fails when the card is lost or the membership is.
    ///
    /// Book a few milliseconds at a time and not far ahead: a booking can't be taken back, and stands even when its
    /// process dies.
    pub fn book(&self, card: usize, earliest: u64, duration: u64) -> Result<Booking, TakeError> {
        self.check(card)?;
        let booking = time::book(self.machine.card_state(card), earliest, duration);
        self.cell(card).busy.add(booking.start, booking.end);
        Ok(booking)
    }

    fn check(&self, card: usize) -> Result<(), TakeError> {
        if !self.is_member() {
            return Err(TakeError::PlaceLost);
        }
        if self.machine.card(card).is_none_or(|card| card.lost()) {
            return Err(TakeError::CardLost);
        }
        Ok(())
    }

    fn context_memory(&self, card: usize) -> u64 {
        self.machine.card(card).map_or(0, |card| card.model().context_memory)
    }

    fn cell(&self, card: usize) -> &'static HoldingState {
        &self.machine.cells(card)[self.slot]
    }
}
