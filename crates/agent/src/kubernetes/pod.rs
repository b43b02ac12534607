//! A Pod object as far as the agent is concerned.
//!
//! What a pod asks for is read by `gpupool_core::sharing`, the same reading that admission does; here only the
//! object is taken apart.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::sharing;
use gpupool_core::sharing::names::{ACCEPTED_CONDITION, CARD_ANNOTATION};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::pod::{Asks, PodOnNode, PodRef, TurnedAway};

/// The kubelet's annotation on the object that mirrors a static pod: what stands in the cgroup instead of its UID.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

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
