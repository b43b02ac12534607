//! Making, holding, mapping and passing on segments.

use std::{
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    sync::atomic::Ordering::SeqCst,
};

use super::{Process, TakeError};
use crate::{
    locks::{self, SlotHolder},
    memory::GRANULE,
    segment::{Segment, SegmentCharge},
};

impl Process {
    /// Makes a segment of `bytes` that this process holds, of memory of card `card`. Fails as
    /// [`Self::take_memory`] does, and with [`TakeError::NoShare`] where no file can hold it.
    pub fn create_segment(
        &self,
        card: usize,
        bytes: u64,
        counted: SegmentCharge,
    ) -> Result<Segment, TakeError> {
        let granules = if counted == SegmentCharge::Card { bytes.div_ceil(GRANULE) } else { 0 };
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
        let holder = (self.slot(), self.tag());
        self.machine().publish_segment(holder, card, bytes, granules).ok_or(TakeError::NoShare)
    }

    /// Lets this process hold the segment with that record and serial; `None` where it is gone.
    pub fn hold_segment(&self, index: usize, serial: u64) -> Option<Segment> {
        self.machine().hold_segment(self.slot(), index, |found| found == serial)
    }

    /// Lets this process hold the segment of an exported descriptor; `None` where it is none.
    pub fn import_segment(&self, descriptor: RawFd) -> Option<Segment> {
        let fd = self.machine().shared().open()?;
        let index = usize::try_from(locks::export_of(fd, descriptor)?).ok()?;
        self.machine().hold_segment(self.slot(), index, |_| true)
    }

    /// Ends what [`Self::create_segment`] and [`Self::hold_segment`] began; a process holds a segment once, however
    /// often it said so.
    pub fn drop_segment(&self, segment: &Segment) {
        if !self.is_member() {
            return;
        }
        self.machine().drop_segment(self.slot(), segment);
    }

    /// Whether the process that made a segment lives.
    pub fn maker_lives(&self, segment: &Segment) -> bool {
        let machine = self.machine();
        let maker = machine.all_segments()[segment.index].maker.load(SeqCst);
        let slot = (0..machine.slots_in_use()).find(|&slot| machine.tag_of(slot) == maker);
        slot.is_some_and(|slot| machine.holder(slot) != SlotHolder::Nobody)
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
