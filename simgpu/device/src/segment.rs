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

use std::{
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::atomic::Ordering::SeqCst,
};

use crate::{
    Machine, Process, TakeError,
    layout::{MAX_PROCESSES, MAX_SEGMENTS, SegmentState},
    locks::{self, Holder},
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
    offset: u64,
}

/// What a segment's memory counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Memory of the card.
    Card,
    /// Not at all: bytes that processes share and no card has.
    Nowhere,
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
            .filter(move |&slot| self.holds(slot) && machine.holder(slot) != Holder::Nobody)
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

impl Process {
    /// Makes a segment of `bytes` that this process holds, of memory of card `card`. Fails as
    /// [`Self::take_memory`] does, and with [`TakeError::NoShare`] where no file can hold it.
    pub fn create_segment(&self, card: usize, bytes: u64, counted: Counted) -> Result<Segment, TakeError> {
        let granules = if counted == Counted::Card { bytes.div_ceil(GRANULE) } else { 0 };
        let mut made = Err(TakeError::NoShare);
        self.take_with(card, granules, || {
            made = self.publish(card, bytes, granules);
            Ok(())
        })?;
        made
    }

    /// Turns `bytes` of card `card` that [`Self::take_memory`] gave into a segment that this process holds. For a
    /// moment both count.
    pub fn share_memory(&self, card: usize, bytes: u64) -> Result<Segment, TakeError> {
        let segment = self.publish(card, bytes, bytes.div_ceil(GRANULE))?;
        self.give_memory(card, bytes);
        Ok(segment)
    }

    fn publish(&self, card: usize, bytes: u64, granules: u64) -> Result<Segment, TakeError> {
        let machine = self.machine();
        machine
            .under_lock(|fd| self.publish_under_lock(fd, card, bytes, granules))
            .flatten()
            .ok_or(TakeError::NoShare)
    }

    fn publish_under_lock(&self, fd: RawFd, card: usize, bytes: u64, granules: u64) -> Option<Segment> {
        let machine = self.machine();
        let index = machine.all_segments().iter().position(|segment| segment.word().is_none())?;
        let length = bytes.checked_next_multiple_of(PAGE)?;
        let offset = machine.gap(length);
        locks::extend(fd, offset.checked_add(length)?)?;
        let serial = 1 + machine.header().serials.fetch_add(1, SeqCst);
        let segment = &machine.all_segments()[index];
        segment.holders.iter().for_each(|word| word.store(0, SeqCst));
        segment.set(self.slot(), true);
        segment.serial.store(serial, SeqCst);
        segment.offset.store(offset, SeqCst);
        segment.length.store(length, SeqCst);
        segment.maker.store(self.tag(), SeqCst);
        machine.header().segments_high_water.fetch_max(u32::try_from(index + 1).unwrap_or_default(), SeqCst);
        segment.word.store(USED | (card as u64) << CARD_SHIFT | granules & GRANULES, SeqCst);
        Some(Segment { index, serial, card, bytes: length, offset })
    }

    /// Lets this process hold the segment with that record and serial; `None` where it is gone.
    pub fn hold_segment(&self, index: usize, serial: u64) -> Option<Segment> {
        self.hold(index, |found| found == serial)
    }

    /// Lets this process hold the segment of an exported descriptor; `None` where it is none.
    pub fn import_segment(&self, descriptor: RawFd) -> Option<Segment> {
        let fd = self.machine().shared().open()?;
        let index = usize::try_from(locks::export_of(fd, descriptor)?).ok()?;
        self.hold(index, |_| true)
    }

    fn hold(&self, index: usize, fits: impl Fn(u64) -> bool) -> Option<Segment> {
        let machine = self.machine();
        let segment = machine.segments().get(index)?;
        machine.under_lock(|_| {
            let word = segment.word()?;
            let serial = segment.serial.load(SeqCst);
            if !fits(serial) {
                return None;
            }
            segment.set(self.slot(), true);
            let card = usize::try_from((word >> CARD_SHIFT) & CARD).ok()?;
            let (bytes, offset) = (segment.length.load(SeqCst), segment.offset.load(SeqCst));
            Some(Segment { index, serial, card, bytes, offset })
        })?
    }

    /// Ends what [`Self::create_segment`] and [`Self::hold_segment`] began; a process holds a segment once, however
    /// often it said so.
    pub fn drop_segment(&self, segment: &Segment) {
        if !self.is_member() {
            return;
        }
        let machine = self.machine();
        let record = &machine.all_segments()[segment.index];
        machine.under_lock(|fd| {
            if record.serial.load(SeqCst) == segment.serial {
                record.set(self.slot(), false);
                machine.free_if_over(fd, segment.index);
            }
        });
    }

    /// Whether the process that made a segment lives.
    pub fn maker_lives(&self, segment: &Segment) -> bool {
        let machine = self.machine();
        let maker = machine.all_segments()[segment.index].maker.load(SeqCst);
        let slot = (0..machine.slots_in_use()).find(|&slot| machine.tag_of(slot) == maker);
        slot.is_some_and(|slot| machine.holder(slot) != Holder::Nobody)
    }

    /// A descriptor that stands for a held segment: it can be passed to other processes, and holds the segment itself
    /// as long as it is open anywhere. `None` where the system gives none.
    pub fn export_segment(&self, segment: &Segment) -> Option<OwnedFd> {
        let path = &self.machine().shared().path;
        let descriptor = locks::open(path, 0)?;
        // SAFETY: just opened, and nobody else's.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        locks::mark_export(descriptor, segment.index).then_some(owned)
    }

    /// Maps `length` bytes of a held segment from `offset` on, at `address` (whatever is mapped there goes) or at one
    /// of the system's choice. `None` where the system does not.
    ///
    /// # Safety
    /// Nobody uses what is mapped at `address`.
    pub unsafe fn map_segment(
        &self,
        segment: &Segment,
        offset: u64,
        length: u64,
        address: Option<usize>,
        protection: libc::c_int,
    ) -> Option<usize> {
        let fd = self.machine().shared().open()?;
        let end = offset.checked_add(length)?;
        if end > segment.bytes {
            return None;
        }
        let fixed = if address.is_some() { libc::MAP_FIXED } else { 0 };
        let place = std::ptr::with_exposed_provenance_mut(address.unwrap_or(0));
        let start = i64::try_from(segment.offset + offset).ok()?;
        let length = usize::try_from(length).ok()?;
        // SAFETY: a new mapping, at a place that the caller vouches for.
        let mapped = unsafe { libc::mmap(place, length, protection, libc::MAP_SHARED | fixed, fd, start) };
        (mapped != libc::MAP_FAILED).then(|| mapped.expose_provenance())
    }
}

const _: () = assert!(MAX_PROCESSES.is_multiple_of(64));
