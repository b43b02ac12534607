//! A point in time that processes share: the page behind an event that was made for other processes.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use simgpu_device::{Segment, now_ns};

use crate::{
    device::{
        host_call::HostCall,
        initialised::{Initialised, initialised},
        segments,
    },
    error::{CuError, CuResult},
};

/// In the page: nobody told anything, or what will be told is not known yet.
const NEVER: u64 = 0;
const UNKNOWN: u64 = u64::MAX;
/// How often a process looks again that waits for another's word.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// A word in memory that processes share: nanoseconds of the machine's clock.
#[derive(Debug)]
pub(crate) struct InterprocessTime {
    pub(crate) segment: Segment,
    word: &'static AtomicU64,
}

impl InterprocessTime {
    /// The page of a segment that this process holds.
    pub(crate) fn of(segment: Segment) -> CuResult<Self> {
        // SAFETY: a new mapping at a place of the system's choice, which stays until the process ends.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            initialised()?.process()?.map_segment(&segment, 0, segment.bytes, None, protection)
        };
        let start = start.ok_or(CuError::OUT_OF_MEMORY)?;
        // SAFETY: the mapping is a whole page, and every process changes the word as one.
        Ok(Self { segment, word: unsafe { &*std::ptr::with_exposed_provenance(start) } })
    }

    /// Sets the moment, in nanoseconds of the machine's clock.
    pub(crate) fn set(&self, at: u64) {
        self.word.store(at.max(1), SeqCst);
    }

    /// Says that the moment will be known later: when what it gives is called.
    pub(crate) fn set_when_called(&self) -> HostCall {
        self.word.store(UNKNOWN, SeqCst);
        HostCall { function: set_now, argument: std::ptr::from_ref(self.word).cast_mut().cast() }
    }

    /// Whether anything was told.
    pub(crate) fn is_told(&self) -> bool {
        self.word.load(SeqCst) != NEVER
    }

    /// The moment, once it is known. What a dead process did not tell any more is over.
    pub(crate) fn get(&self) -> Option<u64> {
        match self.word.load(SeqCst) {
            UNKNOWN
                if initialised()
                    .and_then(Initialised::process)
                    .is_ok_and(|own| own.maker_lives(&self.segment)) =>
            {
                None
            }
            UNKNOWN => Some(now_ns()),
            end => Some(end),
        }
    }

    /// Waits until the moment is known.
    pub(crate) fn wait(&self) -> u64 {
        loop {
            match self.get() {
                Some(end) => return end,
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// Sets the moment to now.
///
/// # Safety
/// `word` is the word of a mapped page.
unsafe extern "C" fn set_now(word: *mut std::ffi::c_void) {
    // SAFETY: the word of a page, which stays mapped until the process ends.
    unsafe { &*word.cast::<AtomicU64>() }.store(now_ns(), SeqCst);
}

impl Drop for InterprocessTime {
    fn drop(&mut self) {
        segments::release(&self.segment);
    }
}
