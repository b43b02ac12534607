//! Reads a Pod object as far as the agent is concerned.
//!
//! What a pod asks for is read by `gpupool_k8s` and decided by `gpupool_core::sharing`, the same that admission uses.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::sharing;
use gpupool_core::sharing::names::{ACCEPTED_CONDITION, CORE_RESOURCE, MEMORY_RESOURCE, MIRROR_ANNOTATION};
use gpupool_k8s::pod;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::pod::{Asks, Maker, PodNews, PodOnNode, PodRef, Rejection, cluster_pod_id, static_pod_hash};

/// The kubelet's reason for a pod that it turns away when devices cannot be had. Such a pod is not tried again.
const NOT_ADMITTED: &str = "UnexpectedAdmissionError";

/// What it says in the message where no plugin had registered a device that works.
const NOT_REGISTERED: [&str; 2] = ["no healthy devices present", "unregistered device"];

impl PodOnNode {
    /// The object, if it is one of this node, asks for a share and has not finished.
    pub(super) fn read(pod: &Pod, node: &str) -> Option<Self> {
        let wanted = pod::sharing(pod);
        if !wanted.shares() || pod::has_finished(pod) {
            return None;
        }
        let card = pod::card(pod);
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        Some(Self {
            id: id_of(pod, node)?,
            reference: reference(pod)?,
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

/// The news that the kubelet of this node has turned the pod away, because at that moment no card that works was registered.
pub(super) fn not_admitted(pod: &Pod, node: &str) -> Option<PodNews> {
    let status = pod.status.as_ref()?;
    let message = status.message.as_deref()?;
    let is_ours = [CORE_RESOURCE, MEMORY_RESOURCE].iter().any(|resource| message.contains(resource));
    let is_why = NOT_REGISTERED.iter().any(|words| message.contains(words));
    if !(status.reason.as_deref() == Some(NOT_ADMITTED) && is_ours && is_why) {
        return None;
    }
    id_of(pod, node)?;
    Some(PodNews::NotAdmitted { pod: reference(pod)?, maker: maker(pod, node) })
}

/// Who makes the pod anew.
fn maker(pod: &Pod, node: &str) -> Maker {
    if mirrored(pod, node).is_some() {
        return Maker::Kubelet;
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.map_or(Maker::Nobody, |owner| Maker::Controller(format!("{} {}", owner.kind, owner.name)))
}

/// Which object it is.
fn reference(pod: &Pod) -> Option<PodRef> {
    let meta = &pod.metadata;
    let (namespace, name, uid) = (meta.namespace.clone()?, meta.name.clone()?, meta.uid.clone()?);
    Some(PodRef { namespace, name, uid })
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

    #[test]
    fn a_pod_that_the_kubelet_turned_away_for_want_of_a_registered_card_is_told_by_whom_it_is_made_anew() {
        const MESSAGE: &str = "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate \
                               unhealthy devices alibabacloud.com/gpu-core.percentage, which is unexpected";
        let maker = |reason: &str, message: &str, owners: Value| {
            let pod = json!({
                "metadata": {"uid": UID, "namespace": "team", "name": "train", "ownerReferences": owners},
                "spec": {"nodeName": NODE, "containers": []},
                "status": {"phase": "Failed", "reason": reason, "message": message},
            });
            match not_admitted(&serde_json::from_value(pod).unwrap(), NODE) {
                Some(PodNews::NotAdmitted { pod, maker }) => {
                    assert_eq!(pod.to_string(), "team/train");
                    Some(maker)
                }
                other => {
                    assert!(other.is_none(), "{other:?}");
                    None
                }
            }
        };
        let set = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "2", "controller": true}]);
        assert_eq!(maker(NOT_ADMITTED, MESSAGE, json!([])), Some(Maker::Nobody));
        assert_eq!(maker(NOT_ADMITTED, MESSAGE, set), Some(Maker::Controller("ReplicaSet s".to_owned())));
        let unregistered = "cannot allocate unregistered device alibabacloud.com/gpu-memory.percentage";
        assert_eq!(maker(NOT_ADMITTED, unregistered, json!([])), Some(Maker::Nobody));
        // Others' devices, and other reasons, are not ours to explain.
        assert_eq!(
            maker(NOT_ADMITTED, &MESSAGE.replace("alibabacloud.com/gpu-core.percentage", "a/b"), json!([])),
            None
        );
        assert_eq!(maker("OutOfcpu", MESSAGE, json!([])), None);
        let too_many = "requested number of devices unavailable for alibabacloud.com/gpu-core.percentage";
        assert_eq!(maker(NOT_ADMITTED, too_many, json!([])), None);
    }
}
