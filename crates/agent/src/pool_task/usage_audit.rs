//! The agent's own check on the shim: who uses the cards without being held, and who takes more than is counted.
//!
//! What follows from a look is decided in [`crate::usage_audit`]; here the processes get their pods, findings are said,
//! and where the agent's setting says so, a pod that takes more than its limit loses its GPU processes.

use std::collections::BTreeMap;

use gpupool_core::pool::{CardUuid, Millis, PodId, PodView, Timestamp};
use gpupool_core::share::Percent;
use gpupool_core::sharing::names;
use gpupool_wire::ledger::Slot;
use tracing::{info, warn};

use super::PoolTask;
use super::processes::CONFIRM_AFTER_RESTART;
use crate::admin_api::{Hold, HoldStatus, NotHeldStatus, StrangerStatus};
use crate::cards::watch::Look;
use crate::environment::ProcessHandle;
use crate::notice::{Cause, Termination};
use crate::procfs::ProcessKey;
use crate::usage_audit::observe::{Observation, Regular, Sighting};
use crate::usage_audit::{Accounts, Finding, GpuProcess, Reading, TOLERANCE, Taken, WhyNotHeld};

/// What the looks at the cards have shown, and what is being done about it.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// The last look at each card.
    pub(super) looks: BTreeMap<CardUuid, Look>,
    accounts: Accounts,
    /// The last look, by pod.
    readings: BTreeMap<PodId, Reading>,
    /// Processes of no pod in the last look.
    strangers: Vec<GpuProcess>,
    evictions: BTreeMap<PodId, Eviction>,
}

/// A pod whose GPU processes are being ended.
#[derive(Debug)]
struct Eviction {
    targets: Vec<Box<dyn ProcessHandle>>,
    termination: Termination,
    grace: Millis,
}

/// Whose process a sighting shows.
enum Owner {
    /// A pod's, and the shim holds it.
    Held(PodId),
    /// A pod's, and nothing holds it.
    NotHeld(PodId),
    /// Nobody's.
    Stranger,
}

impl PoolTask {
    /// NVML has looked at the cards.
    pub(super) fn observed(&mut self, observation: Observation) {
        self.take_in_look(&observation);
        // A card that is lost looks empty: nobody is let in on it meanwhile. Nor on one that is back, before it is known
        // who is there.
        self.lose_cards(observation.regular.iter().flat_map(|regular| &regular.looks));
        self.follow_look();
        let Some(Regular { looks, counted }) = observation.regular else { return };
        self.find_cards(looks);
        let (readings, strangers) = self.readings(&observation.sightings, &counted);
        for finding in self.check.accounts.look(&readings, &strangers) {
            self.found(&finding, &observation.sightings);
        }
        self.check.readings = readings.into_iter().map(|reading| (reading.pod.clone(), reading)).collect();
        self.check.strangers = strangers;
        self.environment.ledgers.replace(self.pages.ledgers());
        self.say_what_is_held_back();
    }

    /// Sorts what was seen by pod.
    fn readings(
        &self,
        sightings: &[Sighting],
        counted: &BTreeMap<PodId, u64>,
    ) -> (Vec<Reading>, Vec<GpuProcess>) {
        let mut readings: BTreeMap<PodId, Reading> = BTreeMap::new();
        let mut strangers = Vec::new();
        for sighting in sightings {
            let owner = self.owner_of(sighting);
            let (pod, held) = match owner {
                Owner::Held(pod) => (pod, true),
                Owner::NotHeld(pod) => (pod, false),
                Owner::Stranger => {
                    strangers.push(sighting.process.clone());
                    continue;
                }
            };
            let reading = readings.entry(pod).or_insert_with_key(|pod| self.empty_reading(pod, counted));
            if held {
                reading.held.push(sighting.process.clone());
            } else {
                let unserved = self.connections.is_unheld(sighting.key);
                let why = if unserved { WhyNotHeld::OtherVersion } else { sighting.why_not_held };
                reading.not_held.push((sighting.process.clone(), why));
            }
        }
        (readings.into_values().collect(), strangers)
    }

    fn empty_reading(&self, pod: &PodId, counted: &BTreeMap<PodId, u64>) -> Reading {
        let ledger = self.pages.ledger(pod);
        let now = ledger.and_then(|ledger| ledger.with(|ledger| ledger.charged()));
        Reading {
            pod: pod.clone(),
            held: Vec::new(),
            not_held: Vec::new(),
            counted: now.map(|now| now.max(counted.get(pod).copied().unwrap_or(0))),
            lease: self.lease_of(pod).and_then(|(card, _)| {
                let limit = self.memory_limit_on(pod, &card)?;
                Some((card, limit))
            }),
        }
    }

    fn owner_of(&self, sighting: &Sighting) -> Owner {
        if let Some(process) = self.registry.process(sighting.key) {
            // Where a restarted agent has not got the ledger back, the process has the benefit of the doubt.
            let counted = self
                .pages
                .slot(&process.pod, process.slot, |slot: &Slot| {
                    slot.contexts() > 0 || slot.committed() > 0 || slot.pending() > 0
                })
                .unwrap_or(true);
            // It has introduced itself and counts nothing, and yet there is more than a driver leaves behind.
            let past = !counted && sighting.process.bytes.is_some_and(|bytes| bytes > TOLERANCE);
            return if past { Owner::NotHeld(process.pod.clone()) } else { Owner::Held(process.pod.clone()) };
        }
        self.pod_of_process(sighting.key).map_or(Owner::Stranger, Owner::NotHeld)
    }

