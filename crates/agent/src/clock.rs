//! The clock that moments of the pool are read from: the one that runs from the boot on.

use gpupool_core::pool::Timestamp;

/// Milliseconds since the machine started, time asleep included.
pub(crate) fn clock() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Timestamp(seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000)
}
