//! The machine as a whole: its cards and its processes.

use std::sync::atomic::Ordering::SeqCst;

use crate::{
    Card, Error, Process, Settings,
    layout::{self, CardState, Cell, Header, MAX_PROCESSES, MAX_SEGMENTS, SegmentState, SlotState},
    locks::{self, Holder},
    memory, process,
    state_file::{self, SharedFile, StateFile},
};

/// The simulated machine, opened. Cheap to copy; stays open until the process ends.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    file: StateFile,
    cards: usize,
}

// SAFETY: the mapping is never unmapped, its constant parts are never written after the file got its name, and all
// other words are atomics.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Machine {
    /// Opens the machine that the environment describes, making its state if there is none ([`Settings::from_env`]).
    /// Fails when the file can't be opened or isn't a whole state file of this build.
    pub fn open_from_env() -> Result<Self, Error> {
        Self::open(&Settings::from_env()?)
    }

    /// Opens the machine in `settings.path`, making it with `settings.cards` if there is none; fails as
    /// [`Self::open_from_env`] does.
    ///
    /// Each call keeps one more descriptor open for ever: call it once per process and library.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let file = state_file::open_or_create(settings)?;
        // SAFETY: the file was checked to begin with a whole header.
        let cards = unsafe { (*file.base.cast::<Header>()).cards } as usize;
        Ok(Self { file, cards })
    }

    /// How many cards there are, 1..=[`crate::MAX_CARDS`].
    pub const fn card_count(&self) -> usize {
        self.cards
    }

    /// Card number `index`, counted from 0 in the order of the PCI bus.
    pub fn card(&self, index: usize) -> Option<Card> {
        (index < self.cards).then(|| Card::new(*self, index))
    }

    /// All cards in the order of their indices.
    pub fn cards(&self) -> impl ExactSizeIterator<Item = Card> {
        let machine = *self;
        (0..self.cards).map(move |index| Card::new(machine, index))
    }

    /// Makes the calling process one that can hold memory and contexts. A process has one membership: when another
    /// copy of this code in the process has joined already, this returns the same one.
    /// Fails when [`crate::MAX_PROCESSES`] others hold one.
    pub fn join(&self) -> Result<Process, Error> {
        process::join(*self)
    }

    /// Gives back what dead processes hold. Every query and every refusal does this by itself.
    pub fn sweep(&self) {
        self.sweep_segments();
        for slot in 0..self.slots_in_use() {
            // Looking comes before asking who lives: see `memory::forget`.
            let seen: Vec<_> = (0..self.cards).map(|card| memory::look(&self.cells(card)[slot])).collect();
            if seen.iter().all(|cell| cell.is_empty()) || self.holder(slot) != Holder::Nobody {
                continue;
            }
            for (card, seen) in seen.into_iter().enumerate() {
                memory::forget(&self.cells(card)[slot], seen);
            }
        }
    }

    pub(crate) fn holder(&self, slot: usize) -> Holder {
        locks::holder(self.file.fd, slot)
    }

    pub(crate) const fn fd(&self) -> std::os::fd::RawFd {
        self.file.fd
    }

    pub(crate) const fn shared(&self) -> &'static SharedFile {
        self.file.shared
    }

    /// The tag of the slot's last owner.
    pub(crate) fn tag_of(&self, slot: usize) -> u64 {
        self.slots()[slot].tag.load(SeqCst)
    }

    /// Every record of a segment, used or not.
    pub(crate) fn all_segments(&self) -> &'static [SegmentState] {
        // SAFETY: the file was checked to hold all records.
        unsafe {
            let first = self.file.base.byte_add(layout::segments_offset(self.cards)).cast::<SegmentState>();
            std::slice::from_raw_parts(first, MAX_SEGMENTS)
        }
    }

    pub(crate) fn header(&self) -> &'static Header {
        // SAFETY: the mapping holds a whole header and lasts as long as the process.
        unsafe { &*self.file.base.cast::<Header>() }
    }

    /// How many slots were ever used.
    pub(crate) fn slots_in_use(&self) -> usize {
        (self.header().high_water.load(SeqCst) as usize).min(MAX_PROCESSES)
    }

    pub(crate) fn card_state(&self, card: usize) -> &'static CardState {
        debug_assert!(card < self.cards, "card {card} of {}", self.cards);
        // SAFETY: the file was checked to hold `cards` cards.
        unsafe { &*self.file.base.byte_add(layout::cards_offset()).cast::<CardState>().add(card) }
    }

    pub(crate) fn slots(&self) -> &'static [SlotState] {
        // SAFETY: the file was checked to hold all slots.
        unsafe {
            let first = self.file.base.byte_add(layout::slots_offset(self.cards)).cast::<SlotState>();
            std::slice::from_raw_parts(first, MAX_PROCESSES)
        }
    }

    /// The cells of one card, one per slot.
    pub(crate) fn cells(&self, card: usize) -> &'static [Cell] {
        debug_assert!(card < self.cards, "card {card} of {}", self.cards);
        // SAFETY: the file was checked to hold all cells of all cards.
        unsafe {
            let first = self.file.base.byte_add(layout::cells_offset(self.cards)).cast::<Cell>();
            std::slice::from_raw_parts(first.add(card * MAX_PROCESSES), MAX_PROCESSES)
        }
    }
}