    /// The pod of the pool that a process belongs to, whether or not it has introduced itself.
    pub(super) fn pod_of_process(&self, key: ProcessKey) -> Option<PodId> {
        if let Some(process) = self.registry.process(key) {
            return Some(process.pod.clone());
        }
        // In a cluster every pod is known by its cgroup, also one that has nothing to do with the pool.
        self.environment.identity.pod_of(key, None).ok().filter(|pod| self.registry.pod(pod).is_some())
    }

    /// Says what was found where whoever runs the node looks, and to the pod's owner; and evicts where that is set.
    fn found(&mut self, finding: &Finding, sightings: &[Sighting]) {
        let sentence = self.readable(&finding.to_string());
        match finding {
            Finding::OverLimit { pod, taken } => {
                let is_known = self.check.evictions.contains_key(pod) || self.may_be_forgotten(*taken);
                if !self.settings.evict_unaccounted || is_known {
                    return;
                }
                self.reports.counters.evictions.inc();
                let sentence = format!("{sentence}: its GPU programs are ended");
                info!("{sentence}");
                self.evict(pod, sentence, sightings);
            }
            Finding::Unaccounted { pod, .. } => {
                info!("{sentence}");
                self.notice_finding(pod, names::UNACCOUNTED, sentence);
            }
            Finding::NotHeld { pod, .. } => {
                info!("{sentence}");
                self.notice_finding(pod, names::NOT_HELD, sentence);
            }
            Finding::Accounted { .. } | Finding::Stranger(_) => info!("{sentence}"),
        }
    }

    /// Whether a pod that takes this without a lease of the card may have one that was lost with an earlier agent, and its
    /// programs had no time to say so. What could not be written then, nobody knows; meanwhile nobody else is let in there.
    fn may_be_forgotten(&self, taken: Taken) -> bool {
        taken.limit == 0 && self.now() - self.started < CONFIRM_AFTER_RESTART
    }

    /// Ends a pod's GPU processes as in a pre-emption. Its lease, if it has one, ends with the last of those that
    /// hold it.
    fn evict(&mut self, pod: &PodId, sentence: String, sightings: &[Sighting]) {
        let mine = |sighting: &&Sighting| matches!(self.owner_of(sighting), Owner::Held(owner) | Owner::NotHeld(owner) if owner == *pod);
        let keys: Vec<ProcessKey> = sightings.iter().filter(mine).map(|sighting| sighting.key).collect();
        let (cause, told_at) = (Cause::OverLimit(sentence), self.now());
        let termination = Termination { cause, told_at, outlived: None, card: None };
        let warrant = self.warrant(pod, termination.clone());
        let mut targets = Vec::new();
        for key in keys {
            // One that has ended meanwhile needs no signal.
            let Ok(held) = self.environment.processes.hold(key) else { continue };
            if let Err(failure) = held.signal(&warrant) {
                warn!("cannot send a signal to process {}: {failure}", key.pid);
            }
            targets.push(held);
        }
        let grace = self.pool.qos().grace;
        self.check.evictions.insert(pod.clone(), Eviction { targets, termination, grace });
    }

    /// Kills whom the grace did not end, and forgets evictions that are over.
    pub(super) fn continue_evictions(&mut self, now: Timestamp) {
        let mut evictions = std::mem::take(&mut self.check.evictions);
        for (pod, eviction) in &mut evictions {
            eviction.targets.retain(|target| !target.has_ended());
            if eviction.targets.is_empty() {
                self.check.accounts.forget(pod);
            } else if eviction.termination.told_at + eviction.grace <= now {
                let killed = Termination { outlived: Some(eviction.grace), ..eviction.termination.clone() };
                let warrant = self.warrant(pod, killed);
                for target in &eviction.targets {
                    // It may end this moment by itself; what can't be killed is tried again.
                    let _ = target.signal(&warrant);
                }
            }
        }
        evictions.retain(|_, eviction| !eviction.targets.is_empty());
        self.check.evictions = evictions;
    }

    /// How a pod is held, by the last look.
    pub(super) fn hold_status(&self, pod: &PodView<'_>) -> HoldStatus {
        let Some(reading) = self.check.readings.get(pod.pod) else {
            return HoldStatus {
                memory: Hold::Unused,
                core: Hold::Unused,
                unaccounted_bytes: Some(0),
                not_held: Vec::new(),
            };
        };
        let memory = match (reading.held.is_empty(), reading.not_held.is_empty()) {
            (_, true) => Hold::Shim,
            (false, false) => Hold::Partly,
            (true, false) => Hold::Nothing,
        };
        let limits = pod.lease.as_ref().map_or_else(|| pod.spec.limits(), |lease| lease.limits);
        let not_held = |(process, why): &(GpuProcess, _)| NotHeldStatus {
            pid: process.pid,
            card: self.card_index(&process.card),
            memory_bytes: process.bytes,
            why: *why,
        };
        HoldStatus {
            memory,
            core: if limits.core == Percent::WHOLE { Hold::Unlimited } else { memory },
            unaccounted_bytes: reading.unaccounted(),
            not_held: reading.not_held.iter().map(not_held).collect(),
        }
    }

    /// Processes of no pod in the last look.
    pub(super) fn stranger_statuses(&self) -> Vec<StrangerStatus> {
        let status = |process: &GpuProcess| StrangerStatus {
            pid: process.pid,
            card: self.card_index(&process.card),
            memory_bytes: process.bytes,
        };
        self.check.strangers.iter().map(status).collect()
    }

    /// How many of them use a card.
    pub(super) fn strangers_on(&self, card: &CardUuid) -> usize {
        self.check.strangers.iter().filter(|process| process.card == *card).count()
    }

    fn card_index(&self, card: &CardUuid) -> u32 {
        self.environment.cards.find(card).map_or(0, |(_, info)| info.index)
    }
}
