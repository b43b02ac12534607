//! The share policy of nodes without a kubelet, on a real API server.

use std::collections::BTreeMap;

use gpupool_core::sharing::names::{POLICY_LABEL, QOS_ANNOTATION};
use gpupool_testbed::KwokNode;
use k8s_openapi::api::core::v1::{Node as KubeNode, NodeCondition, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::sandbox;
use crate::scene::{Scene, eventually, shared_cluster};

const CORE: &str = "alibabacloud.com/gpu-core.percentage";
const MEMORY: &str = "alibabacloud.com/gpu-memory.percentage";
const CARDS: &str = "gpupool.io/cards";

/// The published machine.
fn published(name: &str) -> KwokNode {
    KwokNode::new(name)
        .label("alibabacloud.com/node-type", "reserved")
        .annotation(CARDS, r#"{"nvidia.com/gpu": 16}"#)
        .capacity("cpu", "176")
        .capacity("memory", "1800Gi")
        .capacity("ephemeral-storage", "6Ti")
}

/// A node as the page looks at it.
#[derive(Clone, Debug, Default)]
struct Shown {
    capacity: BTreeMap<String, String>,
    allocatable: BTreeMap<String, String>,
    valid: NodeCondition,
    policy: NodeCondition,
    in_force: Option<String>,
    annotations: BTreeMap<String, String>,
}

impl Shown {
    fn of(node: &KubeNode) -> Self {
        let status = node.status.clone().unwrap_or_default();
        let condition = |kind: &str| {
            let mut all = status.conditions.iter().flatten();
            all.find(|condition| condition.type_ == kind).cloned().unwrap_or_default()
        };
        let texts =
            |list: Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
                let mut texts: BTreeMap<String, String> =
                    list.into_iter().flatten().map(|(name, amount)| (name, amount.0)).collect();
                texts.remove("pods");
                texts
            };
        Self {
            valid: condition("GPUSharePolicyValid"),
            policy: condition("GPUSharePolicy"),
            capacity: texts(status.capacity.clone()),
            allocatable: texts(status.allocatable.clone()),
            in_force: node.labels().get("gpupool.io/share-policy").cloned(),
            annotations: node.annotations().clone(),
        }
    }

    fn reason(&self) -> &str {
        self.valid.reason.as_deref().unwrap_or_default()
    }

    fn message(&self) -> &str {
        self.valid.message.as_deref().unwrap_or_default()
    }

    /// Whether this policy is in force, and shown to be.
    fn is(&self, policy: &str) -> bool {
        let in_force = self.in_force.as_deref().unwrap_or("none") == policy;
        let shown = self.policy.reason.as_deref() == Some(policy);
        let percentages = self.allocatable.contains_key(CORE) && self.capacity.contains_key(MEMORY);
        in_force && shown && percentages == (policy != "none")
    }
}

impl Scene<'_> {
    async fn shown(&self, name: &str) -> Shown {
        Shown::of(&self.nodes.get(name).await.unwrap())
    }

    async fn until_has_cards(&self, name: &str) -> Shown {
        self.until_shown(name, "advertises no card", |shown| shown.allocatable.contains_key("nvidia.com/gpu"))
            .await
    }

    async fn until_shown(&self, name: &str, what: &str, holds: impl Fn(&Shown) -> bool) -> Shown {
        let mut shown = Shown::default();
        eventually(&format!("{name}: {what}"), async || {
            shown = self.shown(name).await;
            holds(&shown)
        })
        .await;
        shown
    }

    async fn ask_for(&self, name: &str, policy: Option<&str>) {
        self.merge(name, &json!({ "metadata": { "labels": { POLICY_LABEL: policy } } })).await;
    }

    async fn run_pod(&self, name: &str, node: &str, resources: &Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "c", "image": "none", "resources": { "requests": resources, "limits": resources } }],
            },
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    async fn delete_pod(&self, name: &str) {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete(name, &at_once).await.unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_node_reads_as_published_and_is_as_before_afterwards() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&published("n"));
    let controller = scene.controller("one", sandbox()).await;
    let first = scene.until_has_cards("n").await;
    assert_eq!((first.reason(), first.in_force.as_deref()), ("", None));

    scene.ask_for("n", Some("share-pool")).await;
    let shown = scene
        .until_shown("n", "is not shared", |shown| {
            shown.is("share-pool") && shown.allocatable["cpu"] != "176"
        })
        .await;
    assert_eq!(
        shown.allocatable,
        texts(&[
            (CORE, "1600"),
            (MEMORY, "1600"),
            ("cpu", "144"),
            ("memory", "1640Gi"),
            ("nvidia.com/gpu", "16"),
            ("ephemeral-storage", "4608Gi"),
        ])
    );
    assert_eq!(
        shown.capacity,
        texts(&[
            (CORE, "1600"),
            (MEMORY, "1600"),
            ("cpu", "176"),
            ("memory", "1800Gi"),
            ("nvidia.com/gpu", "16"),
            ("ephemeral-storage", "6Ti"),
        ])
    );
    assert_eq!(
        (&shown.valid.status[..], shown.reason(), shown.message()),
        ("True", "Valid", "gpu share policy is valid.")
    );
    assert_eq!(shown.policy.message.as_deref(), Some("gpu share policy is share-pool."));
    assert_eq!(shown.policy.last_heartbeat_time, shown.policy.last_transition_time);
    assert!(shown.valid.last_transition_time.is_some());

    scene.ask_for("n", Some("none")).await;
    let after = scene
        .until_shown("n", "is still shared", |shown| shown.is("none") && shown.allocatable["cpu"] == "176")
        .await;
    assert_eq!((&after.capacity, &after.allocatable), (&first.capacity, &first.allocatable));
    assert_eq!(
        (&after.valid.status[..], after.reason(), after.message()),
        ("True", "Valid", "gpu share policy config is valid.")
    );
    assert_eq!(
        (&after.policy.status[..], after.policy.message.as_deref()),
        ("False", Some("gpu share policy is none."))
    );
    scene.ask_for("n", None).await;
    let bare = scene.until_shown("n", "keeps its conditions", |shown| shown.reason().is_empty()).await;
    assert_eq!(bare.annotations, first.annotations);
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sharing_begins_when_the_last_whole_card_pod_has_gone_and_not_before() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&published("n"));
    let controller = scene.controller("one", sandbox()).await;
    scene.until_has_cards("n").await;
    scene.run_pod("cpu-only", "n", &json!({ "cpu": "1" })).await;
    scene.run_pod("train", "n", &json!({ "nvidia.com/gpu": "1" })).await;
    scene.ask_for("n", Some("static")).await;
    let shown =
        scene.until_shown("n", "is not refused", |shown| shown.reason() == "ExclusivePodsOnNode").await;
    assert_eq!(
        shown.message(),
        "pod default/train asks for whole cards on the node: delete or move it first"
    );
    assert!(shown.is("none") && shown.valid.status == "False", "{shown:?}");
    let told = scene.events("n").await;
    assert!(told.contains(&("ExclusivePodsOnNode".to_owned(), shown.message().to_owned())), "{told:?}");

    // A slice or a replica of a card is in the way as a whole one is.
    for (name, resource, asks) in [
        ("slice", "nvidia.com/mig-1g.5gb", "asks for slices of cards"),
        ("replica", "nvidia.com/gpu.shared", "asks for replicas of cards"),
    ] {
        scene.run_pod(name, "n", &json!({ resource: "1" })).await;
        let gone = if name == "slice" { "train" } else { "slice" };
        scene.delete_pod(gone).await;
        let says = format!("pod default/{name} {asks} on the node: delete or move it first");
        let shown = scene.until_shown("n", &says, |shown| shown.message() == says).await;
        assert!(shown.is("none"), "{shown:?}");
    }
    scene.delete_pod("replica").await;
    scene.until_shown("n", "is not shared", |shown| shown.is("static") && shown.reason() == "Valid").await;
    scene.delete_pod("cpu-only").await;
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_shared_pod_is_there_the_policy_stays_and_holds_when_it_has_gone() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&published("n"));
    scene.ask_for("n", Some("share-pool")).await;
    let controller = scene.controller("one", sandbox()).await;
    scene.until_shown("n", "is not shared", |shown| shown.is("share-pool")).await;
    scene.run_pod("notebook", "n", &json!({ CORE: "10", MEMORY: "10" })).await;
    eventually("the pod does not run", async || {
        let pod = scene.pods().get("notebook").await.unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    })
    .await;

    for (label, reason) in [
        (Some("none"), "SharedPodsOnNode"),
        (Some("static"), "SharedPodsOnNode"),
        (Some("statik"), "UnknownPolicy"),
        (None, "SharedPodsOnNode"),
    ] {
        scene.ask_for("n", label).await;
        let shown = scene
            .until_shown("n", reason, |shown| {
                let wanted = label.filter(|label| *label != "statik").unwrap_or("none");
                shown.reason() == reason
                    && (reason != "SharedPodsOnNode"
                        || shown.message().contains(&format!("then {wanted} is set")))
            })
            .await;
        assert!(shown.is("share-pool"), "{label:?}: {shown:?}");
    }
    // A restarted controller sees it the same way.
    controller.kill().await;
    let controller = scene.controller("two", sandbox()).await;
    scene.ask_for("n", Some("static")).await;
    let shown = scene
        .until_shown("n", "is not refused", |shown| shown.message().contains("then static is set by itself"))
        .await;
    assert_eq!(
        shown.message(),
        "pod default/notebook shares cards on the node, so the policy stays share-pool: delete it first, then static is set by itself"
    );
    scene.delete_pod("notebook").await;
    let shown = scene.until_shown("n", "does not follow", |shown| shown.is("static")).await;
    assert_eq!(shown.capacity[CORE], "1600");
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_and_a_lost_card_are_followed_with_times_of_the_transition() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&published("n"));
    scene.ask_for("n", Some("share-pool")).await;
    let controller = scene.controller("one", sandbox()).await;
    let first = scene
        .until_shown("n", "is not shared", |shown| {
            shown.is("share-pool") && shown.allocatable["cpu"] == "144"
        })
        .await;
    let qos = |shown: &Shown| shown.annotations["gpupool.io/share-qos"].clone();
    assert_eq!(
        qos(&first),
        r#"{"podMaxDurationMinutes":120,"preemptEnabled":true,"reservedEphemeralStorage":"1536Gi"}"#
    );
    let annotate = async |text: &str| {
        scene.merge("n", &json!({ "metadata": { "annotations": { QOS_ANNOTATION: text } } })).await;
    };
    annotate(r#"{"podMaxDurationMinutes": 30, "reservedEphemeralStorage": "1Ti"}"#).await;
    let edited = scene
        .until_shown("n", "keeps its old storage", |shown| shown.allocatable["ephemeral-storage"] == "5Ti")
        .await;
    assert!(qos(&edited).contains("\"podMaxDurationMinutes\":30"), "{edited:?}");
    // Times have a resolution of a second, and this is another one.
    eventually("the clock stands still", async || {
        let then = first.valid.last_transition_time.as_ref().unwrap().0;
        k8s_openapi::jiff::Timestamp::now().duration_since(then).as_secs() >= 2
    })
    .await;
    annotate(r#"{"podMaxDurationMinute": 30}"#).await;
    let refused =
        scene.until_shown("n", "is not refused", |shown| shown.reason() == "InvalidQosConfig").await;
    assert!(refused.message().contains("write podMaxDurationMinutes if that is meant"), "{refused:?}");
    assert_eq!(qos(&refused), qos(&edited));
    assert!(refused.valid.last_transition_time > first.valid.last_transition_time);
    assert_eq!(refused.policy.last_transition_time, first.policy.last_transition_time);

    annotate("{}").await;
    scene.until_shown("n", "stays refused", |shown| shown.reason() == "Valid").await;
    scene.merge("n", &json!({ "metadata": { "annotations": { CARDS: r#"{"nvidia.com/gpu": 15}"# } } })).await;
    let fewer = scene
        .until_shown("n", "still has 16 cards", |shown| {
            shown.capacity[CORE] == "1500" && shown.allocatable["cpu"] == "146"
        })
        .await;
    assert_eq!(
        (&fewer.allocatable["memory"][..], &fewer.allocatable["nvidia.com/gpu"][..]),
        ("1650Gi", "15")
    );
    assert_eq!(fewer.policy.last_transition_time, first.policy.last_transition_time);
    // Somebody gives the node more: that is what is left of afterwards.
    scene.merge_status("n", &json!({ "status": { "allocatable": { "cpu": "170" } } })).await;
    scene.until_shown("n", "forgets the new amount", |shown| shown.allocatable["cpu"] == "140").await;
    scene.ask_for("n", Some("none")).await;
    scene.until_shown("n", "does not give back", |shown| shown.allocatable["cpu"] == "170").await;
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_for_virtual_machines_and_one_that_is_full_share_nothing() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&published("vm").label("nvidia.com/gpu.workload.config", "vm-passthrough"));
    scene.add(&published("full"));
    scene.run_pod("big", "full", &json!({ "cpu": "160", "memory": "1Gi" })).await;
    scene.ask_for("vm", Some("share-pool")).await;
    scene.ask_for("full", Some("share-pool")).await;
    let controller = scene.controller("one", sandbox()).await;
    let vm = scene.until_shown("vm", "is not refused", |shown| shown.reason() == "NodeUseNotContainer").await;
    assert!(vm.is("none") && vm.message().contains("the node's use is vm-passthrough"), "{vm:?}");
    let full =
        scene.until_shown("full", "is not refused", |shown| shown.reason() == "NotEnoughToReserve").await;
    assert!(full.is("none") && full.message().contains("16 CPU is missing"), "{full:?}");
    controller.end().await;
    let without = crate::ClusterSettings { no_reservation: true, ..sandbox() };
    let controller = scene.controller("two", without).await;
    let full = scene.until_shown("full", "is not shared", |shown| shown.is("share-pool")).await;
    assert_eq!(full.allocatable["cpu"], "176");
    scene.delete_pod("big").await;
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_the_steps_of_the_policy_too() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&published("n"));
    scene.run_pod("train", "n", &json!({ "nvidia.com/gpu": "1" })).await;
    scene.ask_for("n", Some("static")).await;
    let lines = async || {
        let mut printed = Vec::new();
        gpupool_control::dry_run(&scene.client, &sandbox(), &mut printed).await.unwrap();
        String::from_utf8(printed).unwrap()
    };
    let refused = lines().await;
    assert!(refused.contains("\"reason\":\"ExclusivePodsOnNode\"") && !refused.contains("144"), "{refused}");
    scene.delete_pod("train").await;
    let followed = lines().await;
    let order = ["\"gpupool.io/share-policy\":\"static\"", "\"cpu\":\"144\"", "gpu share policy is static."];
    let places =
        order.map(|text| followed.find(text).unwrap_or_else(|| panic!("{text} is not in {followed}")));
    assert!(places[0] < places[1] && places[0] < places[2], "{followed}");
    assert!(scene.shown("n").await.in_force.is_none());
    scene.end().await;
}
