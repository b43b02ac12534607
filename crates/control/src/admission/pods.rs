//! What the API server is answered about pods and templates: what to change in them, or why they are refused.

use std::borrow::Cow;

use gpupool_core::sharing::admission::{admit, validate, validate_change};
use gpupool_core::sharing::names::MIRROR_ANNOTATION;
use gpupool_core::sharing::{Refusal, Rewrite, Update};
use serde_json::Value;

use super::affinity;
use super::pod_template::{self, TemplateKind, container_mut, object_mut};
use crate::namespace_rules::AllowedLimits;

/// An object that somebody wants to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Review<'a> {
    pub(super) kind: TemplateKind,
    pub(super) object: &'a Value,
    /// As it is stored now; nothing for a new one.
    pub(super) old: Option<&'a Value>,
}

/// Who wants to store it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requester<'a> {
    pub(super) user: &'a str,
    pub(super) groups: &'a [Cow<'a, str>],
    /// Whether it is gpupool itself.
    pub(super) is_gpupool: bool,
}

impl Requester<'_> {
    /// Whether it is the kubelet of a node, by the name and the group that the API server knows kubelets by.
    fn is_kubelet_of(&self, node: &str) -> bool {
        let named =
            self.user.strip_prefix("system:node:").is_some_and(|name| !name.is_empty() && name == node);
        named && self.groups.iter().any(|group| group == "system:nodes")
    }
}

impl Review<'_> {
    /// The object as it is to be stored: limits in annotations, and on nodes of its policy alone.
    pub(super) fn share(self) -> Result<Value, Refusal> {
        let mut after = self.object.clone();
        if pod_template::is_leaving(self.object) {
            return Ok(after);
        }
        let old = self.old.map(|old| (self.kind.sharing(old), self.kind.applied(self.object, old)));
        let update = old.as_ref().map(|(old, applied)| Update { old, applied: applied.as_ref() });
        let admitted = admit(&self.kind.sharing(self.object), update)?;
        let affinity = admitted.asked.map(|asked| affinity::shared(asked.policy));
        if let Some(pod) = self.kind.pod_mut(&mut after) {
            // A pod of unusual shape is left as far as it is; Kubernetes will refuse it.
            let _ = apply(pod, &admitted.rewrite);
        }
        Ok(self.placed(after, affinity.as_ref()))
    }

    /// The object of one who has cards, or parts of them, for himself: on nodes that don't share.
    pub(super) fn keep_off(self) -> Value {
        let sharing = self.kind.sharing(self.object);
        let applies =
            sharing.exclusive().is_some() && !sharing.shares() && !pod_template::is_leaving(self.object);
        let affinity = applies.then(affinity::exclusive);
        self.placed(self.object.clone(), affinity.as_ref())
    }

    /// Whether it may be stored.
    pub(super) fn validate(self, by: Requester<'_>) -> Result<(), Refusal> {
        if pod_template::is_leaving(self.object) {
            return Ok(());
        }
        let sharing = self.kind.sharing(self.object);
        match self.old.map(|old| self.kind.sharing(old)) {
            Some(_) if self.kind.is_pod && by.is_gpupool => Ok(()),
            Some(old) if self.kind.is_pod => validate_change(&sharing, &old),
            None if self.kind.is_pod && sharing.shares() && !self.may_mirror(by) => {
                Err(Refusal::MirrorAnnotation)
            }
            old => validate(&sharing, old.as_ref()),
        }
    }

    /// Whether a new pod has the limits that its namespace allows. Of a template its pods are asked about.
    pub(super) fn check_limits(self, allowed: &AllowedLimits) -> Result<(), Refusal> {
        match self.kind.sharing(self.object).share()? {
            Some(asked) => allowed.check(&asked),
            None => Ok(()),
        }
    }

    /// Whether it says nothing of a static pod, or who asks may say it. The API server holds kubelets to mirror pods of
    /// their own nodes, and everybody else to nothing.
    fn may_mirror(self, by: Requester<'_>) -> bool {
        let pod = self.kind.pod(self.object);
        let annotations = pod.get("metadata").and_then(|metadata| metadata.get("annotations"));
        if annotations.and_then(|all| all.get(MIRROR_ANNOTATION)).is_none() {
            return true;
        }
        let node = pod.get("spec").and_then(|spec| spec.get("nodeName")).and_then(Value::as_str);
        by.is_kubelet_of(node.unwrap_or_default())
    }

    /// Where the affinity belongs: into new pods, and into the template of a daemon set, whose controller places its pods.
    /// A stored pod's can't be changed, but one that has it must not lose it to a manifest that is applied again.
    fn placed(self, mut after: Value, affinity: Option<&Value>) -> Value {
        let Some(affinity) = affinity else { return after };
        let belongs = match self.old {
            _ if self.kind.is_daemon_set => true,
            None => self.kind.is_pod,
            Some(old) => self.kind.is_pod && affinity::has(self.kind.pod(old), affinity),
        };
        if belongs && let Some(pod) = self.kind.pod_mut(&mut after) {
            let _ = affinity::require(pod, affinity);
        }
        after
    }
}

