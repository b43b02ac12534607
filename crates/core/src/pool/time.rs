//! Moments and spans. The pool has no clock: every moment is one that the caller read.

use std::fmt;
use std::ops::{Add, Sub};

/// A moment: milliseconds since the machine started, time asleep included (Linux's `CLOCK_BOOTTIME`). It never goes
/// back, starts again at 0 with the machine, and says nothing about the time of day.
///
/// Sums and differences saturate: a clock that was read in another order than the events came must not stop the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Timestamp(pub u64);

/// A span of time in milliseconds; never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Millis(pub u64);

impl Millis {
    /// The span of `seconds`; the longest there is when it would pass that.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}

/// The moment a span later; `Timestamp(u64::MAX)` when it would pass that.
impl Add<Millis> for Timestamp {
    type Output = Self;

    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// The span from the right moment to the left one; zero when the right one is later.
impl Sub for Timestamp {
    type Output = Millis;

    fn sub(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// The two spans one after the other; the longest there is when it would pass that.
impl Add for Millis {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_span_later_and_back_is_the_span_unless_time_ends(at in any::<u64>(), span in any::<u64>()) {
            let (start, span) = (Timestamp(at), Millis(span));
            let later = start + span;
            prop_assert!(later >= start);
            prop_assert_eq!(later - start, span.min(Timestamp(u64::MAX) - start));
            prop_assert_eq!(start - later, Millis(0));
        }

        #[test]
        fn spans_one_after_the_other_are_their_sum(at in any::<u64>(), a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(Timestamp(at) + Millis(a) + Millis(b), Timestamp(at) + (Millis(a) + Millis(b)));
        }
    }
}
