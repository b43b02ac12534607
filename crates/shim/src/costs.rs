//! What launches cost in device time: learned from pairs of events around some of them.
//!
//! A kind of launch (function, grid, block, shared memory; or an executable graph) costs what the quickest of its last
//! samples took: others' work on the card makes a sample longer, never shorter. Every kind is measured once for each
//! millisecond of device time that it is charged, so that long kernels are measured every time and short ones rarely.
//!
//! No more than [`SAMPLES`] measurements are on their way at once, and none of a kind that was never measured: so a
//! program cannot queue minutes of work before it is known what that costs. Whoever must wait for that waits for
//! [`PATIENCE_NS`] at most, since the card may be waiting for the program.
//!
//! Where the driver refuses events, a launch counts as [`UNKNOWN_COST_NS`]; the agent's rate makes up for it.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gpupool_wire::bucket::HIGHEST_COST_NS;

use crate::code::{NOT_READY, SUCCESS};
use crate::real::{call, unlisted};
use crate::sys;
use crate::table::Entry;

/// Kinds of launches that are known at the same time.
const KINDS: usize = 256;

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

/// How long a launch waits for a measurement, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How often it looks meanwhile, in nanoseconds.
const LOOK_NS: u64 = 100_000;

/// One kind of launch.
#[derive(Debug)]
pub(crate) struct Kind {
    /// 0 for a free place.
    key: AtomicU64,
    /// Quickest samples of the last window and of this one, in nanoseconds; 0 for none.
    before: AtomicU64,
    now: AtomicU64,
    samples: AtomicU32,
    /// Charged since it was measured last.
    unmeasured: AtomicU64,
}

