//! How long a watch that failed waits before it is tried again.

use std::time::Duration;

use gpupool_k8s::Backoff;
use kube::runtime::utils;

/// Delays between attempts to watch: they double, but stay so short that an API server which came back need not
/// wait for long.
#[derive(Debug, Default)]
pub(crate) struct WatchBackoff {
    failures: u32,
}

impl WatchBackoff {
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        Some(Self::BACKOFF.delay(self.failures))
    }
}

impl utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.failures = 0;
    }
}
