//! How long launches take: pairs of events around some of them.
//!
//! Whoever must wait for a measurement waits for [`MOST_WAIT_NS`] at most, since the card may be waiting for the
//! program. Where the driver refuses events, a launch counts as [`UNKNOWN_COST_NS`]; the agent's rate makes up for it.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpupool_nvidia::cuda::{
    CU_EVENT_DEFAULT, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUstreamCaptureMode,
};
use gpupool_wire::bucket::HIGHEST_COST_NS;

use crate::real::{call, unlisted};
use crate::state::launch_costs::{FREE, LaunchCosts, LaunchProfile, ON_ITS_WAY, Sample, UNKNOWN_COST_NS};
use crate::sys;
use crate::table::Entry;

/// How long a launch waits for a measurement, in nanoseconds.
const MOST_WAIT_NS: u64 = 1_000_000_000;

/// How often it looks meanwhile, in nanoseconds.
const POLL_NS: u64 = 100_000;

impl Sample {
    /// Makes the events and records the first. The sample is taken.
    fn begin(&self, stream: u64) -> bool {
        let _relaxed = Relaxed::here();
        self.stream.store(stream, Ordering::Relaxed);
        for event in [&self.begin, &self.end] {
            let mut handle = 0;
            // SAFETY: a place for the answer; the context is the one that the program launches in.
            let code = unsafe {
                call!(Entry::cuEventCreate, &raw mut handle => *mut usize, CU_EVENT_DEFAULT => c_uint)
            };
            event.store(if code == CUDA_SUCCESS { handle } else { 0 }, Ordering::Relaxed);
        }
        self.record(&self.begin)
    }

    fn record(&self, event: &AtomicUsize) -> bool {
        let event = event.load(Ordering::Relaxed);
        let stream = usize::try_from(self.stream.load(Ordering::Relaxed)).unwrap_or(0);
        // SAFETY: an event of this library's and the program's own stream.
        event != 0 && unsafe { unlisted(b"cuEventRecord", [event, stream]) } == CUDA_SUCCESS
    }

    /// How long the launch took, in nanoseconds; 0 if it cannot be known, nothing if it is not known yet.
    fn read(&self) -> Option<u64> {
        let (begin, end) = (self.begin.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let mut milliseconds = 0_f32;
        let place = (&raw mut milliseconds).expose_provenance();
        // SAFETY: events of this library's, and a place for the answer.
        let code = unsafe {
            match unlisted(b"cuEventQuery", [end]) {
                CUDA_SUCCESS => unlisted(b"cuEventElapsedTime", [place, begin, end]),
                code => code,
            }
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "absurd times become the least or the most"
        )]
        match code {
            CUDA_ERROR_NOT_READY => None,
            CUDA_SUCCESS => Some(((milliseconds * 1e6) as u64).clamp(1, HIGHEST_COST_NS)),
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

/// While it lives, no call of this thread can spoil a capture that another thread, or this one, has under way.
struct Relaxed(CUstreamCaptureMode);

impl Relaxed {
    fn here() -> Self {
        let mut guard = Self(CU_STREAM_CAPTURE_MODE_RELAXED);
        guard.exchange();
        guard
    }

    fn exchange(&mut self) {
        // SAFETY: a place to read from and write to.
        unsafe {
            call!(Entry::cuThreadExchangeStreamCaptureMode, &raw mut self.0 => *mut CUstreamCaptureMode)
        };
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        self.exchange();
    }
}

impl LaunchCosts {
    /// Waits until a launch of this kind may be measured; for [`MOST_WAIT_NS`] at most, once for the same samples.
    /// What comes to light meanwhile is told to `owed`: nanoseconds that a launch cost and was not charged.
    pub(crate) fn wait_for_room(&self, place: usize, owed: &mut dyn FnMut(u64)) {
        let start = sys::nanoseconds();
        loop {
            self.collect(owed);
            if !self.must_wait(place) {
                return;
            }
            if sys::nanoseconds().saturating_sub(start) > MOST_WAIT_NS {
                for sample in &self.samples {
                    sample.slow.store(1, Ordering::Relaxed);
                }
                return;
            }
            sys::sleep_nanoseconds(POLL_NS);
        }
    }

    /// Begins to measure the launch that comes next on this thread, if there is room and the driver lets us.
    pub(crate) fn begin(
        &self,
        (place, profile): (usize, &LaunchProfile),
        charged: u64,
        stream: u64,
    ) -> Option<&Sample> {
        let sample = self.samples.iter().find(|sample| sample.take(FREE))?;
        sample.slow.store(0, Ordering::Relaxed);
        sample.profile.store(place, Ordering::Relaxed);
        sample.key.store(profile.key.load(Ordering::Relaxed), Ordering::Relaxed);
        sample.charged.store(charged, Ordering::Relaxed);
        if !sample.begin(stream) {
            sample.end();
            return None;
        }
        profile.unmeasured.store(0, Ordering::Relaxed);
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
            if let Some(profile) = self.profiles.get(sample.profile.load(Ordering::Relaxed))
                && profile.key.load(Ordering::Relaxed) == sample.key.load(Ordering::Relaxed)
                && measured != 0
            {
                profile.learn(measured);
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
