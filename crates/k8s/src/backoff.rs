//! Exponential back-off.

use std::time::Duration;

/// How long to wait before something that failed is tried again: the first delay, then twice as long after each failure
/// in a row, up to the longest. Without jitter: whoever uses it is one process, or two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Delays from `first` on, up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The delay after this many failures in a row; none after no failure.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}
