//! A node of a cluster: its pods come from the API server instead of from `gpupool run`, and what happens to them is
//! told there.
//!
//! What is in stays in: a pod that holds a place in the pool loses it only when the API server says that the pod has
//! gone. Silence says nothing.
//!
//! A pod is what it was when it was first seen: what an object says later of limits, priority and policy changes nothing.
//! The journal has it, for pods in the pool and outside, and over boots.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{
    CardUuid, Config, Ending, Event, PodId, PodSpec, Policy, Pool, Qos, TerminationReason, Timestamp,
};
use gpupool_core::sharing::PoolCard;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::pod_names::with_names;
use super::{Effect, PoolTask};
use crate::admin_api::policy_name;
use crate::notice::Notice;
use crate::pod::{Asks, FirstSpec, PodNews, PodOnNode, PodRef, Rejection};
use crate::registry::{PodEntry, Record};

/// What the task keeps of the cluster around it.
#[derive(Debug)]
pub(crate) struct Cluster {
    notices: mpsc::Sender<Notice>,
    cards: watch::Sender<Vec<PoolCard>>,
    /// How the node's cards are shared; `None`: not at all, or not known yet.
    policy: Option<Policy>,
    /// Pods of this node that ask for a share and have no place in the pool, by their objects' UIDs.
    outside: BTreeMap<String, Outside>,
}

#[derive(Debug)]
struct Outside {
    pod: PodOnNode,
    why: Rejection,
}

impl Cluster {
    /// Notices and the cards' health go to these ends.
    pub(crate) fn new(notices: mpsc::Sender<Notice>, cards: watch::Sender<Vec<PoolCard>>) -> Self {
        Self { notices, cards, policy: None, outside: BTreeMap::new() }
    }

    /// There may be no cards any more.
    pub(crate) fn advertise_nothing(&self) {
        self.cards.send_replace(Vec::new());
    }

    /// Hands a notice over, and waits for nobody. The other end takes in at once whatever comes, as long as it lives.
    pub(super) fn tell(&self, notice: Notice) {
        if let Err(TrySendError::Full(notice)) = self.notices.try_send(notice) {
            warn!("the cluster is not told: {notice:?}");
        }
    }
}

impl PoolTask {
    /// The API server says something about this node's pods.
    pub(super) fn pods_changed(&mut self, news: PodNews) {
        match news {
            PodNews::Present(pod) => {
                let _ = self.present(pod);
            }
            PodNews::Gone { id, uid } => self.gone(&id, &uid),
            PodNews::Listed(pods) => self.listed(pods),
            PodNews::NotAdmitted { pod, maker } => {
                self.outbox.tell(Effect::Notice(Notice::NotAdmitted { pod, maker }));
            }
        }
        self.settle_policy();
    }

    /// A pod is about to start: it must have its place now. Gives the card that it is fixed to, if it is to one.
    pub(super) fn present(&mut self, mut pod: PodOnNode) -> Result<Option<CardUuid>, Rejection> {
        let (reference, marked) = (pod.reference.clone(), pod.turned_away);
        pod.asks = self.asked_first(&pod);
        match self.take_in(&pod) {
            Ok(card) => {
                let outside = self.cluster.as_mut().map(|cluster| &mut cluster.outside);
                let was_outside = outside.and_then(|outside| outside.remove(&reference.uid));
                if was_outside.is_some() || marked {
                    self.outbox.tell(Effect::Notice(Notice::Admitted { pod: reference }));
                }
                Ok(card)
            }
            Err(why) => {
                let Some(cluster) = &mut self.cluster else { return Err(why) };
                let outside = Outside { pod, why: why.clone() };
                let before = cluster.outside.insert(reference.uid.clone(), outside);
                if before.is_none_or(|before| before.why != why) {
                    info!("{reference} gets no place in the pool: {}", why.sentence);
                    self.outbox.tell(Effect::Notice(Notice::Rejected { pod: reference, why: why.clone() }));
                }
                Err(why)
            }
        }
    }

    /// What a pod asked for when it was first seen. Only the card may come later: gpupool itself writes it.
    fn asked_first(&mut self, pod: &PodOnNode) -> Result<Asks, Rejection> {
        let uid = &pod.reference.uid;
        match self.registry.first_seen(uid) {
            Some(FirstSpec::Asked(first)) => Ok(Asks { card: pod.card.clone(), ..first.clone() }),
            Some(FirstSpec::Invalid) if pod.asks.is_ok() => {
                let sentence = "when the pod was first seen it asked for nothing that it can have, and what is changed \
                                on a live pod does not count: delete the pod and create it anew";
                Err(Rejection::new("Invalid", sentence.to_owned()))
            }
            Some(FirstSpec::Invalid) => pod.asks.clone(),
            None => {
                let spec = pod.asks.clone().map_or(FirstSpec::Invalid, FirstSpec::Asked);
                self.record(Record::FirstSeen { uid: uid.clone(), spec });
                pod.asks.clone()
            }
        }
    }

