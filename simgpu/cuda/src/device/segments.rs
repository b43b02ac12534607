//! Segments that this process holds, and how often it uses each: the machine only knows whether a process holds one.

use std::{collections::BTreeMap, os::fd::RawFd, sync::Mutex};

use simgpu_device::{Segment, SegmentCharge};

use crate::{
    device::initialised::{Initialised, initialised},
    error::{CuError, CuResult},
    sync::lock,
};

/// Serial and uses of each held segment, by the place of its record.
static USES: Mutex<BTreeMap<usize, (u64, u32)>> = Mutex::new(BTreeMap::new());

/// Makes a segment of `bytes` on a card (its index in the machine), used once.
pub(crate) fn create(card: usize, bytes: u64, counted: SegmentCharge) -> CuResult<Segment> {
    let process = initialised()?.process()?;
    let mut uses = lock(&USES);
    let segment = process.create_segment(card, bytes, counted)?;
    uses.insert(segment.index, (segment.serial, 1));
    Ok(segment)
}

/// Turns memory that this process took of a card into a segment, used once.
pub(crate) fn convert(card: usize, bytes: u64) -> CuResult<Segment> {
    let process = initialised()?.process()?;
    let mut uses = lock(&USES);
    let segment = process.share_memory(card, bytes)?;
    uses.insert(segment.index, (segment.serial, 1));
    Ok(segment)
}

/// One more use of the segment with that record and serial; `None` where it is gone.
pub(crate) fn open(index: usize, serial: u64) -> CuResult<Option<Segment>> {
    add_use(|process| process.hold_segment(index, serial))
}

/// One more use of the segment of an exported descriptor; `None` where it is none.
pub(crate) fn import(descriptor: RawFd) -> CuResult<Option<Segment>> {
    add_use(|process| process.import_segment(descriptor))
}

fn add_use(hold: impl FnOnce(simgpu_device::Process) -> Option<Segment>) -> CuResult<Option<Segment>> {
    let process = initialised()?.process()?;
    let mut uses = lock(&USES);
    let segment = hold(process);
    if let Some(segment) = segment {
        uses.entry(segment.index).or_insert((segment.serial, 0)).1 += 1;
    }
    Ok(segment)
}

/// Whether this process holds the segment with that record and serial.
pub(crate) fn holds(index: u64, serial: u64) -> bool {
    let held = usize::try_from(index).ok().and_then(|index| lock(&USES).get(&index).map(|(held, _)| *held));
    held == Some(serial)
}

/// One use less; with the last one this process holds it no more.
pub(crate) fn release(segment: &Segment) {
    let mut uses = lock(&USES);
    let Some((_, count)) = uses.get_mut(&segment.index) else { return };
    *count -= 1;
    if *count == 0 {
        uses.remove(&segment.index);
        if let Ok(process) = initialised().and_then(Initialised::process) {
            process.drop_segment(segment);
        }
    }
}

/// A descriptor that stands for a segment, for the program to pass on.
pub(crate) fn export(segment: &Segment) -> CuResult<std::os::fd::OwnedFd> {
    initialised()?.process()?.export_segment(segment).ok_or(CuError::OPERATING_SYSTEM)
}
