//! Reads a Pod object as far as the agent is concerned.
//!
//! What a pod asks for is read by `gpupool_k8s` and decided by `gpupool_core::sharing`, the same that admission uses.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::sharing;
use gpupool_core::sharing::names::ACCEPTED_CONDITION;
use gpupool_k8s::pod;
use k8s_openapi::api::core::v1::Pod;

use crate::pod::{Asks, PodOnNode, PodRef, Rejection};

/// The kubelet's annotation on the object that mirrors a static pod: what stands in the cgroup instead of its UID.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

impl PodOnNode {
    /// The object, if it asks for a share and has not finished.
    pub(super) fn read(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let wanted = pod::sharing(pod);
        if !wanted.shares() || pod::has_finished(pod) {
            return None;
        }
        let card = pod::card(pod);
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

fn asks(wanted: &sharing::Pod, priority: i32, card: Option<CardUuid>) -> Result<Asks, Rejection> {
    let invalid = |sentence: String| Rejection::new("Invalid", sentence);
    let asked = wanted.share().map_err(|refusal| invalid(refusal.to_string()))?;
    let asked = asked.ok_or_else(|| invalid("the pod asks for no share of a card".to_owned()))?;
    let policy = match asked.policy {
        sharing::Policy::Static => Policy::Static,
        _ => Policy::SharePool,
    };
    Ok(Asks { policy, core: asked.core, memory: asked.memory, priority, card })
}

fn is_turned_away(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == ACCEPTED_CONDITION && condition.status == "False")
}
