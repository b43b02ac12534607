//! What is reserved of nodes whose `allocatable` somebody else writes, as a kubelet does; the test plays the kubelet.

use gpupool_core::sharing::names::POLICY_LABEL;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::scene::{Scene, eventually, shared_cluster};
use crate::served::Served;

impl Scene<'_> {
    /// A node as a kubelet makes it: no annotation of ours, a kubelet's version.
    async fn add_kubelet_node(&self, name: &str) {
        let amounts = json!({
            "cpu": "176", "memory": "1800Gi", "ephemeral-storage": "6Ti", "pods": "110", "nvidia.com/gpu": "16",
        });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "",
                    "operatingSystem": "", "osImage": "", "systemUUID": "",
                },
            },
        });
        let node: KubeNode = serde_json::from_value(node).unwrap();
        self.nodes.create(&PostParams::default(), &node).await.unwrap();
    }

    async fn kubelet_reports(&self, name: &str, status: &Value) {
        let kubelet = PatchParams { field_manager: Some("kubelet".to_owned()), ..PatchParams::default() };
        let patch = Patch::Strategic(json!({ "status": status }));
        self.nodes.patch_status(name, &kubelet, &patch).await.unwrap();
    }

    async fn allocatable(&self, name: &str) -> [String; 3] {
        let status = self.nodes.get(name).await.unwrap().status.unwrap();
        let allocatable = status.allocatable.unwrap();
        ["cpu", "memory", "ephemeral-storage"].map(|one| allocatable[one].0.clone())
    }

    async fn until_allocatable(&self, name: &str, wanted: [&str; 3]) {
        eventually(&format!("{name} does not get to {wanted:?}"), async || {
            self.allocatable(name).await == wanted
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_reports_everything_every_time_changes_nothing() {
    const LOWERED: [&str; 3] = ["144", "1640Gi", "4608Gi"];
    const WHOLE: [&str; 3] = ["176", "1800Gi", "6Ti"];
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    scene.add_kubelet_node("k").await;
    let label = async |policy: Option<&str>| {
        scene.merge("k", &json!({ "metadata": { "labels": { POLICY_LABEL: policy } } })).await;
    };
    label(Some("share-pool")).await;
    scene.until_allocatable("k", LOWERED).await;
    let whole = json!({ "allocatable": { "cpu": "176", "memory": "1800Gi", "ephemeral-storage": "6Ti" } });
    for _ in 0..3 {
        scene.kubelet_reports("k", &whole).await;
        assert_eq!(scene.allocatable("k").await, LOWERED);
        scene.kubelet_reports("k", &json!({ "phase": "Running" })).await;
        assert_eq!(scene.allocatable("k").await, LOWERED);
    }
    // The machine grows, and something else is to be reserved.
    scene.kubelet_reports("k", &json!({ "allocatable": { "cpu": "180" } })).await;
    assert_eq!(scene.allocatable("k").await[0], "148");
    let qos = json!({ "alibabacloud.com/gpu-share-qos-config": r#"{"reservedEphemeralStorage": "1Ti"}"# });
    scene.merge("k", &json!({ "metadata": { "annotations": qos } })).await;
    scene.until_allocatable("k", ["148", "1640Gi", "5Ti"]).await;
    scene.kubelet_reports("k", &json!({ "allocatable": { "cpu": "176" } })).await;

    label(Some("none")).await;
    scene.until_allocatable("k", WHOLE).await;
    eventually("a mark is left", async || {
        let annotations = scene.nodes.get("k").await.unwrap().metadata.annotations.unwrap_or_default();
        annotations.keys().all(|name| !name.starts_with("gpupool.io/"))
    })
    .await;
    scene.kubelet_reports("k", &whole).await;
    assert_eq!(scene.allocatable("k").await, WHOLE);
    scene.delete("k").await;
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zeroes_that_a_plugin_left_behind_are_removed_until_they_stay_away() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let served = Served::on(&scene).await;
    scene.add_kubelet_node("k").await;
    let (core, memory) = ("alibabacloud.com/gpu-core.percentage", "alibabacloud.com/gpu-memory.percentage");
    let amounts = |amount: &str| json!({ core: amount, memory: amount });
    let there = async || {
        let status = scene.nodes.get("k").await.unwrap().status.unwrap();
        status.capacity.unwrap().contains_key(core) || status.allocatable.unwrap().contains_key(memory)
    };
    // A plugin that is retiring: first nothing is left to allocate, then nothing at all, and the kubelet says so again.
    scene.kubelet_reports("k", &json!({ "capacity": amounts("200"), "allocatable": amounts("0") })).await;
    for _ in 0..2 {
        scene.kubelet_reports("k", &json!({ "capacity": amounts("0"), "allocatable": amounts("0") })).await;
        eventually("the zeroes stay", async || !there().await).await;
    }
    scene.delete("k").await;
    served.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_webhook_away_nothing_is_held_up_and_afterwards_it_is_lowered_again() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let Served { controller, address, kubectl } = Served::on(&scene).await;
    scene.add_kubelet_node("k").await;
    scene.merge("k", &json!({ "metadata": { "labels": { POLICY_LABEL: "static" } } })).await;
    scene.until_allocatable("k", ["144", "1640Gi", "4608Gi"]).await;
    controller.end().await;
    scene.kubelet_reports("k", &json!({ "allocatable": { "cpu": "176", "memory": "1800Gi" } })).await;
    assert_eq!(scene.allocatable("k").await, ["176", "1800Gi", "4608Gi"]);
    // The next one sees to it by itself, whatever the kubelet does.
    let lifetimes = gpupool_control::CertificateLifetimes::default();
    let (controller, _) = Served::start(&scene, "two", address, lifetimes).await;
    scene.until_allocatable("k", ["144", "1640Gi", "4608Gi"]).await;
    scene.delete("k").await;
    Served { controller, address, kubectl }.end().await;
    scene.end().await;
}
