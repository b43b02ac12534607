//! The machine's clock and the cards' device time.
//!
//! A card works off one booking after another. Whoever books makes sure not to book far ahead (`simgpu-cuda` books
//! a few milliseconds at a time): then a killed process holds the card up for no longer than that, and processes that
//! book at the same time take turns.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::layout::CardState;

/// A booking this far ahead can't be true (a state file that survived a reboot): it is ignored.
const ABSURD_NS: u64 = 60_000_000_000;

/// A stretch of device time, in nanoseconds of [`now_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booking {
    /// When the card begins with it.
    pub start: u64,
    /// When the card is done with it.
    pub end: u64,
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the same in every process of the machine.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// Returns once [`now_ns`] has reached `end`; never earlier.
pub fn sleep_until(end: u64) {
    let time = libc::timespec {
        tv_sec: i64::try_from(end / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(end % 1_000_000_000).unwrap_or_default(),
    };
    while now_ns() < end {
        // SAFETY: the structure is valid; an interrupted sleep is repeated by the loop.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const time,
                std::ptr::null_mut(),
            )
        };
    }
}

/// Books `duration` nanoseconds of the card, not before `earliest`.
pub(crate) fn book(card: &CardState, earliest: u64, duration: u64) -> Booking {
    let now = now_ns();
    let mut free_at = card.free_at.load(Acquire);
    loop {
        let queue_end = if free_at > now + ABSURD_NS { now } else { free_at };
        let start = now.max(earliest).max(queue_end);
        let end = start + duration;
        match card.free_at.compare_exchange_weak(free_at, end, AcqRel, Acquire) {
            Ok(_) => {
                card.busy.add(start, end);
                return Booking { start, end };
            }
            Err(seen) => free_at = seen,
        }
    }
}
