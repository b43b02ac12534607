//! A Pod object as far as the agent is concerned.
//!
//! What a pod asks for is read by `gpupool_core::sharing`, the same reading that admission does; here only the
//! object is taken apart.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::share::Share;
use gpupool_core::sharing;
use gpupool_core::sharing::names::{ACCEPTED_CONDITION, CARD_ANNOTATION};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

/// The kubelet's annotation on the object that mirrors a static pod: what stands in the cgroup instead of its UID.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Which object a pod is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRef {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name there.
    pub(crate) name: String,
    /// The object's UID: another pod under the same name has another.
    pub(crate) uid: String,
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// A pod of this node that asks for a share of a card, rightly or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodOnNode {
    /// What its cgroup is called after.
    pub(crate) id: PodId,
    /// The object.
    pub(crate) reference: PodRef,
    /// What it asks for, or why it can't have it.
    pub(crate) asks: Result<Asks, TurnedAway>,
    /// Its condition says that it was turned away.
    pub(crate) turned_away: bool,
    /// The card in its annotation.
    pub(crate) card: Option<CardUuid>,
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asks {
    /// The policy of the nodes that it is for.
    pub(crate) policy: Policy,
    /// Of a card's computing time.
    pub(crate) core: Share,
    /// Of a card's memory.
    pub(crate) memory: Share,
    /// Higher goes first in the queue.
    pub(crate) priority: i32,
    /// `static`: the card that was chosen for it, where one was.
    pub(crate) card: Option<CardUuid>,
}

/// Why a pod has no place in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnedAway {
    /// One word, for the condition.
    pub(crate) reason: &'static str,
    /// What is wrong and what to do.
    pub(crate) sentence: String,
}

impl TurnedAway {
    pub(crate) fn new(reason: &'static str, sentence: String) -> Self {
        Self { reason, sentence }
    }
}

/// What the API server says about this node's pods.
#[derive(Debug)]
pub(crate) enum PodNews {
    /// The pod is there, like this.
    Present(PodOnNode),
    /// It has finished, or is not there any more.
    Gone(PodId),
    /// These are there, and no others.
    Listed(Vec<PodOnNode>),
}

impl PodOnNode {
    /// The object, if it asks for a share and has not finished.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let wanted = wanted(pod);
        if !wanted.shares() || has_finished(pod) {
            return None;
        }
        let annotations = meta.annotations.as_ref();
        let card = annotations.and_then(|all| all.get(CARD_ANNOTATION)).map(|uuid| uuid.as_str().into());
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        Some(Self {
            id: id_of(pod)?,
            reference: PodRef {
                namespace: meta.namespace.clone()?,
                name: meta.name.clone()?,
                uid: meta.uid.clone()?,
            },
            asks: asks(&wanted, priority, card.clone()),
            turned_away: is_turned_away(pod),
            card,
        })
    }
}

/// What the pod's cgroup is called after.
pub(super) fn id_of(pod: &Pod) -> Option<PodId> {
    let mirrored = pod.metadata.annotations.as_ref().and_then(|all| all.get(MIRROR_ANNOTATION));
    mirrored.or(pod.metadata.uid.as_ref()).map(|uid| uid.as_str().into())
}

fn asks(wanted: &sharing::Pod, priority: i32, card: Option<CardUuid>) -> Result<Asks, TurnedAway> {
    let invalid = |sentence: String| TurnedAway::new("Invalid", sentence);
    let asked = wanted.share().map_err(|refusal| invalid(refusal.to_string()))?;
    let asked = asked.ok_or_else(|| invalid("the pod asks for no share of a card".to_owned()))?;
    let policy = match asked.policy {
        sharing::Policy::Static => Policy::Static,
        _ => Policy::SharePool,
    };
    Ok(Asks { policy, core: asked.core, memory: asked.memory, priority, card })
}

fn wanted(pod: &Pod) -> sharing::Pod {
    let meta = &pod.metadata;
    let mut wanted = sharing::Pod::new(meta.labels.as_ref(), meta.annotations.as_ref());
    let Some(spec) = &pod.spec else { return wanted };
    let before = spec.init_containers.iter().flatten().map(|container| share_of(container, true));
    wanted.containers.extend(before);
    wanted.containers.extend(spec.containers.iter().map(|container| share_of(container, false)));
    wanted
}

fn share_of(container: &Container, init: bool) -> sharing::Container {
    let resources = container.resources.as_ref();
    let request = |name: &str| Some(resources?.requests.as_ref()?.get(name)?.0.as_str());
    let limit = |name: &str| Some(resources?.limits.as_ref()?.get(name)?.0.as_str());
    sharing::Container::new(&container.name, init, request, limit)
}

fn has_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_turned_away(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == ACCEPTED_CONDITION && condition.status == "False")
}