    fn forget(&mut self, uid: &str) {
        if self.registry.first_seen(uid).is_some() {
            self.record(Record::Forgotten { uid: uid.to_owned() });
        }
    }

    fn take_in(&mut self, pod: &PodOnNode) -> Result<Option<CardUuid>, Rejection> {
        if let Some(entry) = self.registry.pod(&pod.id) {
            if entry.stopping {
                let sentence =
                    format!("`{}` was deleted, and its GPU processes are not gone yet", pod.reference);
                return Err(Rejection::new("Leaving", sentence));
            }
            if let Some(known) = entry.reference.as_ref().filter(|known| known.uid != pod.reference.uid) {
                let sentence = format!(
                    "it says that it stands for the same static pod of this node as `{known}`, which was here first: \
                     only the kubelet makes such objects, delete the one that it did not make"
                );
                return Err(Rejection::new("SameStaticPod", sentence));
            }
            return Ok(self.fixed_card(&pod.id));
        }
        let asks = pod.asks.clone()?;
        self.check_policy(asks.policy)?;
        let card = asks.card.clone().filter(|_| asks.policy == Policy::Static);
        let spec = PodSpec { core: asks.core, memory: asks.memory, priority: asks.priority, card };
        self.step(&Event::PodAdded { pod: pod.id.clone(), spec })
            .map_err(|refusal| Rejection::new(refusal.reason(), self.readable(&refusal.to_string())))?;
        let reference = Some(pod.reference.clone());
        let entry = PodEntry { run: None, reference, user: 0, ledger: None, stopping: false };
        self.record(Record::Pod { pod: pod.id.clone(), entry });
        // Ready before a program asks; where that fails now, it is tried again then.
        if let Err(failure) = self.open_files(&pod.id) {
            warn!("cannot share memory with {}: {failure}", pod.reference);
        }
        Ok(self.fixed_card(&pod.id))
    }

    fn check_policy(&self, asked: Policy) -> Result<(), Rejection> {
        let Some(policy) = self.cluster.as_ref().and_then(|cluster| cluster.policy) else {
            let sentence = "this node does not share its cards: delete the pod, or enable sharing on the node with \
                            the label alibabacloud.com/gpu-share-policy";
            return Err(Rejection::new("NotShared", sentence.to_owned()));
        };
        if asked != policy {
            let sentence = format!(
                "the pod is for nodes whose policy is {}, and this node's is {}: create the pod anew, the admission \
                 webhook of gpupool keeps such pods apart",
                policy_name(asked),
                policy_name(policy)
            );
            return Err(Rejection::new("OtherPolicy", sentence));
        }
        if self.pool.policy() != policy {
            let sentence = format!(
                "this node becomes {} when the last pods have ended that share it as {}",
                policy_name(policy),
                policy_name(self.pool.policy())
            );
            return Err(Rejection::new("PolicyChanging", sentence));
        }
        Ok(())
    }

    /// The pod is not on this node any more, or has finished. Nothing happens to another one of the same id.
    fn gone(&mut self, pod: &PodId, uid: &str) {
        if let Some(cluster) = &mut self.cluster {
            cluster.outside.remove(uid);
        }
        self.forget(uid);
        let Some(entry) = self.registry.pod(pod).cloned() else { return };
        if entry.reference.as_ref().is_none_or(|known| known.uid != uid) || entry.stopping {
            return;
        }
        self.record(Record::Pod { pod: pod.clone(), entry: PodEntry { stopping: true, ..entry } });
        if self.pool.state(pod).is_some() {
            self.apply(&Event::PodRemoved { pod: pod.clone() });
        }
        self.retire(pod);
    }

    /// These pods are on the node, and no others.
    fn listed(&mut self, pods: Vec<PodOnNode>) {
        let here: BTreeSet<(PodId, String)> =
            pods.iter().map(|pod| (pod.id.clone(), pod.reference.uid.clone())).collect();
        let outside = self.cluster.iter().flat_map(|cluster| cluster.outside.values());
        let outside = outside.map(|outside| (&outside.pod.id, &outside.pod.reference));
        let known = self.registry.pods().filter_map(|(pod, entry)| Some((pod, entry.reference.as_ref()?)));
        let before: BTreeSet<(PodId, String)> =
            known.chain(outside).map(|(pod, reference)| (pod.clone(), reference.uid.clone())).collect();
        for (pod, uid) in before.difference(&here) {
            self.gone(pod, uid);
        }
        let uids: BTreeSet<&str> = pods.iter().map(|pod| pod.reference.uid.as_str()).collect();
        let unseen = self.registry.seen().filter(|uid| !uids.contains(uid));
        for uid in unseen.map(str::to_owned).collect::<Vec<_>>() {
            self.forget(&uid);
        }
        for pod in pods {
            let _ = self.present(pod);
        }
    }

    /// What holds on the node now: the policy in force and its quality of service.
    pub(super) fn sharing_changed(&mut self, policy: Option<Policy>, qos: Option<Qos>) {
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.policy != policy {
            info!("the policy in force is {}", policy.map_or("none", policy_name));
            cluster.policy = policy;
        }
        if let Some(qos) = qos.filter(|qos| *qos != self.pool.qos()) {
            self.apply(&Event::QosChanged { qos });
        }
        self.settle_policy();
        self.try_again();
    }

