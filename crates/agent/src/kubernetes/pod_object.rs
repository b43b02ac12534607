//! Reads a Pod object as far as the agent is concerned.
//!
//! What a pod asks for is read by `gpupool_k8s` and decided by `gpupool_core::sharing`, the same that admission uses.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::sharing;
use gpupool_core::sharing::names::{ACCEPTED_CONDITION, MIRROR_ANNOTATION};
use gpupool_k8s::pod;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::pod::{Asks, PodNews, PodOnNode, PodRef, Rejection, cluster_pod_id, static_pod_hash};

impl PodOnNode {
    /// The object, if it is one of this node, asks for a share and has not finished.
    pub(super) fn read(pod: &Pod, node: &str) -> Option<Self> {
        let meta = &pod.metadata;
        let wanted = pod::sharing(pod);
        if !wanted.shares() || pod::has_finished(pod) {
            return None;
        }
        let card = pod::card(pod);
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        Some(Self {
            id: id_of(pod, node)?,
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

/// The news that a pod of this node is not there any more, or asks for nothing.
pub(super) fn gone(pod: &Pod, node: &str) -> Option<PodNews> {
    Some(PodNews::Gone { id: id_of(pod, node)?, uid: pod.metadata.uid.clone()? })
}

/// What the pod's cgroup is called after: its UID, which the API server gave it, or the static pod that it mirrors.
fn id_of(pod: &Pod, node: &str) -> Option<PodId> {
    if pod.spec.as_ref()?.node_name.as_deref() != Some(node) {
        return None;
    }
    mirrored(pod, node).or_else(|| cluster_pod_id(pod.metadata.uid.as_deref()?))
}

/// The static pod of this node that an object stands for. Anybody who may create pods can write the annotation; so what it
/// says counts only in the form that a kubelet gives it, on an object that belongs to this node.
fn mirrored(pod: &Pod, node: &str) -> Option<PodId> {
    let hash = static_pod_hash(pod.metadata.annotations.as_ref()?.get(MIRROR_ANNOTATION)?)?;
    let owners = pod.metadata.owner_references.as_deref()?;
    let is_node = |owner: &&OwnerReference| {
        owner.api_version == "v1"
            && owner.kind == "Node"
            && owner.name == node
            && owner.controller == Some(true)
    };
    owners.iter().find(is_node).map(|_| hash)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NODE: &str = "n1";
    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
    const OTHER: &str = "ffffffff-ffff-4fff-bfff-ffffffffffff";
    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn owner(node: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": "u", "controller": true })
    }

    fn id(mirror: &str, owners: &Value) -> Option<String> {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "default", "uid": UID, "ownerReferences": owners,
                "annotations": { MIRROR_ANNOTATION: mirror },
            },
            "spec": { "nodeName": NODE, "containers": [] },
        });
        id_of(&serde_json::from_value(pod).unwrap(), NODE).map(|id| id.to_string())
    }

    #[test]
    fn an_object_stands_for_a_static_pod_only_as_the_kubelet_of_this_node_writes_it() {
        assert_eq!(id(HASH, &json!([owner(NODE)])).as_deref(), Some(HASH));
        let mut set = owner(NODE);
        set["kind"] = json!("DaemonSet");
        let mut idle = owner(NODE);
        idle["controller"] = json!(false);
        let mut own = owner(NODE);
        own["apiVersion"] = json!("example.com/v1");
        let owners =
            [json!(null), json!([]), json!([owner("n2")]), json!([set]), json!([idle]), json!([own])];
        for owners in owners {
            assert_eq!(id(HASH, &owners).as_deref(), Some(UID), "{owners}");
        }
        // Whatever stands there, it is never another pod's id.
        let digits = "0123456789abcdef".repeat(100_000);
        for text in [OTHER, UID, "", "e", "a", &HASH.to_uppercase(), &HASH[1..], &digits] {
            assert_eq!(id(text, &json!([owner(NODE)])).as_deref(), Some(UID));
        }
    }

    #[test]
    fn a_pod_of_another_node_or_without_a_proper_uid_is_none_of_ours() {
        let pod = |uid: &str, node: &str| {
            let pod = json!({ "metadata": { "uid": uid }, "spec": { "nodeName": node, "containers": [] } });
            id_of(&serde_json::from_value(pod).unwrap(), NODE)
        };
        assert!(pod(UID, NODE).is_some());
        assert_eq!(pod(UID, "n2"), None);
        for uid in ["", "e", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f\n"] {
            assert_eq!(pod(uid, NODE), None, "{uid}");
        }
    }
}
