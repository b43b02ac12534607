//! How busy something was over the last second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Utilisation is measured over this much time before now, in nanoseconds.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// Length of one bucket in nanoseconds.
const BUCKET_NS: u64 = 50_000_000;
/// Buckets of a ring: the last second and 2.2 seconds of work that is already booked.
const BUCKETS: usize = 64;

/// Busy time in buckets of 50 ms. A word holds the bucket's number (upper half) and its busy nanoseconds (lower half),
/// so that an outdated word is told from a current one without any clean-up.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct BusyTime([AtomicU64; BUCKETS]);

impl BusyTime {
    /// Counts `[start, end)` as busy.
    pub(crate) fn add(&self, start: u64, end: u64) {
        let mut from = start;
        // Work that reaches beyond the ring would overwrite the present.
        let end = end.min(start + BUCKET_NS * (BUCKETS as u64 - 24));
        while from < end {
            let bucket = from / BUCKET_NS;
            let until = end.min((bucket + 1) * BUCKET_NS);
            self.add_to(bucket, until - from);
            from = until;
        }
    }

    fn add_to(&self, bucket: u64, busy: u64) {
        let word = self.word(bucket);
        let mut old = word.load(Relaxed);
        loop {
            let new = match (old >> 32).cmp(&(bucket & 0xFFFF_FFFF)) {
                std::cmp::Ordering::Equal => {
                    (old & !0xFFFF_FFFF) | ((old & 0xFFFF_FFFF) + busy).min(BUCKET_NS)
                }
                std::cmp::Ordering::Less => (bucket << 32) | busy,
                std::cmp::Ordering::Greater => return,
            };
            match word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => old = seen,
            }
        }
    }

    /// Busy nanoseconds in the [`WINDOW_NS`] before `now`.
    pub(crate) fn busy_ns(&self, now: u64) -> u64 {
        self.busy_between(now.saturating_sub(WINDOW_NS), now)
    }

    /// Busy nanoseconds from `start`, which must not be more than [`WINDOW_NS`] ago, to `now`. The two buckets at the
    /// ends count in proportion.
    fn busy_between(&self, start: u64, now: u64) -> u64 {
        let mut busy = 0;
        for bucket in start / BUCKET_NS..=now / BUCKET_NS {
            let word = self.word(bucket).load(Relaxed);
            if word >> 32 != bucket & 0xFFFF_FFFF {
                continue;
            }
            let from = start.max(bucket * BUCKET_NS);
            let until = now.min((bucket + 1) * BUCKET_NS);
            let in_bucket = word & 0xFFFF_FFFF;
            // The present bucket may hold work that is booked but not begun: no more than has passed counts.
            busy += if until == now && from == bucket * BUCKET_NS {
                in_bucket.min(until - from)
            } else {
                in_bucket * (until - from) / BUCKET_NS
            };
        }
        busy
    }

    /// [`Self::busy_ns`] as a percentage, 0..=100.
    pub(crate) fn percent(&self, now: u64) -> u32 {
        self.percent_since(now.saturating_sub(WINDOW_NS), now)
    }

    /// Percentage of the time from `since` to `now` that was busy, 0..=100; of the [`WINDOW_NS`] before `now` where
    /// `since` is longer ago.
    pub(crate) fn percent_since(&self, since: u64, now: u64) -> u32 {
        let start = since.max(now.saturating_sub(WINDOW_NS));
        let length = now.saturating_sub(start);
        let percent = (self.busy_between(start, now) * 100 + length / 2).checked_div(length).unwrap_or(0);
        u32::try_from(percent.min(100)).unwrap_or(100)
    }

    /// Forgets everything: the slot has a new owner.
    pub(crate) fn clear(&self) {
        for word in &self.0 {
            word.store(0, Relaxed);
        }
    }

    fn word(&self, bucket: u64) -> &AtomicU64 {
        &self.0[usize::try_from(bucket % BUCKETS as u64).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> BusyTime {
        BusyTime([const { AtomicU64::new(0) }; BUCKETS])
    }

    #[test]
    fn half_a_second_of_work_is_half_busy() {
        let ring = ring();
        let now = 77 * WINDOW_NS;
        ring.add(now - 700_000_000, now - 200_000_000);
        assert_eq!(ring.percent(now), 50);
        assert_eq!(ring.percent(now + 400_000_000), 40);
        assert_eq!(ring.percent(now + 2 * WINDOW_NS), 0);
    }

    #[test]
    fn a_shorter_look_back_sees_only_its_own_time() {
        let ring = ring();
        let now = 9 * WINDOW_NS;
        ring.add(now - 200_000_000, now - 100_000_000);
        assert_eq!(ring.percent_since(now - 400_000_000, now), 25);
        assert_eq!(ring.percent_since(now - 200_000_000, now), 50);
        assert_eq!(ring.percent_since(now - 100_000_000, now), 0);
        assert_eq!([0, now].map(|since| ring.percent_since(since, now)), [10, 0]);
    }

    #[test]
    fn booked_work_counts_only_once_its_time_has_come() {
        let ring = ring();
        let now = 5 * WINDOW_NS;
        ring.add(now, now + WINDOW_NS);
        assert_eq!(ring.percent(now), 0);
        assert_eq!(ring.percent(now + WINDOW_NS / 2), 50);
        assert_eq!(ring.percent(now + WINDOW_NS), 100);
    }

    #[test]
    fn an_hour_of_silence_leaves_no_trace() {
        let ring = ring();
        ring.add(WINDOW_NS, 2 * WINDOW_NS);
        let later = 3600 * WINDOW_NS + 17;
        assert_eq!(ring.percent(later), 0);
        ring.add(later, later + 250_000_000);
        assert_eq!(ring.percent(later + WINDOW_NS / 4), 25);
    }
}