    /// How the cards are shared; in a cluster perhaps not at all.
    pub(super) fn policy_in_force(&self) -> Option<Policy> {
        match &self.cluster {
            Some(cluster) => cluster.policy,
            None => Some(self.pool.policy()),
        }
    }

    /// Makes the pool one of the policy in force, as soon as nobody is in the old one.
    pub(super) fn settle_policy(&mut self) {
        let Some(policy) = self.cluster.as_ref().and_then(|cluster| cluster.policy) else { return };
        if policy == self.pool.policy() || self.registry.pods().next().is_some() {
            return;
        }
        let lost: Vec<CardUuid> =
            self.pool.cards().filter(|card| card.lost).map(|card| card.uuid.clone()).collect();
        let cards = self.environment.cards.for_pool();
        match Pool::new(Config { cards, policy, qos: self.pool.qos(), check_requests: false }) {
            Ok(pool) => self.pool = pool,
            Err(refusal) => return warn!("the cards cannot be pooled: {refusal}"),
        }
        self.apply(&Event::CardsUnseen);
        for card in lost {
            self.apply(&Event::CardLost { card });
        }
        self.tell_who_is_on_the_cards();
        // What was noted before is about the old pool, and in the snapshot where it still matters.
        self.outbox.forget_records();
        self.write_snapshot();
    }

    /// What kept pods outside may be over.
    pub(super) fn try_again(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let outside: Vec<PodOnNode> = cluster.outside.values().map(|outside| outside.pod.clone()).collect();
        for pod in outside {
            let _ = self.present(pod);
        }
    }

    /// Lets the device plugins and the node's annotation know how the cards are.
    pub(super) fn publish_cards(&self) {
        let Some(cluster) = &self.cluster else { return };
        let cards: Vec<PoolCard> = self
            .pool
            .cards()
            .map(|card| PoolCard { uuid: card.uuid.to_string(), index: card.index, healthy: !card.lost })
            .collect();
        cluster.cards.send_if_modified(|before| {
            let changed = *before != cards;
            *before = cards;
            changed
        });
    }

    /// One pod makes room for another: both are told in the cluster.
    pub(super) fn notice_preemption(&mut self, victim: &PodId, beneficiary: &PodId, at: Timestamp) {
        let reference = |pod: &PodId| self.registry.pod(pod)?.reference.clone();
        let (Some(victim), Some(beneficiary)) = (reference(victim), reference(beneficiary)) else { return };
        self.outbox.tell(Effect::Notice(Notice::Preempted { victim, beneficiary, at }));
    }

    /// The earlier agent may have been killed between a decision and its Events.
    pub(super) fn repeat_notices(&mut self) {
        let ending: Vec<(PodId, Ending)> =
            self.pool.leases().filter_map(|lease| Some((lease.pod.clone(), lease.ending?.clone()))).collect();
        for (victim, ending) in ending {
            if let TerminationReason::Preempted { by } = &ending.why {
                self.notice_preemption(&victim, by, ending.told_at);
            }
            self.repeat_termination(&victim, ending.killed_at.is_some());
        }
        self.finish();
    }

    /// The owner of a pod is told in the cluster what the check on the shim has found.
    pub(super) fn notice_finding(&mut self, pod: &PodId, reason: &'static str, sentence: String) {
        let Some(pod) = self.registry.pod(pod).and_then(|entry| entry.reference.clone()) else { return };
        self.outbox.tell(Effect::Notice(Notice::Found { pod, reason, sentence }));
    }

    /// Why a pod of this node has no place in the pool.
    pub(super) fn turned_away(&self, pod: &PodId) -> Option<&Rejection> {
        let mut outside = self.cluster.as_ref()?.outside.values();
        outside.find(|outside| outside.pod.id == *pod).map(|outside| &outside.why)
    }

    /// True when nothing is known about the pod: the API server's word may be on its way.
    pub(super) fn is_unheard_of(&self, pod: &PodId) -> bool {
        self.cluster.is_some() && self.registry.pod(pod).is_none() && self.turned_away(pod).is_none()
    }

    /// The pod as people know it.
    pub(super) fn name_of(&self, pod: &PodId) -> String {
        let reference = self.registry.pod(pod).and_then(|entry| entry.reference.as_ref());
        reference.map_or_else(|| pod.to_string(), PodRef::to_string)
    }

    /// A sentence in which pods are called as people know them: the pool calls them by their UIDs.
    pub(super) fn readable(&self, sentence: &str) -> String {
        with_names(sentence, |id| {
            let entry = self.registry.pod(&id.into())?;
            entry.reference.as_ref().map(PodRef::to_string)
        })
    }

    fn fixed_card(&self, pod: &PodId) -> Option<CardUuid> {
        let view = self.pool.pod(pod)?;
        view.only.filter(|_| self.pool.policy() == Policy::Static).cloned()
    }
}
