//! Segments: memory that several processes can hold, as a file beside the state file has its bytes.
//!
//! A segment lives as long as somebody holds it: a live process, whose bit is set in the segment's record, or an
//! exported descriptor that is open anywhere, even on its way through a socket. Its memory counts once for the whole
//! machine, and goes when the last holder does, however that ended.
//!
//! Records are changed under a lock that the kernel keeps on the file of bytes and drops when its owner dies; every
//! step leaves a record that the next one can go on from. Figures are read without the lock.
//!
//! An exported descriptor is an open file description of the file of bytes. A record lock on a byte that stands for
//! the segment lasts as long as that description is open somewhere, and its file offset says which segment it is.
//! (The state file itself can't be used for either: closing any of its descriptors would drop the process's locks.)

use std::{os::fd::RawFd, sync::atomic::Ordering::SeqCst};

use crate::{
    layout::{MAX_PROCESSES, MAX_SEGMENTS, SegmentState},
    locks::{self, SlotHolder},
    machine::Machine,
    memory::GRANULE,
};

/// A segment's bytes begin and end in the file on multiples of this many.
const STEP: u64 = 2 << 20;
const PAGE: u64 = 4096;
/// Set in the word of a record that is in use.
const USED: u64 = 1 << 63;
const CARD_SHIFT: u32 = 48;
const CARD: u64 = 0xFF;
const GRANULES: u64 = (1 << CARD_SHIFT) - 1;

/// A segment, as the process that holds it names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Place of its record.
    pub index: usize,
    /// Never used twice in a machine.
    pub serial: u64,
    /// Index of the card that it lies on.
    pub card: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Where its bytes are in the file.
    pub(crate) offset: u64,
}

/// What a segment's memory counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentCharge {
    /// Memory of the card.
    Card,
    /// Not at all: bytes that processes share and no card has.
    Nobody,
}

impl SegmentState {
    fn word(&self) -> Option<u64> {
        Some(self.word.load(SeqCst)).filter(|word| word & USED != 0)
    }

    /// Granules of `card` that it takes.
    fn granules_of(&self, card: usize) -> u64 {
        self.word()
            .filter(|word| (word >> CARD_SHIFT) & CARD == card as u64)
            .map_or(0, |word| word & GRANULES)
    }

    fn holds(&self, slot: usize) -> bool {
        self.holders[slot / 64].load(SeqCst) & (1 << (slot % 64)) != 0
    }

    fn set(&self, slot: usize, holds: bool) {
        let (word, bit) = (&self.holders[slot / 64], 1 << (slot % 64));
        if holds {
            word.fetch_or(bit, SeqCst)
        } else {
            word.fetch_and(!bit, SeqCst)
        };
    }

    /// The slots of live processes that hold it.
    fn live_holders(&self, machine: Machine) -> impl Iterator<Item = usize> {
        (0..machine.slots_in_use())
            .filter(move |&slot| self.holds(slot) && machine.holder(slot) != SlotHolder::Nobody)
    }
}

