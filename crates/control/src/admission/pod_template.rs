//! Where a pod's specification lies in each kind, and what of it matters, in objects as JSON.
//!
//! Objects stay JSON: what a newer Kubernetes puts into them must come out again unharmed.

use gpupool_core::sharing::Pod;
use gpupool_k8s::pod::sharing_of_json;
use serde_json::Value;

use crate::partial_object;

/// Where kubectl keeps the configuration that was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind that is a pod, or carries the template of one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct TemplateKind {
    /// The JSON pointer to what has a pod's `metadata` and `spec`.
    root: &'static str,
    /// Whether it is a pod itself.
    pub(super) is_pod: bool,
    /// Whether its pods are placed by its controller, which looks at the template.
    pub(super) is_daemon_set: bool,
}

impl TemplateKind {
    /// The built-in kinds, by their name.
    pub(super) fn of(kind: &str) -> Option<Self> {
        let root = match kind {
            "Pod" => "",
            "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
                "/spec/template"
            }
            "CronJob" => "/spec/jobTemplate/spec/template",
            "PodTemplate" => "/template",
            _ => return None,
        };
        Some(Self { root, is_pod: kind == "Pod", is_daemon_set: kind == "DaemonSet" })
    }

    /// The pod in an object.
    pub(super) fn pod(self, object: &Value) -> &Value {
        object.pointer(self.root).unwrap_or(&Value::Null)
    }

    /// The same, to be changed.
    pub(super) fn pod_mut(self, object: &mut Value) -> Option<&mut Value> {
        object.pointer_mut(self.root)
    }

    /// What of it matters for sharing.
    pub(super) fn sharing(self, object: &Value) -> Pod {
        sharing_of_json(self.pod(object))
    }

    /// The configuration that was applied with an update, if it came that way: the text is new then.
    pub(super) fn applied(self, object: &Value, old: &Value) -> Option<Pod> {
        let text = last_applied(object).filter(|text| last_applied(old) != Some(*text))?;
        Some(self.sharing(&partial_object::read(text).ok()?))
    }
}

/// Whether the object is on its way out, and only waits for its finalizers.
pub(super) fn is_leaving(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

fn last_applied(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()
}

/// The container at a position of [`Pod::containers`].
pub(super) fn container_mut(pod: &mut Value, at: usize) -> Option<&mut Value> {
    let spec = pod.get_mut("spec")?;
    let init = spec.get("initContainers").and_then(Value::as_array).map_or(0, Vec::len);
    if at < init {
        spec.get_mut("initContainers")?.get_mut(at)
    } else {
        spec.get_mut("containers")?.get_mut(at - init)
    }
}

/// The object under a key, made where there is none.
pub(super) fn object_mut<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let object = parent.as_object_mut()?.entry(key).or_insert(Value::Null);
    if object.is_null() {
        *object = Value::Object(serde_json::Map::new());
    }
    object.is_object().then_some(object)
}