impl Kind {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            before: AtomicU64::new(0),
            now: AtomicU64::new(0),
            samples: AtomicU32::new(0),
            unmeasured: AtomicU64::new(0),
        }
    }

    fn become_another(&self, key: u64) {
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
    fn learn(&self, measured: u64) {
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

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ON_ITS_WAY: u32 = 2;

/// A measurement: a launch between two events.
#[derive(Debug)]
pub(crate) struct Sample {
    state: AtomicU32,
    /// Somebody has waited for it in vain.
    slow: AtomicU32,
    /// Place and key of the launch's kind.
    kind: AtomicUsize,
    key: AtomicU64,
    /// What the launch was charged.
    charged: AtomicU64,
    stream: AtomicUsize,
    begin: AtomicUsize,
    end: AtomicUsize,
}

impl Sample {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            slow: AtomicU32::new(0),
            kind: AtomicUsize::new(0),
            key: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            stream: AtomicUsize::new(0),
            begin: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    fn take(&self, from: u32) -> bool {
        self.state.compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn leave(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }

    fn on_its_way(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ON_ITS_WAY
    }

    /// Makes the events and records the first. The sample is taken.
    fn begin(&self, stream: usize) -> bool {
        let _relaxed = Relaxed::here();
        self.stream.store(stream, Ordering::Relaxed);
        for event in [&self.begin, &self.end] {
            let mut handle = 0;
            // SAFETY: a place for the answer; the context is the one that the program launches in.
            let code = unsafe { call!(Entry::cuEventCreate, &raw mut handle => *mut usize, 0 => c_uint) };
            event.store(if code == SUCCESS { handle } else { 0 }, Ordering::Relaxed);
        }
        self.record(&self.begin)
    }

    fn record(&self, event: &AtomicUsize) -> bool {
        let event = event.load(Ordering::Relaxed);
        // SAFETY: an event of this library's and the program's own stream.
        event != 0
            && unsafe { unlisted(b"cuEventRecord", [event, self.stream.load(Ordering::Relaxed)]) } == SUCCESS
    }

    /// How long the launch took, in nanoseconds; 0 if it cannot be known, nothing if it is not known yet.
    fn read(&self) -> Option<u64> {
        let (begin, end) = (self.begin.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let mut milliseconds = 0_f32;
        let place = (&raw mut milliseconds).expose_provenance();
        // SAFETY: events of this library's, and a place for the answer.
        let code = unsafe {
            match unlisted(b"cuEventQuery", [end]) {
                SUCCESS => unlisted(b"cuEventElapsedTime", [place, begin, end]),
                code => code,
            }
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "absurd times become the least or the most"
        )]
        match code {
            NOT_READY => None,
            SUCCESS => Some(((milliseconds * 1e6) as u64).clamp(1, HIGHEST_COST_NS)),
            _ => Some(0),
        }
    }

    /// Gives the events back.
    fn end(&self) {
        for event in [&self.begin, &self.end] {
            let event = event.swap(0, Ordering::Relaxed);
            if event != 0 {
                // SAFETY: an event of this library's that nobody uses any more.
                unsafe { unlisted(b"cuEventDestroy_v2", [event]) };
            }
        }
        self.leave(FREE);
    }
}

/// While it lives, no call of this thread can spoil a capture that another thread, or this one, has under way:
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
struct Relaxed(c_uint);

impl Relaxed {
    fn here() -> Self {
        const RELAXED: c_uint = 2;
        let mut guard = Self(RELAXED);
        guard.exchange();
        guard
    }

    fn exchange(&mut self) {
        // SAFETY: a place to read from and write to.
        unsafe { call!(Entry::cuThreadExchangeStreamCaptureMode, &raw mut self.0 => *mut c_uint) };
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        self.exchange();
    }
}

/// What this process knows about its launches. All zero is nothing, as a forked child finds it.
#[derive(Debug)]
pub(crate) struct Costs {
    kinds: [Kind; KINDS],
    samples: [Sample; SAMPLES],
}

impl Costs {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self { kinds: [const { Kind::new() }; KINDS], samples: [const { Sample::new() }; SAMPLES] }
    }

    /// The place of a kind; a new one takes a free place, or that of another.
    pub(crate) fn kind(&self, key: u64) -> Option<(usize, &Kind)> {
        let home = (key >> 32) as usize % KINDS;
        for step in 0..PROBES {
            let place = (home + step) % KINDS;
            let kind = self.kinds.get(place)?;
            let found = kind.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            if found.is_ok() || found == Err(key) {
                return Some((place, kind));
            }
        }
        let kind = self.kinds.get(home)?;
        kind.become_another(key);
        Some((home, kind))
    }

    /// Waits until a launch of this kind may be measured; for [`PATIENCE_NS`] at most, once for the same samples.
    /// What comes to light meanwhile is told to `owed`: nanoseconds that a launch cost and was not charged.
    pub(crate) fn wait_for_room(&self, place: usize, owed: &mut dyn FnMut(u64)) {
        let start = sys::nanoseconds();
        loop {
            self.collect(owed);
            if !self.must_wait(place) {
                return;
            }
            if sys::nanoseconds().saturating_sub(start) > PATIENCE_NS {
                for sample in &self.samples {
                    sample.slow.store(1, Ordering::Relaxed);
                }
                return;
            }
            sys::sleep_nanoseconds(LOOK_NS);
        }
    }

    fn must_wait(&self, place: usize) -> bool {
        let unknown = self.kinds.get(place).is_some_and(|kind| kind.cost() == 0);
        let awaited = |sample: &Sample| sample.on_its_way() && sample.slow.load(Ordering::Relaxed) == 0;
        let first = |sample: &Sample| unknown && sample.kind.load(Ordering::Relaxed) == place;
        self.samples.iter().all(awaited) || self.samples.iter().any(|sample| awaited(sample) && first(sample))
    }

    /// Begins to measure the launch that comes next on this thread, if there is room and the driver lets us.
    pub(crate) fn begin(
        &self,
        (place, kind): (usize, &Kind),
        charged: u64,
        stream: usize,
    ) -> Option<&Sample> {
        let sample = self.samples.iter().find(|sample| sample.take(FREE))?;
        sample.slow.store(0, Ordering::Relaxed);
        sample.kind.store(place, Ordering::Relaxed);
        sample.key.store(kind.key.load(Ordering::Relaxed), Ordering::Relaxed);
        sample.charged.store(charged, Ordering::Relaxed);
        if !sample.begin(stream) {
            sample.end();
            return None;
        }
        kind.unmeasured.store(0, Ordering::Relaxed);
        Some(sample)
    }

    /// The launch has been made, or not.
    pub(crate) fn launched(sample: &Sample, made: bool) {
        if made && sample.record(&sample.end) {
            sample.leave(ON_ITS_WAY);
        } else {
            sample.end();
        }
    }

    /// Learns from the measurements that are complete.
    fn collect(&self, owed: &mut dyn FnMut(u64)) {
        let _relaxed = Relaxed::here();
        for sample in self.samples.iter().filter(|sample| sample.take(ON_ITS_WAY)) {
            let Some(measured) = sample.read() else {
                sample.leave(ON_ITS_WAY);
                continue;
            };
            if let Some(kind) = self.kinds.get(sample.kind.load(Ordering::Relaxed))
                && kind.key.load(Ordering::Relaxed) == sample.key.load(Ordering::Relaxed)
                && measured != 0
            {
                kind.learn(measured);
            }
            if sample.charged.load(Ordering::Relaxed) == 0 {
                owed(if measured == 0 { UNKNOWN_COST_NS } else { measured });
            }
            sample.end();
        }
    }

    /// A context is about to end, and its events with it: gives up every measurement.
    pub(crate) fn abandon(&self) {
        for sample in self.samples.iter().filter(|sample| sample.take(ON_ITS_WAY)) {
            sample.end();
        }
    }
}
