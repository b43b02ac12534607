//! What is still to be written about each pod, and when it may be tried. Pods wait for nobody but themselves.
//!
//! It is bounded: of a pod's conditions only the latest is kept, of its Events the last few, and of pods so many. No
//! clock of its own, and nothing of how things are written.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gpupool_k8s::Backoff;
use tokio::time::Instant;

use super::{Report, Write};

/// Between the attempts of a write that the API server does not take.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Events of one pod that may wait. A pod has one for each time that it makes room, or is turned away.
const EVENTS_OF_POD: usize = 16;

/// Pods about which something may wait: several times what a kubelet runs at once.
const MOST_PODS: usize = 1024;

/// What waits of one pod.
#[derive(Debug)]
struct Queue {
    writes: VecDeque<Write>,
    /// One of its writes is under way.
    busy: bool,
    failures: u32,
    not_before: Instant,
}

/// Everything that waits, by the pods' UIDs.
#[derive(Debug, Default)]
pub(super) struct Pending(BTreeMap<String, Queue>);

impl Pending {
    /// Adds what a report has to write; says which pod was given up for it, if one was.
    pub(super) fn add(&mut self, report: Report, now: Instant) -> Option<String> {
        let mut given_up = None;
        if self.0.len() >= MOST_PODS && !self.0.contains_key(&report.pod.uid) {
            // The one that has been tried in vain most often.
            given_up = self.0.iter().max_by_key(|(_, queue)| queue.failures).map(|(uid, _)| uid.clone());
            self.0.retain(|uid, _| Some(uid) != given_up.as_ref());
        }
        let queue = self.0.entry(report.pod.uid.clone()).or_insert_with(|| Queue {
            writes: VecDeque::new(),
            busy: false,
            failures: 0,
            not_before: now,
        });
        for write in report.writes() {
            queue.writes.retain(|older| !write.replaces(older));
            queue.writes.push_back(write);
        }
        while queue.writes.iter().filter(|write| write.is_event()).count() > EVENTS_OF_POD {
            let oldest = queue.writes.iter().position(Write::is_event).unwrap_or_default();
            queue.writes.remove(oldest);
        }
        given_up
    }

    /// A write that may be tried now, with its pod's UID; it is under way from here on.
    pub(super) fn take(&mut self, now: Instant) -> Option<(String, Write)> {
        let due = self.0.iter_mut().filter(|(_, queue)| !queue.busy && queue.not_before <= now);
        // Who has failed least goes first: others may be failing for long.
        let (uid, queue) = due.min_by_key(|(_, queue)| (queue.failures, queue.not_before))?;
        let write = queue.writes.pop_front()?;
        queue.busy = true;
        Some((uid.clone(), write))
    }

    /// A write is done, or will never be.
    pub(super) fn done(&mut self, uid: &str, now: Instant) {
        if let Some(queue) = self.0.get_mut(uid) {
            (queue.busy, queue.failures, queue.not_before) = (false, 0, now);
            if queue.writes.is_empty() {
                self.0.remove(uid);
            }
        }
    }

    /// A write failed, and is tried again later unless something newer says the same by then.
    pub(super) fn failed(&mut self, uid: &str, write: Write, now: Instant) {
        let Some(queue) = self.0.get_mut(uid) else { return };
        queue.busy = false;
        queue.failures = queue.failures.saturating_add(1);
        queue.not_before = now + BACKOFF.delay(queue.failures);
        if !queue.writes.iter().any(|newer| newer.replaces(&write)) {
            queue.writes.push_front(write);
        }
    }

    /// When the next write may be tried that waits for its time.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.0.values().filter(|queue| !queue.busy).map(|queue| queue.not_before).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accepted, refused};
    use super::*;

    fn later(now: Instant) -> Instant {
        now + Duration::from_mins(1)
    }

    #[test]
    fn a_pod_whose_writes_fail_holds_up_no_other() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        pending.add(accepted("bad"), now);
        let (uid, write) = pending.take(now).unwrap();
        pending.failed(&uid, write, now);
        assert!(pending.take(now).is_none(), "it waits");
        pending.add(accepted("good"), now);
        assert_eq!(pending.take(now).unwrap().0, "good");
        pending.done("good", now);
        assert_eq!(pending.take(later(now)).unwrap().0, "bad");
    }

    #[test]
    fn one_write_of_a_pod_is_under_way_at_a_time_and_they_keep_their_order() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        pending.add(refused("a", 1), now);
        let (_, first) = pending.take(now).unwrap();
        assert!(first.is_event() && pending.take(now).is_none());
        pending.done("a", now);
        assert!(!pending.take(now).unwrap().1.is_event());
        pending.done("a", now);
        assert_eq!(pending.next_time(), None, "nothing is left");
    }

    #[test]
    fn of_a_condition_the_latest_is_written_also_where_an_older_one_failed() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        pending.add(accepted("a"), now);
        let (uid, older) = pending.take(now).unwrap();
        pending.add(refused("a", 1), now);
        pending.failed(&uid, older, now);
        let (_, event) = pending.take(later(now)).unwrap();
        assert!(event.is_event());
        pending.done("a", now);
        let (_, condition) = pending.take(later(now)).unwrap();
        assert_eq!(condition.status(), Some("False"));
        pending.done("a", now);
        assert!(pending.take(later(now)).is_none());
    }

    #[test]
    fn what_waits_is_bounded_for_each_pod_and_for_all() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        for number in 0..100 {
            assert_eq!(pending.add(refused("a", number), now), None);
        }
        assert_eq!(pending.0["a"].writes.len(), EVENTS_OF_POD + 1);
        let (uid, write) = pending.take(now).unwrap();
        pending.failed(&uid, write, now);
        for number in 1..MOST_PODS {
            assert_eq!(pending.add(accepted(&format!("pod-{number}")), now), None);
        }
        assert_eq!(pending.add(accepted("another"), now), Some("a".to_owned()));
        assert_eq!(pending.0.len(), MOST_PODS);
    }
}
