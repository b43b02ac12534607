//! What launches cost in device time, as far as it was measured.
//!
//! A profile (function, grid, block, shared memory; or an executable graph) costs what the quickest of its last
//! samples took: others' work on the card makes a sample longer, never shorter. Every profile is measured once for each
//! millisecond of device time that it is charged, so that long kernels are measured every time and short ones rarely.
//!
//! No more than [`SAMPLES`] measurements are on their way at once, and none of a profile that was never measured: so a
//! program cannot queue minutes of work before it is known what that costs.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Kinds of launches that are known at the same time.
const PROFILES: usize = 256;

/// Where a kind may lie, beginning at its home.
const PROBES: usize = 4;

/// Measurements on their way at the same time.
const SAMPLES: usize = 8;

/// Samples that make up a window; the least of the last window and of this one is what a launch costs. So many that a
/// kernel between those of others is alone on the card for some of them; what costs more than before is noticed later,
/// but at once by the agent.
const WINDOW: u32 = 64;

/// A kind is measured again when it was charged this much device time.
const MEASURE_EVERY_NS: u64 = 1_000_000;

/// What a launch counts as when it cannot be measured, in nanoseconds.
pub(crate) const UNKNOWN_COST_NS: u64 = 100_000;

/// One kind of launch.
#[derive(Debug)]
pub(crate) struct LaunchProfile {
    /// 0 for a free place.
    pub(crate) key: AtomicU64,
    /// Quickest samples of the last window and of this one, in nanoseconds; 0 for none.
    before: AtomicU64,
    now: AtomicU64,
    samples: AtomicU32,
    /// Charged since it was measured last.
    pub(crate) unmeasured: AtomicU64,
}

impl LaunchProfile {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            before: AtomicU64::new(0),
            now: AtomicU64::new(0),
            samples: AtomicU32::new(0),
            unmeasured: AtomicU64::new(0),
        }
    }

    fn replace(&self, key: u64) {
        for word in [&self.before, &self.now, &self.unmeasured] {
            word.store(0, Ordering::Relaxed);
        }
        self.key.store(key, Ordering::Relaxed);
    }

    /// What a launch costs, in nanoseconds; 0 when that is not known.
    pub(crate) fn cost(&self) -> u64 {
        match (self.before.load(Ordering::Relaxed), self.now.load(Ordering::Relaxed)) {
            (0, one) | (one, 0) => one,
            (before, now) => before.min(now),
        }
    }

    /// It is time to measure one.
    pub(crate) fn wants_measuring(&self) -> bool {
        self.cost() == 0 || self.unmeasured.load(Ordering::Relaxed) >= MEASURE_EVERY_NS
    }

    /// A launch was charged so many nanoseconds.
    pub(crate) fn charged(&self, cost: u64) {
        self.unmeasured.fetch_add(cost, Ordering::Relaxed);
    }

    /// A launch took so many nanoseconds.
    pub(crate) fn learn(&self, measured: u64) {
        let least = match self.now.load(Ordering::Relaxed) {
            0 => measured,
            now => now.min(measured),
        };
        let ends = (self.samples.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(WINDOW);
        if ends {
            self.before.store(least, Ordering::Relaxed);
        }
        self.now.store(if ends { 0 } else { least }, Ordering::Relaxed);
    }
}

/// Nobody uses the sample.
pub(crate) const FREE: u32 = 0;
/// One thread is at it.
const TAKEN: u32 = 1;
/// The launch was made; its events are not complete yet.
pub(crate) const ON_ITS_WAY: u32 = 2;

/// A measurement: a launch between two events.
#[derive(Debug)]
pub(crate) struct Sample {
    state: AtomicU32,
    /// Somebody has waited for it in vain.
    pub(crate) slow: AtomicU32,
    /// Place and key of the launch's profile.
    pub(crate) profile: AtomicUsize,
    pub(crate) key: AtomicU64,
    /// What the launch was charged.
    pub(crate) charged: AtomicU64,
    pub(crate) stream: AtomicU64,
    pub(crate) begin: AtomicUsize,
    pub(crate) end: AtomicUsize,
}

impl Sample {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            slow: AtomicU32::new(0),
            profile: AtomicUsize::new(0),
            key: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            stream: AtomicU64::new(0),
            begin: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    /// Takes the sample out of a state, if it is in that and nobody else was faster.
    pub(crate) fn take(&self, from: u32) -> bool {
        self.state.compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Leaves a sample that was taken in a state.
    pub(crate) fn leave(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }

    fn on_its_way(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ON_ITS_WAY
    }
}

/// What this process knows about its launches. All zero is nothing, as a forked child finds it.
#[derive(Debug)]
pub(crate) struct LaunchCosts {
    pub(crate) profiles: [LaunchProfile; PROFILES],
    pub(crate) samples: [Sample; SAMPLES],
}

impl LaunchCosts {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self {
            profiles: [const { LaunchProfile::new() }; PROFILES],
            samples: [const { Sample::new() }; SAMPLES],
        }
    }

    /// The place of a kind; a new one takes a free place, or that of another.
    pub(crate) fn profile(&self, key: u64) -> Option<(usize, &LaunchProfile)> {
        let home = (key >> 32) as usize % PROFILES;
        for step in 0..PROBES {
            let place = (home + step) % PROFILES;
            let profile = self.profiles.get(place)?;
            let found = profile.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            if found.is_ok() || found == Err(key) {
                return Some((place, profile));
            }
        }
        let profile = self.profiles.get(home)?;
        profile.replace(key);
        Some((home, profile))
    }

    /// Whether a launch of the profile at a place must wait before it is measured.
    pub(crate) fn must_wait(&self, place: usize) -> bool {
        let unknown = self.profiles.get(place).is_some_and(|profile| profile.cost() == 0);
        let awaited = |sample: &Sample| sample.on_its_way() && sample.slow.load(Ordering::Relaxed) == 0;
        let first = |sample: &Sample| unknown && sample.profile.load(Ordering::Relaxed) == place;
        self.samples.iter().all(awaited) || self.samples.iter().any(|sample| awaited(sample) && first(sample))
    }
}
