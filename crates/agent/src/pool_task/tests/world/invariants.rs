//! What must hold at every moment, read from what NVML and the processes truly have, not from what the agent believes.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{LeaseId, PodId, TerminationReason};
use rustix::process::Signal;

use super::World;
use super::agent::{Agent, qos};
use super::gpus::{uuid, uuid_text};
use super::kernel::Kernel;
use super::people::Pod;
use crate::procfs::ProcessKey;
use crate::registry::CardUse;
use crate::usage_audit::TOLERANCE;

/// A look that began longer ago than this tells nothing any more about who is on a card, in milliseconds.
const STALE: u64 = 10_000;

/// What did not hold.
pub(super) type Violation = String;

/// What was so at the last check.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When each process was told to end for the first time.
    told: BTreeMap<ProcessKey, u64>,
    leases: BTreeSet<LeaseId>,
    /// Cards that were lost at some moment of this boot.
    pub(super) ever_lost: BTreeSet<u32>,
}

impl World {
    /// Everything that must hold now.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        let machine = self.machine.clone();
        let mut kernel = machine.kernel();
        self.watch.ever_lost.extend(kernel.gpus.lost.iter().copied());
        self.no_card_is_overcommitted(&kernel)?;
        self.no_honest_pod_takes_too_much(&kernel)?;
        let signals = std::mem::take(&mut kernel.sent_signals);
        if self.agent.is_none() {
            return Ok(());
        }
        if let Some(agent) = &mut self.agent {
            agent.hear_notices();
        }
        self.signals_have_reasons(&kernel, signals)?;
        let Some(agent) = self.agent.as_ref() else { return Ok(()) };
        self.leases_in_hand_are_known(agent)?;
        self.ledgers_count_enough(&kernel, agent)?;
        self.nobody_is_granted_beside_others(&kernel, agent)?;
        the_task_agrees_with_itself(&kernel, agent, &self.pods)?;
        let leases: BTreeSet<LeaseId> = agent.task.pool.leases().map(|lease| lease.lease).collect();
        for lease in agent.task.pool.leases().filter(|lease| !self.watch.leases.contains(&lease.lease)) {
            self.met.grants += 1;
            if let Some(pod) = self.pods.get_mut(lease.pod) {
                pod.told_at = None;
            }
        }
        self.watch.leases = leases;
        Ok(())
    }

    /// A new agent: all its leases are new to it, and none to the world.
    pub(super) fn watch_from(&mut self, leases: BTreeSet<LeaseId>) {
        self.watch.leases = leases;
    }

    /// The pod that a process truly belongs to.
    pub(super) fn pod_of(&self, key: ProcessKey) -> Option<&PodId> {
        let program = self.programs.get(&key).map(|program| &program.pod);
        program.or_else(|| self.liars.get(&key)?.pod.as_ref())
    }

    /// The limits of the pods whose honest programs have memory on a card are never more than the card.
    fn no_card_is_overcommitted(&self, kernel: &Kernel) -> Result<(), Violation> {
        for card in 0..kernel.gpus.cards {
            let honest = kernel.gpus.on(card).filter_map(|(key, _)| Some(&self.programs.get(&key)?.pod));
            let pods: BTreeSet<&PodId> = honest.collect();
            let limits = pods.iter().filter_map(|pod| Some(self.pods.get(*pod)?.limits));
            let (core, memory) = limits.fold((0, 0), |(core, memory), limits| {
                (core + u32::from(limits.core.get()), memory + u32::from(limits.memory.get()))
            });
            if core > 100 || memory > 100 {
                return Err(format!(
                    "card {card} is overcommitted (core {core}, memory {memory}) by {pods:?}"
                ));
            }
        }
        Ok(())
    }

    /// All programs of a pod without liars together stay within its memory limit.
    fn no_honest_pod_takes_too_much(&self, kernel: &Kernel) -> Result<(), Violation> {
        for (pod, bytes) in self.honest_use(kernel) {
            let limit = kernel.limits.get(pod).copied().unwrap_or(0);
            if bytes > limit {
                return Err(format!("{pod} takes {bytes} bytes, and its limit is {limit}"));
            }
        }
        Ok(())
    }

    /// What NVML shows of each pod without liars.
    fn honest_use<'a>(&'a self, kernel: &Kernel) -> BTreeMap<&'a PodId, u64> {
        let mut uses = BTreeMap::new();
        for ((_, key), taken) in &kernel.gpus.taken {
            let Some(program) = self.programs.get(key) else { continue };
            if self.pods.get(&program.pod).is_some_and(|pod| !pod.lies) {
                *uses.entry(&program.pod).or_default() += taken.bytes;
            }
        }
        uses
    }

    /// A lease that a program was told of and did not give back is its pod's, whichever agent runs.
    fn leases_in_hand_are_known(&self, agent: &Agent) -> Result<(), Violation> {
        for (key, program) in &self.programs {
            let Some(leased) = program.leased.filter(|_| !program.was_forgotten) else { continue };
            let lease = agent.task.pool.pod(&program.pod).and_then(|view| view.lease);
            let is_known = lease
                .is_some_and(|lease| lease.lease.0 == leased.lease && *lease.card == uuid(program.card()));
            if !is_known {
                return Err(format!(
                    "process {} of {} holds lease {}, which the agent does not know",
                    key.pid, program.pod, leased.lease
                ));
            }
        }
        Ok(())
    }

    /// Where the agent has the ledger of a pod without liars, it counts at least what NVML shows.
    fn ledgers_count_enough(&self, kernel: &Kernel, agent: &Agent) -> Result<(), Violation> {
        for (pod, bytes) in self.honest_use(kernel) {
            let Some(ledger) = agent.task.pages.ledger(pod) else { continue };
            let counted = ledger.with(|ledger| ledger.charged()).unwrap_or(0);
            if counted < bytes {
                return Err(format!("{pod} takes {bytes} bytes, and its ledger counts {counted}"));
            }
        }
        Ok(())
    }

    /// Who was granted a card since the last check is not beside somebody who has been there without a right for longer
    /// than a look can be old, nor beside one whom the last look showed.
    fn nobody_is_granted_beside_others(&self, kernel: &Kernel, agent: &Agent) -> Result<(), Violation> {
        let pool = &agent.task.pool;
        for lease in pool.leases().filter(|lease| !self.watch.leases.contains(&lease.lease)) {
            let Some(shown) = &agent.shown else {
                return Err(format!("{} was granted {} before anybody has looked", lease.pod, lease.card));
            };
            let card = agent.card_index(lease.card);
            let long = kernel
                .gpus
                .on(card)
                .filter(|(_, taken)| taken.much_since.is_some_and(|since| since + STALE < kernel.now));
            let shown = shown.iter().filter(|(key, on, _)| *on == card && kernel.lives(*key));
            let mut there: BTreeMap<Option<&PodId>, u64> = BTreeMap::new();
            for (key, _, bytes) in shown {
                *there.entry(self.pod_of(*key)).or_default() += bytes;
            }
            there.retain(|pod, bytes| *bytes > right_to(agent, *pod, card) + TOLERANCE);
            let without_lease = long.map(|(key, _)| self.pod_of(key));
            let others =
                without_lease.filter(|pod| right_to(agent, *pod, card) == 0).chain(there.into_keys());
            if let Some(other) = others.into_iter().find(|pod| *pod != Some(lease.pod)) {
                return Err(format!(
                    "{} was granted card {card} beside {}",
                    lease.pod,
                    other.map_or("strangers", PodId::as_str)
                ));
            }
        }
        Ok(())
    }

    /// Nothing is signalled without a reason that is true, or killed that was not told a grace before.
    fn signals_have_reasons(
        &mut self,
        kernel: &Kernel,
        signals: Vec<(ProcessKey, Signal)>,
    ) -> Result<(), Violation> {
        for (key, signal) in signals {
            let run = self.pods.iter().find(|(_, pod)| pod.run.as_ref().is_some_and(|run| run.key == key));
            let pod = run.map(|(pod, _)| pod).or_else(|| self.pod_of(key)).cloned();
            let Some(pod) = pod else {
                return Err(format!("process {} of no pod was sent {signal:?}", key.pid));
            };
            let why = self.why_told(kernel, &pod)?;
            let entry = self.pods.get_mut(&pod).expect("a pod");
            let Some(why) = why else {
                return Err(format!("process {} of {pod} was sent {signal:?} without a reason", key.pid));
            };
            self.met.told += 1;
            if signal == Signal::TERM {
                entry.told_at.get_or_insert(kernel.now);
                self.watch.told.entry(key).or_insert(kernel.now);
                continue;
            }
            self.met.kills += 1;
            // Who has come to the card since was told with its pod.
            let lease = self.agent.as_ref().and_then(|agent| agent.task.pool.pod(&pod)?.lease);
            let by_lease = lease.and_then(|lease| Some(lease.ending?.told_at.0));
            // Who takes more than its limit may have been told for that before its time on the card was up.
            let before = entry.told_at.filter(|_| by_lease.is_none() || self.kind.evicts && entry.lies);
            let itself = self.watch.told.get(&key).copied();
            let announced_at = by_lease.into_iter().chain(before).chain(itself).min();
            if announced_at.is_none_or(|told_at| kernel.now < told_at + qos().grace.0) {
                return Err(format!(
                    "process {} of {pod} was killed ({why}) and told at {announced_at:?}",
                    key.pid
                ));
            }
        }
        Ok(())
    }

    /// Why a pod may have been told to terminate; an untrue reason is a violation.
    fn why_told(&self, kernel: &Kernel, pod: &PodId) -> Result<Option<&'static str>, Violation> {
        let entry = &self.pods[pod];
        if entry.was_stopped {
            return Ok(Some("stopped"));
        }
        let Some(agent) = &self.agent else { return Ok(None) };
        let lease = agent.task.pool.pod(pod).and_then(|view| view.lease);
        if let Some((lease, ending)) = lease.and_then(|lease| Some((lease.clone(), lease.ending?.clone()))) {
            let held = (ending.told_at - lease.since).0;
            let is_announced = !self.kind.in_cluster || agent.announced.contains(pod.as_str());
            let (is_true, why) = match &ending.why {
                TerminationReason::Stopped => (false, "stopped"),
                TerminationReason::CardLost => {
                    let card = agent.card_index(lease.card);
                    (card == u32::MAX || self.watch.ever_lost.contains(&card), "its card is lost")
                }
                TerminationReason::Preempted { .. } => (held >= qos().pod_max_duration.0, "pre-empted"),
                TerminationReason::IdleRelease { by } => {
                    (held >= 30_000 && self.pods.contains_key(by), "idle")
                }
            };
            return if is_true && is_announced {
                Ok(Some(why))
            } else {
                Err(format!(
                    "{pod} was told to terminate: {}, which is not true, or its owner was not told",
                    ending.why
                ))
            };
        }
        let is_forgotten = self.programs.values().any(|program| program.pod == *pod && program.was_forgotten);
        let was_waited_for = agent.started + 60_000 <= kernel.now;
        Ok((self.kind.evicts && (entry.lies || is_forgotten && was_waited_for)).then_some("evicted"))
    }
}

