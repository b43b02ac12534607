//! The clock that moments of the pool are read from: the one that runs from the boot on.

use gpupool_core::pool::Timestamp;

/// The kernel's clock since the boot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock;

impl BootClock {
    /// Milliseconds since the machine started, time asleep included.
    #[allow(clippy::unused_self, reason = "a clock is asked, whichever it is")]
    pub(crate) fn read(self) -> Timestamp {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Timestamp(seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000)
    }
}
