//! What programs and watchers see: limits pages, and the status that `watch` streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpupool_core::pool::{self, CardUuid, LeaseId, PodId};
use gpupool_wire::bucket::Rate;
use gpupool_wire::limits::{Limits, PodState};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::PoolTask;
use crate::admin_api::{self, Reply};

impl PoolTask {
    /// Brings all pages up to date, and tells watchers.
    pub(super) fn publish(&mut self) {
        self.reports.waiting_since =
            self.pool.queue().map(|waiting| (waiting.pod.clone(), waiting.since)).collect::<BTreeMap<_, _>>();
        for pod in self.pages.pods() {
            self.publish_pod(&pod);
        }
        if self.reports.is_watched() {
            let packets = self.status_packets();
            self.reports.show(packets);
        }
    }

    /// Brings one pod's page up to date.
    pub(super) fn publish_pod(&mut self, pod: &PodId) {
        let limits = self.limits_of(pod);
        if let Some(files) = self.pages.get_mut(pod) {
            files.limits.say(limits);
        }
    }

    /// What a pod may use, on its card or on the one that it would get now.
    pub(super) fn limits_of(&self, pod: &PodId) -> Limits {
        let nothing = Limits {
            core_percent: 1,
            core_rate: Rate::UNLIMITED,
            memory_bytes: 0,
            context_reserve_bytes: 0,
            state: PodState::Hibernating,
            position: 0,
            card: 0,
        };
        let Some(view) = self.pool.pod(pod) else { return nothing };
        let (limits, card) = match &view.lease {
            Some(lease) => (lease.limits, Some(lease.card)),
            None => (view.spec.limits(), self.pool.likeliest_card(pod)),
        };
        let (index, total, context) = match card.and_then(|card| self.environment.cards.find(card)) {
            Some((index, card)) => (index, card.total_memory, card.context_reserve),
            None => self
                .environment
                .cards
                .all()
                .first()
                .map_or((0, 0, 0), |card| (0, card.total_memory, card.context_reserve)),
        };
        Limits {
            core_percent: u32::from(limits.core.get()),
            core_rate: self.pages.core_limits.rate(pod),
            memory_bytes: share_of(total, limits.memory),
            context_reserve_bytes: context,
            state: match view.state {
                pool::PodState::Hibernating => PodState::Hibernating,
                pool::PodState::Ready => PodState::Ready,
                pool::PodState::Running => PodState::Running,
            },
            position: self.pool.position(pod).unwrap_or(0),
            card: index,
        }
    }

    /// A pod's lease: card and number.
    pub(super) fn lease_of(&self, pod: &PodId) -> Option<(CardUuid, LeaseId)> {
        let lease = self.pool.pod(pod)?.lease?;
        Some((lease.card.clone(), lease.lease))
    }

    /// True when the pod was told to leave its card.
    pub(super) fn is_ending(&self, pod: &PodId) -> bool {
        self.pool.pod(pod).and_then(|view| view.lease).is_some_and(|lease| lease.ending.is_some())
    }

    /// Lets somebody see every status from now on.
    pub(super) fn watch(&mut self, answer: oneshot::Sender<watch::Receiver<Arc<Vec<Vec<u8>>>>>) {
        let receiver = self.reports.watch(self.status_packets());
        // Whoever asked may have hung up.
        let _ = answer.send(receiver);
    }

    fn status_packets(&self) -> Arc<Vec<Vec<u8>>> {
        let status = Reply::Status(Box::new(self.status()));
        Arc::new(admin_api::reply_packets(&status).unwrap_or_else(|failure| {
            warn!("cannot write the status: {failure}");
            Vec::new()
        }))
    }
}

/// So many percent of `total` bytes, rounded down.
pub(super) fn share_of(total: u64, percent: gpupool_core::share::Percent) -> u64 {
    let bytes = u128::from(total) * u128::from(percent.get()) / 100;
    u64::try_from(bytes).unwrap_or(total)
}
