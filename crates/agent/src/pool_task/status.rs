//! The status and the metrics, read from the pool and the registry.

use gpupool_core::pool::{LeaseView, Millis, PodId, Timestamp};

use super::PoolTask;
use super::publish::share_of;
use crate::admin_api::{CardStatus, EndingStatus, LeaseStatus, PodStatus, QosStatus, QueueStatus, Status};
use crate::metrics::{CardSample, PodSample, Scrape};

impl PoolTask {
    /// How things stand now.
    pub(super) fn status(&self) -> Status {
        let now = self.now();
        let qos = self.pool.qos();
        Status {
            version: 1,
            node: self.settings.node.clone(),
            simulated: self.settings.simulated.is_some(),
            policy: self.pool.policy(),
            qos: QosStatus {
                preempt_enabled: qos.preempt_enabled,
                pod_max_duration_seconds: seconds(qos.pod_max_duration),
                grace_seconds: seconds(qos.grace),
                idle_release_seconds: qos.idle_release.map(seconds),
            },
            cards: self.card_statuses(),
            leases: self.pool.leases().map(|lease| self.lease_status(&lease, now)).collect(),
            queue: self
                .pool
                .queue()
                .map(|waiting| QueueStatus {
                    pod: self.name_of(waiting.pod),
                    position: waiting.position,
                    waiting_seconds: seconds(now - waiting.since),
                })
                .collect(),
            pods: self.pod_statuses(now),
            strangers: self.stranger_statuses(),
        }
    }

    fn card_statuses(&self) -> Vec<CardStatus> {
        let status = |card: gpupool_core::pool::CardView<'_>| {
            let info = self.environment.cards.find(card.uuid).map(|(_, info)| info);
            CardStatus {
                index: card.index,
                uuid: card.uuid.to_string(),
                name: info.map_or_else(String::new, |info| info.name.clone()),
                lost: card.lost,
                memory_total_bytes: info.map_or(0, |info| info.total_memory),
                core_used_percent: card.core_used,
                memory_used_percent: card.memory_used,
                pods: card.pods.iter().map(|pod| self.name_of(pod)).collect(),
                held_back: self.held_back(card.uuid),
            }
        };
        self.pool.cards().map(status).collect()
    }

    fn lease_status(&self, lease: &LeaseView<'_>, now: Timestamp) -> LeaseStatus {
        let info = self.environment.cards.find(lease.card).map(|(_, info)| info);
        LeaseStatus {
            pod: self.name_of(lease.pod),
            lease: lease.lease.0,
            card: info.map_or(0, |info| info.index),
            card_uuid: lease.card.to_string(),
            age_seconds: seconds(now - lease.since),
            core_limit_percent: u32::from(lease.limits.core.get()),
            memory_limit_percent: u32::from(lease.limits.memory.get()),
            memory_limit_bytes: info.map_or(0, |info| share_of(info.total_memory, lease.limits.memory)),
            memory_used_bytes: self.memory_used(lease.pod),
            idle_seconds: lease.idle_since.map(|since| seconds(now - since)),
            ending: lease.ending.map(|ending| EndingStatus {
                why: self.readable(&ending.why.to_string()),
                kill_in_seconds: if ending.killed_at.is_some() { 0.0 } else { seconds(ending.kill_at - now) },
            }),
        }
    }

    fn pod_statuses(&self, now: Timestamp) -> Vec<PodStatus> {
        let status = |view: gpupool_core::pool::PodView<'_>| {
            let entry = self.registry.pod(view.pod);
            PodStatus {
                name: self.name_of(view.pod),
                state: view.state,
                core: view.spec.core,
                memory: view.spec.memory,
                priority: view.spec.priority,
                run_pid: entry.and_then(|entry| entry.run).map(|run| run.pid),
                pids: self.registry.members_of(view.pod).iter().map(|key| key.pid).collect(),
                stopping: view.leaving || entry.is_some_and(|entry| entry.stopping),
                hold: self.hold_status(&view),
                termination: self.termination_status(view.pod, now),
            }
        };
        self.pool.pods().map(status).collect()
    }

    /// Bytes that the pod's processes hold; `None` while a restarted agent has not got its ledger back.
    fn memory_used(&self, pod: &PodId) -> Option<u64> {
        self.pages.get(pod)?.ledger.as_ref()?.with(|ledger| ledger.committed())
    }

    /// What the pod's processes used of their card at the last look, percent of the whole card. Where NVML does not
    /// tell processes apart, a pod that is alone on its card used what the card did.
    fn utilisation(&self, lease: &LeaseView<'_>) -> Option<u32> {
        let look = self.check.looks.get(lease.card)?;
        if let Some(by_process) = &look.utilisation_of {
            let members = self.registry.members_of(lease.pod);
            let used: u32 = members.iter().filter_map(|key| by_process.get(&key.pid)).sum();
            return Some(used.min(100));
        }
        let alone = self.pool.leases().filter(|other| other.card == lease.card).count() == 1;
        look.utilisation.filter(|_| alone)
    }

    /// Everything the metrics page says.
    pub(super) fn scrape(&self) -> Scrape {
        let now = self.now();
        let pod = |view: gpupool_core::pool::PodView<'_>| PodSample {
            reference: self.registry.pod(view.pod).and_then(|entry| entry.reference.clone()),
            id: view.pod.to_string(),
            state: view.state,
            position: self.pool.position(view.pod),
            memory_used: view.lease.as_ref().and_then(|_| self.memory_used(view.pod)),
            utilisation: view.lease.as_ref().and_then(|lease| self.utilisation(lease)),
            card: view.lease.as_ref().and_then(|lease| {
                let (_, info) = self.environment.cards.find(lease.card)?;
                Some((info.index, info.uuid.to_string()))
            }),
            hold: self.hold_status(&view),
        };
        let card = |card: gpupool_core::pool::CardView<'_>| CardSample {
            index: card.index,
            uuid: card.uuid.to_string(),
            core: card.core_used,
            memory: card.memory_used,
            strangers: self.strangers_on(card.uuid),
            held_back: self.held_back(card.uuid).iter().map(|reason| reason.why).collect(),
        };
        Scrape {
            node: self.settings.node.clone(),
            policy: self.policy_in_force(),
            device_metrics: self.settings.device_metrics,
            pods: self.pool.pods().map(pod).collect(),
            cards: self.pool.cards().map(card).collect(),
            queue_length: self.pool.queue().count(),
            oldest_wait: self.pool.queue().map(|waiting| now - waiting.since).max().unwrap_or_default(),
            connections: self.connections.len(),
            counters: self.reports.counters.clone(),
        }
    }
}

pub(super) fn seconds(span: Millis) -> f64 {
    std::time::Duration::from_millis(span.0).as_secs_f64()
}
