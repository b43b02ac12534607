//! A pod's GPU processes are ended: its owner is told why, and then they are.
//!
//! Nothing else signals a process: whoever wants to needs a [`Warrant`], and gets it here.

use std::collections::BTreeSet;

use gpupool_core::pool::{Ending, PodId, Policy, TerminationReason, Timestamp};

use super::{Effect, PoolTask};
use crate::admin_api::TerminationStatus;
use crate::notice::{Cause, Notice, Termination, Warrant};
use crate::procfs::ProcessKey;
use crate::registry::CardUse;

impl PoolTask {
    /// Has the pod's owner told why its processes are ended, once for SIGTERM and once for SIGKILL, and gives the right to
    /// signal them.
    pub(super) fn warrant(&mut self, pod: &PodId, termination: Termination) -> Warrant {
        Warrant::issue(termination, |termination| {
            if self.terminations.get(pod) != Some(&termination) {
                self.tell_termination(pod, &termination);
                self.terminations.insert(pod.clone(), termination);
            }
        })
    }

    /// Ends those that use the pod's card, by their own word or by NVML's, for what its lease says.
    pub(super) fn end_holders(&mut self, pod: &PodId, killed: bool) {
        let mut holders: BTreeSet<ProcessKey> =
            self.registry.members_using(pod, CardUse::Holding).into_iter().collect();
        if let Some((card, _)) = self.lease_of(pod) {
            holders.extend(self.presence.processes(pod, &card));
        }
        self.end(pod, holders, killed);
    }

    /// Ends these of the pod for what its lease says.
    pub(super) fn end(&mut self, pod: &PodId, processes: impl IntoIterator<Item = ProcessKey>, killed: bool) {
        let mut processes = processes.into_iter().peekable();
        // Who has no process to be signalled is told nothing.
        if processes.peek().is_none() {
            return;
        }
        let Some(termination) = self.termination_of(pod, killed) else { return };
        let warrant = self.warrant(pod, termination);
        for to in processes {
            self.outbox.tell(Effect::Signal { to, warrant: warrant.clone() });
        }
    }

    /// The earlier agent may have been killed between a decision and what it had to tell; what was told before is written
    /// under the same names.
    pub(super) fn repeat_termination(&mut self, pod: &PodId, killed: bool) {
        let stages = if killed { [Some(false), Some(true)] } else { [Some(false), None] };
        for killed in stages.into_iter().flatten() {
            if let Some(termination) = self.termination_of(pod, killed) {
                self.tell_termination(pod, &termination);
            }
        }
    }

    /// Why the pod's lease ends.
    fn termination_of(&self, pod: &PodId, killed: bool) -> Option<Termination> {
        let lease = self.pool.pod(pod)?.lease?;
        let Ending { why, told_at, kill_at, .. } = lease.ending?;
        Some(Termination {
            cause: Cause::Pool(why.clone()),
            told_at: *told_at,
            outlived: killed.then(|| *kill_at - *told_at),
            card: Some(lease.card.clone()),
        })
    }

    /// A pod of the cluster is told by a notice; others read it in the status.
    fn tell_termination(&mut self, pod: &PodId, termination: &Termination) {
        let reference = |pod: &PodId| self.registry.pod(pod)?.reference.clone();
        let Some(told) = reference(pod) else { return };
        let beneficiary = match &termination.cause {
            // Both have been told, in the words of the published page.
            Cause::Pool(TerminationReason::Preempted { .. }) if termination.outlived.is_none() => return,
            Cause::Pool(TerminationReason::IdleRelease { by } | TerminationReason::Preempted { by }) => {
                reference(by)
            }
            Cause::Pool(TerminationReason::CardLost | TerminationReason::Stopped) | Cause::OverLimit(_) => {
                None
            }
        };
        self.outbox.tell(Effect::Notice(Notice::Ended {
            pod: told,
            termination: termination.clone(),
            beneficiary,
            fixed: self.pool.policy() == Policy::Static,
        }));
    }

    /// How the pod's processes were last ended, as the status says it.
    pub(super) fn termination_status(&self, pod: &PodId, now: Timestamp) -> Option<TerminationStatus> {
        let termination = self.terminations.get(pod)?;
        let why = match &termination.cause {
            Cause::Pool(reason) => self.readable(&reason.to_string()),
            Cause::OverLimit(sentence) => sentence.clone(),
        };
        Some(TerminationStatus {
            reason: termination.cause.reason().to_owned(),
            why,
            killed: termination.outlived.is_some(),
            ago_seconds: super::status::seconds(now - termination.told_at),
        })
    }
}