impl Machine {
    fn segments(&self) -> &'static [SegmentState] {
        let used = self.header().segments_high_water.load(SeqCst) as usize;
        &self.all_segments()[..used.min(MAX_SEGMENTS)]
    }

    /// Memory of `card` in segments, in granules.
    pub(crate) fn shared_granules(&self, card: usize) -> u64 {
        self.segments().iter().map(|segment| segment.granules_of(card)).sum()
    }

    /// Memory of `card` in segments that count as the process's in each slot, in bytes: its maker's while that holds
    /// it, else the lowest holder's.
    pub(crate) fn shared_of_slots(&self, card: usize) -> Vec<(usize, u64)> {
        let sized = |segment: &'static SegmentState| {
            Some((segment, segment.granules_of(card))).filter(|(_, granules)| *granules > 0)
        };
        self.segments()
            .iter()
            .filter_map(sized)
            .filter_map(|(segment, granules)| {
                let maker = segment.maker.load(SeqCst);
                let holder = segment.live_holders(*self);
                let holder = holder.min_by_key(|&slot| (self.tag_of(slot) != maker, slot))?;
                Some((holder, granules * GRANULE))
            })
            .collect()
    }

    /// Frees the segments that nobody holds any more.
    pub(crate) fn sweep_segments(&self) {
        for (index, segment) in self.segments().iter().enumerate() {
            if segment.word().is_some() && segment.live_holders(*self).next().is_none() {
                self.under_lock(|fd| self.free_if_over(fd, index));
            }
        }
    }

    /// A new owner of a slot holds nothing.
    pub(crate) fn forget_segments_of(&self, slot: usize) {
        self.segments().iter().for_each(|segment| segment.set(slot, false));
    }

    /// Makes a segment of `bytes`, of which `granules` count as memory of `card`; the process with `tag` in `slot` holds
    /// it. `None` where no file can hold it.
    pub(crate) fn publish_segment(
        &self,
        (slot, tag): (usize, u64),
        card: usize,
        bytes: u64,
        granules: u64,
    ) -> Option<Segment> {
        self.under_lock(|fd| {
            let index = self.all_segments().iter().position(|segment| segment.word().is_none())?;
            let length = bytes.checked_next_multiple_of(PAGE)?;
            let offset = self.gap(length);
            locks::extend(fd, offset.checked_add(length)?)?;
            let serial = 1 + self.header().serials.fetch_add(1, SeqCst);
            let segment = &self.all_segments()[index];
            segment.holders.iter().for_each(|word| word.store(0, SeqCst));
            segment.set(slot, true);
            segment.serial.store(serial, SeqCst);
            segment.offset.store(offset, SeqCst);
            segment.length.store(length, SeqCst);
            segment.maker.store(tag, SeqCst);
            self.header().segments_high_water.fetch_max(u32::try_from(index + 1).unwrap_or_default(), SeqCst);
            segment.word.store(USED | (card as u64) << CARD_SHIFT | granules & GRANULES, SeqCst);
            Some(Segment { index, serial, card, bytes: length, offset })
        })?
    }

    /// Lets the process in `slot` hold a segment whose serial `fits`; `None` where there is none.
    pub(crate) fn hold_segment(
        &self,
        slot: usize,
        index: usize,
        fits: impl Fn(u64) -> bool,
    ) -> Option<Segment> {
        let segment = self.segments().get(index)?;
        self.under_lock(|_| {
            let word = segment.word()?;
            let serial = segment.serial.load(SeqCst);
            if !fits(serial) {
                return None;
            }
            segment.set(slot, true);
            let card = usize::try_from((word >> CARD_SHIFT) & CARD).ok()?;
            let (bytes, offset) = (segment.length.load(SeqCst), segment.offset.load(SeqCst));
            Some(Segment { index, serial, card, bytes, offset })
        })?
    }

    /// The process in `slot` holds a segment no more; with its last holder it goes.
    pub(crate) fn drop_segment(&self, slot: usize, segment: &Segment) {
        let record = &self.all_segments()[segment.index];
        self.under_lock(|fd| {
            if record.serial.load(SeqCst) == segment.serial {
                record.set(slot, false);
                self.free_if_over(fd, segment.index);
            }
        });
    }

    /// Under the lock: frees a segment unless somebody holds it.
    fn free_if_over(&self, fd: RawFd, index: usize) {
        let segment = &self.all_segments()[index];
        if segment.word().is_none()
            || locks::exported(fd, index)
            || segment.live_holders(*self).next().is_some()
        {
            return;
        }
        locks::punch(fd, segment.offset.load(SeqCst), segment.length.load(SeqCst));
        segment.word.store(0, SeqCst);
    }

    /// Runs `work` on the file of bytes while no other process or thread does; nothing happens where there can be
    /// no such file.
    fn under_lock<T>(&self, work: impl FnOnce(RawFd) -> T) -> Option<T> {
        let shared = self.shared();
        let fd = shared.open()?;
        let _guard = shared.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Some(locks::alone(fd, || work(fd)))
    }

    /// Under the lock: the first gap of `length` bytes between the segments.
    fn gap(&self, length: u64) -> u64 {
        let taken = |segment: &SegmentState| {
            segment.word()?;
            Some((segment.offset.load(SeqCst), segment.length.load(SeqCst)))
        };
        let mut taken: Vec<_> = self.segments().iter().filter_map(taken).collect();
        taken.sort_unstable();
        let mut start = 0;
        for (offset, its_length) in taken {
            if offset >= start + length {
                break;
            }
            start = start.max((offset + its_length).next_multiple_of(STEP));
        }
        start
    }
}

const _: () = assert!(MAX_PROCESSES.is_multiple_of(64));
