//! `gpupool stop`: a pod's processes are told to terminate, and killed when the grace is over.
//!
//! All processes below the pod's `gpupool run` are meant, with or without a card. The pool itself sees to those that
//! use one ([`Event::PodRemoved`]); the others are found in the process tree.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{Event, Millis, PodId, TerminationReason, Timestamp};
use tokio::sync::oneshot;

use super::PoolTask;
use super::requests::refused;
use crate::admin_api::{RefusalReason, Reply, Stopped};
use crate::environment::ProcessHandle;
use crate::event::ConnectionId;
use crate::notice::{Cause, Termination};
use crate::procfs::ProcessKey;
use crate::registry::{CardUse, PodEntry, Record};

/// How often the tree is searched again once the killing has begun: somebody may still be forking.
const AGAIN: Millis = Millis(100);

/// A pod that is being stopped.
#[derive(Debug)]
pub(super) struct Stop {
    targets: Vec<Box<dyn ProcessHandle>>,
    told: BTreeSet<ProcessKey>,
    killed: BTreeSet<ProcessKey>,
    next_kill: Timestamp,
    termination: Termination,
    grace: Millis,
    answers: Vec<oneshot::Sender<Reply>>,
}

/// All pods that are being stopped.
#[derive(Debug, Default)]
pub(super) struct Stops(BTreeMap<PodId, Stop>);

impl Stops {
    /// When there is something to do next.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.0.values().map(|stop| stop.next_kill).min()
    }

    /// Takes out those whose next killing is due.
    fn take_due(&mut self, now: Timestamp) -> Vec<(PodId, Stop)> {
        self.0.extract_if(.., |_, stop| stop.next_kill <= now).collect()
    }

    /// Takes out those that are gone: no process is left, and `is_known` says that the pod is not either.
    fn take_gone(&mut self, is_known: impl Fn(&PodId) -> bool) -> Vec<Stop> {
        let gone = self.0.extract_if(.., |pod, stop| stop.targets.is_empty() && !is_known(pod));
        gone.map(|(_, stop)| stop).collect()
    }

    /// A process has ended that may have been one of those to stop.
    fn forget_target(&mut self, key: ProcessKey) {
        for stop in self.0.values_mut() {
            stop.targets.retain(|target| target.key() != key);
        }
    }
}

impl PoolTask {
    /// Stops a pod. The answer comes when it is gone; a refusal is given back with the way to answer.
    pub(super) fn stop(
        &mut self,
        from: ConnectionId,
        pod: &PodId,
        answer: oneshot::Sender<Reply>,
    ) -> Option<(Reply, oneshot::Sender<Reply>)> {
        let Some(entry) = self.registry.pod(pod).cloned() else {
            let sentence = format!("no pod is called `{pod}`: gpupool status lists them");
            return Some((refused(RefusalReason::UnknownPod, sentence), answer));
        };
        if let Some(reference) = &entry.reference {
            let sentence = format!("`{reference}` is a pod of the cluster: delete it with kubectl");
            return Some((refused(RefusalReason::NotYours, sentence), answer));
        }
        let user = self.connections.get(from).map(|connection| connection.user);
        if user.is_none_or(|user| user != 0 && user != entry.user && user != self.settings.user) {
            let sentence = format!("`{pod}` belongs to user {}: only they and root can stop it", entry.user);
            return Some((refused(RefusalReason::NotYours, sentence), answer));
        }
        if !self.stops.0.contains_key(pod) {
            self.begin_stop(pod, &entry);
        }
        if let Some(stop) = self.stops.0.get_mut(pod) {
            stop.answers.push(answer);
        }
        self.conclude_stops();
        None
    }

