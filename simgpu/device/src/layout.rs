//! The shared file, byte by byte: a header, the cards, the process slots, one cell per card and slot, the segments.
//!
//! All words that change are atomics. A word that belongs to a process carries the process's tag in its upper bits, so
//! that whoever cleans up after a dead process can't touch what its slot's next owner wrote.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::busy::BusyTime;

/// Most cards of one machine.
pub const MAX_CARDS: usize = 32;
/// Most processes that can hold memory or contexts at the same time.
pub const MAX_PROCESSES: usize = 1024;
/// Most segments that live at the same time.
pub(crate) const MAX_SEGMENTS: usize = 8192;

/// First bytes of every state file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"simgpu\r\n");
/// Changes with every change of this module, of [`crate::MODELS`]' order, or of what the words mean.
pub(crate) const LAYOUT: u32 = 2;

/// Start of the file.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) layout: u32,
    pub(crate) cards: u32,
    /// Size of the whole file in bytes.
    pub(crate) size: u64,
    /// Source of tags; one number per process that ever joined.
    pub(crate) joined: AtomicU64,
    /// Slots at or above this one were never used.
    pub(crate) high_water: AtomicU32,
    /// Records of segments at or above this one were never used.
    pub(crate) segments_high_water: AtomicU32,
    /// Source of the segments' serials.
    pub(crate) serials: AtomicU64,
}

/// One card.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct CardState {
    /// Index into [`crate::MODELS`].
    pub(crate) model: u32,
    /// 1 while the card is lost.
    pub(crate) lost: AtomicU32,
    /// How often it was lost; contexts from before a loss stay dead.
    pub(crate) losses: AtomicU32,
    /// When all work booked so far ends, in nanoseconds of the machine's clock.
    pub(crate) free_at: AtomicU64,
    /// When the card was busy.
    pub(crate) busy: BusyTime,
}

/// One process.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct SlotState {
    /// The owner's tag, 0 while the slot changes hands.
    pub(crate) tag: AtomicU64,
}

/// What one process has of one card.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct HoldingState {
    /// Tagged: memory held, in granules.
    pub(crate) committed: AtomicU64,
    /// Tagged: memory asked for and not yet granted, in granules.
    pub(crate) pending: AtomicU64,
    /// Tagged: live contexts.
    pub(crate) contexts: AtomicU64,
    /// When the card worked for this process.
    pub(crate) busy: BusyTime,
}

/// Memory that several processes can hold. Changed under the lock of the file of bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct SegmentState {
    /// 0 while the record is free; else a mark, the card, and the granules that count. Written last.
    pub(crate) word: AtomicU64,
    /// Never used twice.
    pub(crate) serial: AtomicU64,
    /// Where its bytes begin in the file.
    pub(crate) offset: AtomicU64,
    /// Bytes.
    pub(crate) length: AtomicU64,
    /// Tag of the process that made it.
    pub(crate) maker: AtomicU64,
    /// A bit per slot whose process holds it.
    pub(crate) holders: [AtomicU64; MAX_PROCESSES / 64],
}

pub(crate) const fn cards_offset() -> usize {
    size_of::<Header>()
}

pub(crate) const fn slots_offset(cards: usize) -> usize {
    cards_offset() + cards * size_of::<CardState>()
}

pub(crate) const fn cells_offset(cards: usize) -> usize {
    slots_offset(cards) + MAX_PROCESSES * size_of::<SlotState>()
}

pub(crate) const fn segments_offset(cards: usize) -> usize {
    cells_offset(cards) + cards * MAX_PROCESSES * size_of::<HoldingState>()
}

/// Size of a state file with that many cards, in bytes.
pub(crate) const fn file_size(cards: usize) -> usize {
    segments_offset(cards) + MAX_SEGMENTS * size_of::<SegmentState>()
}
