//! The core limit of one pod: a token bucket of device time that all of its processes draw from, without locks.
//!
//! The bucket is one word, the moment until which the pod's use is paid for at its rate. It moves ahead with every
//! launch, by what the launch costs; the pod may launch again once that moment has come. Time itself is the refill, so
//! nobody has to do it: a pod goes on at its last rate while the agent is away, and a process killed at any
//! instruction leaves a word that is right. (Queueing theory knows this as the generic cell rate algorithm.)
//!
//! A launch is let through as soon as nothing is owed, whatever it costs itself, and is paid for afterwards: a kernel
//! longer than the whole budget runs, and the pod then waits.
//!
//! Any process of the pod can falsify the words. Then the pod is held too much or not at all for a while, never for
//! longer than [`LONGEST_DEBT_NS`], and nobody else is touched: the agent judges by what NVML measures.

use crate::atomic::{AtomicU64, Ordering};

/// A pod is never made to wait longer than this, in nanoseconds.
pub const LONGEST_DEBT_NS: u64 = 600_000_000_000;

/// The most that a single launch is charged, in nanoseconds of device time.
pub const HIGHEST_COST_NS: u64 = 60_000_000_000;

/// How often [`Bucket::take`] tries again when others launch at the same moment, before it lets the launch through
/// uncharged.
const ATTEMPTS: u32 = 1000;

/// How fast a pod may use its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds of device time, as the pod's processes charge them, for each second.
    pub per_second: u64,
    /// How long an unused right is kept, in nanoseconds of ordinary time.
    pub burst: u64,
}

impl Rate {
    /// No limit: launches are not even counted.
    pub const UNLIMITED: Self = Self { per_second: u64::MAX, burst: 0 };

    /// Whether there is a limit at all.
    pub const fn is_limited(self) -> bool {
        self.per_second != u64::MAX
    }

    /// Nanoseconds of ordinary time that pay for `cost` nanoseconds of device time.
    fn time_for(self, cost: u64) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        const FRACTION_BITS: u32 = 16;
        let price = (SECOND << FRACTION_BITS) / if self.per_second == 0 { 1 } else { self.per_second };
        cost.min(HIGHEST_COST_NS).saturating_mul(price) >> FRACTION_BITS
    }
}

/// The bucket, in shared memory that every process of the pod may write. All zero is a full one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bucket {
    /// The moment until which use is paid for.
    paid_until: AtomicU64,
    /// Everything ever charged, in nanoseconds of device time; wraps.
    charged: AtomicU64,
    /// For how long processes ever waited, in nanoseconds; wraps.
    waited: AtomicU64,
}

/// What a pod has used and wanted so far. Both wrap around: only differences mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Device time charged, in nanoseconds.
    pub charged: u64,
    /// Time that processes waited for their limit, in nanoseconds, all threads together.
    pub waited: u64,
}

impl Bucket {
    /// Charges a launch of `cost` nanoseconds of device time, if the pod owes nothing at `now` (nanoseconds of the
    /// machine's monotonic clock). Otherwise the time until it may launch, in nanoseconds.
    pub fn take(&self, now: u64, cost: u64, rate: Rate) -> Result<(), u64> {
        let time = rate.time_for(cost);
        for _ in 0..ATTEMPTS {
            let stored = self.paid_until.load(Ordering::Relaxed);
            let paid = believable(stored, now, rate);
            let owes = paid > now;
            let next = if owes { paid } else { after(paid, time, now) };
            if owes && next == stored {
                return Err(paid - now);
            }
            // An unbelievable moment is put right before anybody waits for it.
            if self
                .paid_until
                .compare_exchange_weak(stored, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                if owes {
                    return Err(paid - now);
                }
                self.charged.fetch_add(cost.min(HIGHEST_COST_NS), Ordering::Relaxed);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Charges what a launch turned out to cost beyond what [`Self::take`] was told, in nanoseconds of device time.
    pub fn settle(&self, now: u64, cost: u64, rate: Rate) {
        let time = rate.time_for(cost);
        let paid = |stored| Some(after(believable(stored, now, rate), time, now));
        // The closure always has an answer.
        let _ = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
        self.charged.fetch_add(cost.min(HIGHEST_COST_NS), Ordering::Relaxed);
    }

    /// A process has waited for `time` nanoseconds.
    pub fn note_wait(&self, time: u64) {
        self.waited.fetch_add(time, Ordering::Relaxed);
    }

    /// What was used so far.
    pub fn usage(&self) -> Usage {
        Usage { charged: self.charged.load(Ordering::Relaxed), waited: self.waited.load(Ordering::Relaxed) }
    }
}

/// The stored moment, if it can be: not longer ago than rights are kept, not further ahead than anybody must wait.
const fn believable(stored: u64, now: u64, rate: Rate) -> u64 {
    let oldest = now.saturating_sub(rate.burst);
    let latest = now.saturating_add(LONGEST_DEBT_NS);
    if stored < oldest {
        oldest
    } else if stored > latest {
        latest
    } else {
        stored
    }
}

/// The moment until which use is paid for when `time` more is owed.
fn after(paid: u64, time: u64, now: u64) -> u64 {
    paid.saturating_add(time).min(now.saturating_add(LONGEST_DEBT_NS))
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
