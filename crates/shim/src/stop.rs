//! Points at which a process can be told to stop itself, so that a test can kill it exactly there.
//!
//! Only in a build with feature `stop-points`, which is never installed; in any other build nothing of it is left.

/// Stops the process if `GPUPOOL_STOP` names this point and how many times it is to be passed before: `reserved@1`.
#[cfg(feature = "stop-points")]
pub(crate) fn at(point: &[u8]) {
    use core::sync::atomic::{AtomicU32, Ordering};

    static PASSED: AtomicU32 = AtomicU32::new(0);
    let wanted = crate::sys::variable(b"GPUPOOL_STOP").map(core::ffi::CStr::to_bytes);
    if let Some([name @ .., b'@', count @ b'0'..=b'9']) = wanted
        && name == point
        && PASSED.fetch_add(1, Ordering::Relaxed) == u32::from(count - b'0')
    {
        crate::sys::stop();
    }
}

/// Does nothing.
#[cfg(not(feature = "stop-points"))]
#[inline(always)]
pub(crate) const fn at(_: &[u8]) {}
