//! One pod's controller: from what NVML measured to the rate of its bucket.
//!
//! Two corrections, each for what the other cannot do:
//!
//! * the *price*: what its processes charge for a second of real device time. Charges and use are summed up over the
//!   same time and slowly forgotten; their quotient scales the rate;
//! * the *debt*: how much the pod has had beyond its share, or has missed while it wanted more. It is paid back over
//!   [`PAY_BACK`], so that a pod's mean comes out right although each look is late and coarse.
//!
//! NVML's figure is the mean of a window that ends now and is a whole number of percent: a difference of half a
//! percent says nothing, and a window counts only if the pod was limited during all of it.

use std::collections::VecDeque;
use std::time::Duration;

use gpupool_wire::bucket::{Rate, Usage};

/// How long NVML's window is.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// How long a pod keeps a right that it does not use.
const BURST: Duration = Duration::from_millis(100);

/// In what time a debt is paid back.
const PAY_BACK: f64 = 2.0;

/// After how many seconds of device time a look has lost two thirds of its weight in the price. Not of ordinary time:
/// a small share is made of few launches, and each comes as a whole.
const MEMORY: f64 = 0.6;

/// Differences of the share that mean nothing: NVML rounds.
const DEAD_BAND: f64 = 0.005;

/// A price so near to 1 means nothing either; nor does one whose error is less than [`FAIR_POINTS`] of the card. Both,
/// so that a large share is not left wrong by a few percent of itself.
const FAIR_PRICE: f64 = 0.05;

/// See [`FAIR_PRICE`]; a part of the card's time.
const FAIR_POINTS: f64 = 0.01;

/// What a price can be: a launch that cannot be measured is charged far too little, one between those of many others
/// too much.
const PRICES: std::ops::RangeInclusive<f64> = 0.001..=16.0;

/// The most that a pod is behind or ahead of its share, in seconds of device time: what it missed is given to it
/// slowly, what it had too much may be a whole window's worth.
const DEBTS: std::ops::RangeInclusive<f64> = -0.15..=1.0;

/// Something of its share is left to every pod, however much it owes.
const LEAST_PART: f64 = 0.1;

/// What was seen of a pod at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoreReading {
    /// When, since any fixed moment.
    pub(crate) at: Duration,
    /// The part of its card that it used in the [`WINDOW`] before, 0 to 1; `None` where NVML does not say.
    pub(crate) used: Option<f64>,
    /// What its processes have charged and waited so far, as they say.
    pub(crate) usage: Usage,
}

/// The controller.
#[derive(Debug)]
pub(crate) struct Controller {
    /// What was seen since a window ago, oldest first.
    seen: VecDeque<CoreReading>,
    /// Since when every look has found the pod waiting for its limit.
    pressed_since: Option<Duration>,
    /// Sums behind the price, in seconds of device time.
    charged: f64,
    used: f64,
    /// Seconds of device time.
    debt: f64,
}

impl Controller {
    pub(crate) const fn new() -> Self {
        Self { seen: VecDeque::new(), pressed_since: None, charged: 0.0, used: 0.0, debt: 0.0 }
    }

    /// The rate for a share of a card, 0 to 1.
    pub(crate) fn rate(&self, share: f64) -> Rate {
        let share = (share - self.debt / PAY_BACK).max(share * LEAST_PART);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and some seconds, in nanoseconds"
        )]
        let per_second = (share * self.price(share) * 1e9) as u64;
        Rate { per_second, burst: u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Whether the pod has waited for its limit since the look before the last.
    pub(crate) const fn is_pressed(&self) -> bool {
        self.pressed_since.is_some()
    }

    /// Learns from another look. `share` is what the pod should have had.
    pub(crate) fn look(&mut self, seen: CoreReading, share: f64) {
        let Some(last) = self.seen.back().copied() else {
            self.seen.push_back(seen);
            return;
        };
        let passed = seen.at.saturating_sub(last.at).min(WINDOW).as_secs_f64();
        if seen.usage.waited == last.usage.waited {
            self.pressed_since = None;
        } else {
            self.pressed_since.get_or_insert(last.at);
        }
        let window_start = seen.at.saturating_sub(WINDOW);
        while self.seen.get(1).is_some_and(|next| next.at <= window_start) {
            self.seen.pop_front();
        }
        if let Some(used) = seen.used
            && let Some(first) = self.seen.front().filter(|first| first.at <= window_start)
        {
            let window = seen.at.saturating_sub(first.at).as_secs_f64();
            self.learn_price(charged_between(first, &seen) / window, used, passed);
            let pressed = self.pressed_since.is_some_and(|since| since <= window_start);
            self.learn_debt(used - share, passed, pressed);
        }
        self.seen.push_back(seen);
    }

    fn learn_price(&mut self, charged: f64, used: f64, passed: f64) {
        let kept = (-used * passed / MEMORY).exp();
        self.charged = self.charged * kept + charged * passed;
        self.used = self.used * kept + used * passed;
    }

    fn learn_debt(&mut self, excess: f64, passed: f64, pressed: bool) {
        if excess.abs() > DEAD_BAND {
            self.debt = (self.debt + excess * passed).clamp(*DEBTS.start(), *DEBTS.end());
        }
        if !pressed {
            // It has not missed what it did not want.
            self.debt = self.debt.max(0.0);
        }
    }

    /// What a second of device time is charged, in seconds, to a pod of this share.
    fn price(&self, share: f64) -> f64 {
        // Less than a few percent for a moment says nothing.
        if self.used < 0.01 || self.charged <= 0.0 {
            return 1.0;
        }
        let price = (self.charged / self.used).clamp(*PRICES.start(), *PRICES.end());
        if (price - 1.0).abs() <= FAIR_PRICE.min(FAIR_POINTS / share) { 1.0 } else { price }
    }
}

/// Seconds of device time that were charged between two looks; no more than can be, whatever the pod wrote there.
fn charged_between(first: &CoreReading, last: &CoreReading) -> f64 {
    let charged = last.usage.charged.wrapping_sub(first.usage.charged);
    let most = *PRICES.end() * last.at.saturating_sub(first.at).as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a few seconds")]
    let charged = charged as f64 / 1e9;
    charged.min(most)
}

#[cfg(test)]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a model in seconds"
)]
mod tests;