    /// Tells everybody of the pod to terminate. Also called for a stop that an earlier agent did not finish.
    pub(super) fn begin_stop(&mut self, pod: &PodId, entry: &PodEntry) {
        let holders: BTreeSet<ProcessKey> =
            self.registry.members_using(pod, CardUse::Holding).into_iter().collect();
        self.record(Record::Pod { pod: pod.clone(), entry: PodEntry { stopping: true, ..entry.clone() } });
        if self.pool.state(pod).is_some() {
            self.apply(&Event::PodRemoved { pod: pod.clone() });
        }
        let (cause, grace) = (Cause::Pool(TerminationReason::Stopped), self.pool.qos().grace);
        let mut stop = Stop {
            targets: Vec::new(),
            told: BTreeSet::new(),
            killed: BTreeSet::new(),
            next_kill: self.now() + grace,
            termination: Termination { cause, told_at: self.now(), outlived: None, card: None },
            grace,
            answers: Vec::new(),
        };
        self.find_targets(pod, &mut stop);
        let warrant = self.warrant(pod, stop.termination.clone());
        for target in &stop.targets {
            // The pool's own word to the holders is on its way.
            if !holders.contains(&target.key()) {
                // It may end this moment by itself.
                let _ = target.signal(&warrant);
            }
            stop.told.insert(target.key());
        }
        self.stops.0.insert(pod.clone(), stop);
    }

    /// Kills what is left when the grace is over.
    pub(super) fn continue_stops(&mut self, now: Timestamp) {
        for (pod, mut stop) in self.stops.take_due(now) {
            self.find_targets(&pod, &mut stop);
            let killed = Termination { outlived: Some(stop.grace), ..stop.termination.clone() };
            let warrant = self.warrant(&pod, killed);
            for target in &stop.targets {
                if target.signal(&warrant).unwrap_or(false) {
                    stop.killed.insert(target.key());
                }
            }
            stop.next_kill = now + AGAIN;
            self.stops.0.insert(pod, stop);
        }
        self.conclude_stops();
    }

    /// A process has ended that may have been one of those to stop.
    pub(super) fn target_ended(&mut self, key: ProcessKey) {
        self.stops.forget_target(key);
        self.conclude_stops();
    }

    /// Answers for the pods that are gone.
    fn conclude_stops(&mut self) {
        let registry = &self.registry;
        for stop in self.stops.take_gone(|pod| registry.pod(pod).is_some()) {
            let count = |set: &BTreeSet<ProcessKey>| u32::try_from(set.len()).unwrap_or(u32::MAX);
            let stopped = Stopped { terminated: count(&stop.told), killed: count(&stop.killed) };
            for answer in stop.answers {
                // Whoever asked may have hung up.
                let _ = answer.send(Reply::Stopped(stopped));
            }
        }
    }

    /// Finds the pod's processes that live now and are not yet among the targets.
    fn find_targets(&self, pod: &PodId, stop: &mut Stop) {
        let run = self.registry.pod(pod).and_then(|entry| entry.run);
        let mut keys: BTreeSet<ProcessKey> = self.registry.members_of(pod).into_iter().collect();
        let roots: Vec<ProcessKey> = run.into_iter().chain(keys.iter().copied()).collect();
        for root in roots {
            keys.extend(self.environment.processes.descendants(root));
        }
        for key in keys {
            self.add_target(key, stop);
        }
        // `gpupool run` ends with its command; alone it has not started one yet, or is stuck.
        if let Some(run) = run.filter(|_| stop.targets.is_empty()) {
            self.add_target(run, stop);
        }
    }

    /// Takes a process in that still lives and is not a target yet.
    fn add_target(&self, key: ProcessKey, stop: &mut Stop) {
        if stop.targets.iter().any(|target| target.key() == key) {
            return;
        }
        // One that has ended needs no signal.
        let Ok(held) = self.environment.processes.hold(key) else { return };
        if held.watch_exit(self.environment.exits.clone()).is_ok() {
            stop.targets.push(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_due_at_its_moment_and_over_when_its_pod_is_not_known_any_more() {
        let stop = Stop {
            targets: Vec::new(),
            told: BTreeSet::new(),
            killed: BTreeSet::new(),
            next_kill: Timestamp(10),
            termination: Termination {
                cause: Cause::Pool(TerminationReason::Stopped),
                told_at: Timestamp(0),
                outlived: None,
                card: None,
            },
            grace: Millis(10),
            answers: Vec::new(),
        };
        let mut stops = Stops(BTreeMap::from([("a".into(), stop)]));
        assert_eq!(stops.next_deadline(), Some(Timestamp(10)));
        assert!(stops.take_due(Timestamp(9)).is_empty());
        assert!(stops.take_gone(|_| true).is_empty());
        assert_eq!(stops.take_gone(|_| false).len(), 1);
        assert_eq!(stops.next_deadline(), None);
    }
}