fn apply(pod: &mut Value, rewrite: &Rewrite) -> Option<()> {
    for (at, dimension, limit) in &rewrite.limits {
        let resources = object_mut(container_mut(pod, *at)?, "resources")?;
        let limits = object_mut(resources, "limits")?.as_object_mut()?;
        limits.insert(dimension.resource().to_owned(), Value::from(limit.clone()));
    }
    for (dimension, text) in &rewrite.annotations {
        let annotations = object_mut(object_mut(pod, "metadata")?, "annotations")?.as_object_mut()?;
        match text {
            Some(text) => {
                annotations.insert(dimension.limit_annotation().to_owned(), Value::from(text.clone()))
            }
            None => annotations.remove(dimension.limit_annotation()),
        };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use gpupool_core::sharing::names::{CORE_RESOURCE, MEMORY_RESOURCE};
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        let amounts = |amount: &str| json!({ CORE_RESOURCE: amount, MEMORY_RESOURCE: amount, "cpu": "5" });
        json!({
            "metadata": { "labels": {
                "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
            } },
            "spec": {
                "initContainers": [{ "name": "prepare" }],
                "containers": [{ "name": "demo", "future": [1], "resources": { "requests": amounts("10"), "limits": amounts("100") } }],
            },
        })
    }

    const SOMEBODY: Requester<'_> = Requester { user: "somebody", groups: &[], is_gpupool: false };
    const GPUPOOL: Requester<'_> = Requester { is_gpupool: true, ..SOMEBODY };

    fn review<'a>(kind: &str, object: &'a Value, old: Option<&'a Value>) -> Review<'a> {
        Review { kind: TemplateKind::of(kind).unwrap(), object, old }
    }

    /// The kinds with their template.
    fn all() -> Vec<(&'static str, Value)> {
        let template = |pod: Value| json!({ "spec": { "template": pod } });
        let mut all = vec![
            ("Pod", pod()),
            ("PodTemplate", json!({ "template": pod() })),
            ("CronJob", json!({ "spec": { "jobTemplate": template(pod()) } })),
        ];
        for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"] {
            all.push((kind, template(pod())));
        }
        all
    }

    #[test]
    fn every_kind_gets_its_limit_moved_and_nothing_else_changed() {
        for (name, object) in all() {
            let kind = TemplateKind::of(name).unwrap();
            let after = review(name, &object, None).share().unwrap();
            let shown = kind.pod(&after);
            assert_eq!(shown["metadata"]["annotations"]["gpupool.io/gpu-core.limit"], "100", "{name}");
            assert_eq!(shown["metadata"]["annotations"]["gpupool.io/gpu-memory.limit"], "100", "{name}");
            assert_eq!(shown["spec"]["containers"][0]["resources"]["limits"][CORE_RESOURCE], "10", "{name}");
            assert_eq!(shown["spec"]["containers"][0]["resources"]["limits"]["cpu"], "5", "{name}");
            assert_eq!(shown["spec"]["containers"][0]["future"], json!([1]), "{name}");
            let places = ["Pod", "DaemonSet"].contains(&name);
            assert_eq!(!shown["spec"]["affinity"].is_null(), places, "{name}");
            // What is stored goes through unchanged, new or again.
            for old in [None, Some(&after)] {
                assert_eq!(review(name, &after, old).share().unwrap(), after, "{name}");
                assert_eq!(review(name, &after, old).validate(SOMEBODY), Ok(()), "{name}");
            }
        }
    }

    #[test]
    fn a_stored_pod_keeps_the_affinity_that_it_has_and_gets_none_that_it_has_not() {
        let stored = review("Pod", &pod(), None).share().unwrap();
        let mut sent = stored.clone();
        sent["spec"]["affinity"] = json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "zone", "operator": "Exists" }] },
            ] },
        } });
        let after = review("Pod", &sent, Some(&stored)).share().unwrap();
        assert!(affinity::has(&after, &affinity::shared(gpupool_core::sharing::Policy::SharePool)));
        let mut bare = stored.clone();
        bare["spec"].as_object_mut().unwrap().remove("affinity");
        assert_eq!(review("Pod", &bare, Some(&bare)).share().unwrap(), bare);
    }

    #[test]
    fn whole_card_pods_keep_off_and_others_are_left_alone() {
        let mut whole = pod();
        for resource in
            ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "nvidia.com/a100-40gb", "nvidia.com/gpu"]
        {
            whole["spec"]["containers"][0]["resources"] = json!({ "limits": { resource: "1" } });
            assert!(
                affinity::has(&review("Pod", &whole, None).keep_off(), &affinity::exclusive()),
                "{resource}"
            );
        }
        let mut other = whole.clone();
        other["spec"]["containers"][0]["resources"] = json!({ "limits": { "nvidia.com/hostdev": "1" } });
        assert_eq!(review("Pod", &other, None).keep_off(), other);
        assert_eq!(review("Pod", &whole, None).share().unwrap(), whole);
        assert_eq!(review("Pod", &pod(), None).keep_off(), pod());
        assert_eq!(review("Pod", &whole, Some(&whole)).keep_off(), whole);
    }

    #[test]
    fn one_that_is_leaving_is_never_held_up() {
        let mut wrong = pod();
        wrong["metadata"]["labels"] = json!({});
        assert!(review("Pod", &wrong, None).share().is_err());
        wrong["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(review("Pod", &wrong, Some(&pod())).share().unwrap(), wrong);
        assert_eq!(review("Pod", &wrong, Some(&pod())).validate(SOMEBODY), Ok(()));
    }

    #[test]
    fn only_gpupool_writes_the_card() {
        let mut with_card = pod();
        with_card["metadata"]["annotations"] = json!({ "gpupool.io/card": "GPU-1" });
        let stored = pod();
        let review = review("Pod", &with_card, Some(&stored));
        assert!(review.validate(SOMEBODY).is_err() && review.validate(GPUPOOL).is_ok());
    }

    #[test]
    fn only_the_kubelet_of_its_own_node_makes_a_mirror_pod() {
        let nodes = ["system:nodes", "system:authenticated"].map(Cow::from);
        let kubelet = |user| Requester { user, groups: &nodes, is_gpupool: false };
        let mut mirror = pod();
        mirror["metadata"]["annotations"] =
            json!({ "kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef" });
        mirror["spec"]["nodeName"] = json!("n1");
        assert_eq!(review("Pod", &mirror, None).validate(kubelet("system:node:n1")), Ok(()));
        for by in [
            SOMEBODY,
            GPUPOOL,
            kubelet("system:node:n2"),
            kubelet("system:node:"),
            kubelet("n1"),
            // A name alone makes no kubelet.
            Requester { user: "system:node:n1", ..SOMEBODY },
        ] {
            assert_eq!(review("Pod", &mirror, None).validate(by), Err(Refusal::MirrorAnnotation), "{by:?}");
        }
        let mut nowhere = mirror.clone();
        nowhere["spec"]["nodeName"] = json!("");
        assert!(review("Pod", &nowhere, None).validate(kubelet("system:node:")).is_err());
        // Whatever stands in the annotation, and whoever asks for no share.
        mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("e");
        assert!(review("Pod", &mirror, None).validate(SOMEBODY).is_err());
        mirror["spec"]["containers"][0]["resources"] = json!({});
        assert_eq!(review("Pod", &mirror, None).validate(SOMEBODY), Ok(()));
    }

    #[test]
    fn objects_of_any_shape_are_survived() {
        for odd in [
            json!(null),
            json!([]),
            json!({ "spec": [] }),
            json!({ "spec": { "containers": [4, null, {}] } }),
        ] {
            for kind in ["Pod", "Deployment", "CronJob", "PodTemplate"] {
                assert_eq!(review(kind, &odd, None).share().unwrap(), odd, "{kind}");
                assert_eq!(review(kind, &odd, Some(&odd)).keep_off(), odd, "{kind}");
                assert_eq!(review(kind, &odd, None).validate(SOMEBODY), Ok(()), "{kind}");
            }
        }
    }
}