/// What a pod may take of a card, in bytes.
fn right_to(agent: &Agent, pod: Option<&PodId>, card: u32) -> u64 {
    let lease = pod.and_then(|pod| agent.task.pool.pod(pod)?.lease);
    let limits = lease.filter(|lease| lease.card.as_str() == uuid_text(card)).map(|lease| lease.limits);
    limits.map_or(0, |limits| super::gpus::TOTAL / 100 * u64::from(limits.memory.get()))
}

fn the_task_agrees_with_itself(
    kernel: &Kernel,
    agent: &Agent,
    pods: &BTreeMap<PodId, Pod>,
) -> Result<(), Violation> {
    let task = &agent.task;
    task.pool.check_invariants().map_err(|violation| violation.to_string())?;
    if task.reports.counters.disagreements.get() > 0 {
        return Err(format!("the pool refused what must succeed: {:?}", crate::log::take()));
    }
    for lease in task.pool.leases() {
        let is_used = !task.registry.members_using(lease.pod, CardUse::Holding).is_empty();
        if !is_used && task.presence.has_left(lease.pod, lease.card) {
            return Err(format!("nobody holds the lease of {}, and it does not end", lease.pod));
        }
    }
    for waiting in task.pool.queue() {
        if task.registry.members_using(waiting.pod, CardUse::Waiting).is_empty() {
            return Err(format!("{} stands in the queue, and nobody of it waits", waiting.pod));
        }
    }
    for view in task.pool.pods() {
        // One that is gone may leave its name to whoever claims it.
        let limits = pods.get(view.pod).filter(|pod| !pod.was_stopped).map(|pod| pod.limits);
        if limits.is_some_and(|limits| limits != view.spec.limits()) {
            return Err(format!("{} came with {limits:?}, and has {:?}", view.pod, view.spec.limits()));
        }
    }
    let heard_of = |key: &ProcessKey| kernel.lives(*key) || kernel.exits.contains(key);
    match task.registry.processes().find(|(key, _)| !heard_of(key)) {
        Some((key, _)) => Err(format!("process {} has ended, and the task keeps it", key.pid)),
        None => Ok(()),
    }
}
