//! What people and scrapers are told of the task: its counters, how long pods have waited, and the status for watchers.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpupool_core::pool::{PodId, Timestamp};
use tokio::sync::watch;

use crate::metrics::Counters;

/// The packets of one status, in order.
pub(super) type StatusPackets = Arc<Vec<Vec<u8>>>;

/// What is kept for those who look.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) counters: Counters,
    /// When each pod of the queue began to wait.
    pub(super) waiting_since: BTreeMap<PodId, Timestamp>,
    watchers: watch::Sender<StatusPackets>,
}

impl Reports {
    /// Counts a grant to a pod, with the time that it waited.
    pub(super) fn admitted(&mut self, pod: &PodId, now: Timestamp) {
        let since = self.waiting_since.remove(pod).unwrap_or(now);
        self.counters.admitted(now - since);
    }

    /// Whether anybody watches the status.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers.receiver_count() > 0
    }

    /// Shows a status to everybody who watches.
    pub(super) fn show(&self, packets: StatusPackets) {
        self.watchers.send_replace(packets);
    }

    /// A new watcher, which sees this status first.
    pub(super) fn watch(&self, packets: StatusPackets) -> watch::Receiver<StatusPackets> {
        let mut receiver = self.watchers.subscribe();
        self.show(packets);
        receiver.mark_changed();
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(text: &str) -> StatusPackets {
        Arc::new(vec![text.as_bytes().to_vec()])
    }

    #[test]
    fn a_watcher_sees_the_status_at_once_and_then_only_the_latest() {
        let reports = Reports::default();
        assert!(!reports.is_watched());
        let mut watcher = reports.watch(packets("first"));
        assert!(reports.is_watched() && watcher.has_changed().unwrap());
        assert_eq!(*watcher.borrow_and_update(), packets("first"));
        reports.show(packets("second"));
        reports.show(packets("third"));
        assert_eq!(*watcher.borrow_and_update(), packets("third"));
        drop(watcher);
        assert!(!reports.is_watched());
    }

    #[test]
    fn a_granted_pod_does_not_wait_any_more() {
        let mut reports = Reports::default();
        reports.waiting_since.insert("a".into(), Timestamp(5));
        reports.admitted(&"a".into(), Timestamp(9));
        assert!(reports.waiting_since.is_empty());
    }
}
