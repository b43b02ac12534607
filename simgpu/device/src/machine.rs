//! The machine: the shared state, opened, and the parts of it by their numbers.

use std::sync::atomic::Ordering::SeqCst;

use crate::{
    error::Error,
    layout::{self, CardState, Header, HoldingState, MAX_PROCESSES, MAX_SEGMENTS, SegmentState, SlotState},
    locks::{self, SlotHolder},
    settings::MachineSettings,
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
    /// Opens the machine that the environment describes, making its state if there is none
    /// ([`MachineSettings::from_env`]).
    /// Fails when the file can't be opened or isn't a whole state file of this build.
    pub fn open_from_env() -> Result<Self, Error> {
        Self::open(&MachineSettings::from_env()?)
    }

    /// Opens the machine in `settings.path`, making it with `settings.cards` if there is none; fails as
    /// [`Self::open_from_env`] does.
    ///
    /// Each call keeps one more descriptor open for ever: call it once per process and library.
    pub fn open(settings: &MachineSettings) -> Result<Self, Error> {
        let file = state_file::open_or_create(settings)?;
        // SAFETY: the file was checked to begin with a whole header.
        let cards = unsafe { (*file.base.cast::<Header>()).cards } as usize;
        Ok(Self { file, cards })
    }

    /// How many cards there are, 1..=[`crate::MAX_CARDS`].
    pub const fn card_count(&self) -> usize {
        self.cards
    }

    pub(crate) fn holder(&self, slot: usize) -> SlotHolder {
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
    pub(crate) fn cells(&self, card: usize) -> &'static [HoldingState] {
        debug_assert!(card < self.cards, "card {card} of {}", self.cards);
        // SAFETY: the file was checked to hold all cells of all cards.
        unsafe {
            let first = self.file.base.byte_add(layout::cells_offset(self.cards)).cast::<HoldingState>();
            std::slice::from_raw_parts(first.add(card * MAX_PROCESSES), MAX_PROCESSES)
        }
    }
}
