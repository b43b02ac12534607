//! The controller against a real API server, with nodes that have no kubelet.
//!
//! The tests take one cluster in turns. The programs are built first if the cache has none: minutes, once.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(
    clippy::await_holding_lock,
    reason = "a test holds the cluster for its whole turn; only one runs at a time"
)]

mod admission;
mod callers;
mod policy;
mod reservation;
mod scene;
mod served;

use std::time::Duration;

use gpupool_control::{ApiServerAccess, ClusterSettings, dry_run};
use gpupool_core::node_use::LABEL;
use gpupool_testbed::KwokNode;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use scene::{GPU, MODEL, PROFILE, Scene, eventually, node, sandbox, shared_cluster};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_typo_is_told_once_in_a_condition_and_an_event_also_across_restarts() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "vm-passthru"));
    let controller = scene.controller("one", sandbox()).await;
    let seen = scene.until("n", "has no condition", |seen| seen.reason == "UnknownLabelValue").await;
    assert_eq!(seen.status, "False");
    assert!(
        seen.message.contains("vm-passthru") && seen.message.contains("set it to vm-passthrough"),
        "{seen:?}"
    );
    eventually("no Event tells of it", async || !scene.events("n").await.is_empty()).await;
    controller.end().await;

    let again = scene.controller("two", sandbox()).await;
    eventually("the second did not start", async || {
        again.requests().iter().any(|(_, path)| path.contains("/events"))
    })
    .await;
    scene.label("n", "vm-passthrough").await;
    scene.until_advertises("n", MODEL).await;
    again.end().await;
    let events = scene.events("n").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0], ("UnknownLabelValue".to_owned(), seen.message));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_use_never_shows_both_names() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "container"));
    let controller = scene.controller("one", sandbox()).await;
    scene.until_advertises("n", GPU).await;
    let recording = scene.record("n").await;
    let mut last = None;
    for (label, name) in
        [("vm-passthrough", MODEL), ("vm-vgpu", PROFILE), ("container", GPU), ("vm-vgpu", PROFILE)]
    {
        scene.label("n", label).await;
        last = Some(scene.until_advertises("n", name).await);
    }
    let states = recording.until(&last.unwrap()).await;
    assert!(states.iter().all(|state| state.names().len() <= 1), "{states:#?}");
    let between = states.iter().filter(|state| state.names().is_empty()).count();
    assert!(between >= 4, "the old name goes before the new one comes: {states:#?}");
    // One write for the first use, two for each of the four changes.
    assert_eq!(controller.writes(), 9, "{:#?}", controller.requests());
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_controller_knows_what_is_its_own() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "container"));
    let first = scene.controller("one", sandbox()).await;
    scene.until_advertises("n", GPU).await;
    first.end().await;
    scene.label("n", "vm-vgpu").await;
    let second = scene.controller("two", sandbox()).await;
    scene.until_advertises("n", PROFILE).await;
    second.kill().await;
    scene.merge("n", &json!({ "metadata": { "annotations": { "gpupool.io/cards": null }, "labels": { LABEL: null } } })).await;
    let third = scene.controller("three", sandbox()).await;
    scene.until("n", "keeps what is ours", |seen| seen.names().is_empty() && seen.reason.is_empty()).await;
    third.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_was_created_with_stays_though_nobody_owns_it() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "container"));
    // Creating a node makes nobody the owner of its amounts: there is no record of who wrote them.
    let others = async || {
        let status = scene.nodes.get("n").await.unwrap().status.unwrap();
        [status.capacity, status.allocatable].map(|amounts| {
            let mut amounts = amounts.unwrap_or_default();
            amounts.retain(|name, _| !name.starts_with("nvidia.com/"));
            amounts
        })
    };
    let before = others().await;
    assert!(before.iter().all(|amounts| amounts["cpu"].0 == "32"), "{before:?}");
    let controller = scene.controller("one", sandbox()).await;
    for (label, name) in [("container", GPU), ("vm-passthrough", MODEL), ("vm-vgpu", PROFILE)] {
        scene.label("n", label).await;
        scene.until_advertises("n", name).await;
        assert_eq!(others().await, before, "after {label}");
    }
    scene.merge("n", &json!({ "metadata": { "annotations": { "gpupool.io/cards": null }, "labels": { LABEL: null } } })).await;
    scene.until("n", "keeps what is ours", |seen| seen.names().is_empty() && seen.reason.is_empty()).await;
    assert_eq!(others().await, before, "after everything was withdrawn");
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_others_stay_and_the_condition_says_the_command_that_removes_them() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "vm-passthrough").capacity(GPU, "3"));
    scene.add(&node("same", "container").capacity(GPU, "3"));
    let controller = scene.controller("one", sandbox()).await;
    let seen = scene.until("n", "is not judged", |seen| seen.reason == "ForeignResource").await;
    assert_eq!(seen.names().into_iter().collect::<Vec<_>>(), [GPU]);
    scene.until_advertises("same", GPU).await;
    let same = scene.nodes.get("same").await.unwrap().status.unwrap().allocatable.unwrap();
    assert_eq!(same[GPU].0, "3", "the amount is the other's");

    // The command that the condition gives, word for word.
    let (_, command) = seen.message.split_once("kubectl ").unwrap();
    let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
    tokio::task::block_in_place(|| scene.cluster.kubectl(&words)).unwrap();
    scene.until_advertises("n", MODEL).await;

    // Somebody writes over an amount: it is his from then on, and stays what he wrote.
    scene.merge_status("n", &json!({ "status": { "allocatable": { MODEL: "1" } } })).await;
    scene.label("n", "vm-vgpu").await;
    let seen = scene.until("n", "is not judged", |seen| seen.reason == "ForeignResource").await;
    assert!(seen.capacity.is_empty() && seen.allocatable.contains(MODEL), "{seen:?}");
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_one_writes_and_the_other_takes_over_when_it_dies() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "vm-passthru"));
    let one = scene.controller("one", sandbox()).await;
    eventually("nothing was written", async || one.writes() > 0).await;
    let two = scene.controller("two", sandbox()).await;
    let leases: Api<Lease> = Api::namespaced(scene.client.clone(), "default");
    let holder = async || {
        leases.get("gpupool-control").await.unwrap().spec.unwrap().holder_identity.unwrap_or_default()
    };
    eventually("the second takes no part", async || !two.requests().is_empty()).await;
    for (label, name) in [("vm-passthrough", MODEL), ("vm-vgpu", PROFILE)] {
        scene.label("n", label).await;
        scene.until_advertises("n", name).await;
    }
    assert_eq!((holder().await, two.writes()), ("one".to_owned(), 0));
    assert_eq!(scene.events("n").await.len(), 1);

    one.kill().await;
    scene.label("n", "container").await;
    scene.until_advertises("n", GPU).await;
    assert_eq!(holder().await, "two");
    two.end().await;
    // Given up, so that the next need not wait.
    assert_eq!(holder().await, "");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_was_away_is_caught_up_with() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "container"));
    let controller = scene.controller("one", sandbox()).await;
    scene.until_advertises("n", GPU).await;
    tokio::task::block_in_place(|| scene.cluster.stop_apiserver()).unwrap();
    // Longer than a leader may go without renewing: it has to stop leading, and to begin again.
    tokio::time::sleep(Duration::from_secs(12)).await;
    tokio::task::block_in_place(|| scene.cluster.start_apiserver()).unwrap();
    scene.label("n", "vm-passthrough").await;
    scene.until_advertises("n", MODEL).await;
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_deleted_and_made_anew_under_its_name_is_a_new_node() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "container"));
    let controller = scene.controller("one", sandbox()).await;
    scene.until_advertises("n", GPU).await;
    scene.delete("n").await;
    scene.add(&node("n", "vm-vgpu"));
    scene.until_advertises("n", PROFILE).await;
    // One for each node; one that met a write of kwok's is refused, and made again.
    assert!((2..=4).contains(&controller.writes()), "{:#?}", controller.requests());
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_flap_every_100_ms_end_where_they_end_with_few_writes_and_never_both_names() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "container"));
    let controller = scene.controller("one", sandbox()).await;
    scene.until_advertises("n", GPU).await;
    let recording = scene.record("n").await;
    let mut flips = tokio::time::interval(Duration::from_millis(100));
    for round in 0..60 {
        flips.tick().await;
        scene.label("n", if round % 2 == 0 { "vm-passthrough" } else { "container" }).await;
    }
    scene.label("n", "vm-vgpu").await;
    let last = scene.until_advertises("n", PROFILE).await;
    let states = recording.until(&last).await;
    assert!(states.iter().all(|state| state.names().len() <= 1), "{states:#?}");
    assert!(controller.writes() <= 30, "60 changes of the label made {} writes", controller.writes());
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlabelled_gpu_node_in_a_sandbox_cluster_gets_one_event_and_no_condition() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&KwokNode::new("bare").capacity(GPU, "4"));
    scene.add(&KwokNode::new("cpu-only"));
    for identity in ["one", "two"] {
        let controller = scene.controller(identity, sandbox()).await;
        eventually("no Event tells of it", async || !scene.events("bare").await.is_empty()).await;
        eventually("it does not lead", async || {
            controller.requests().iter().any(|(_, path)| path.contains("/events"))
        })
        .await;
        controller.end().await;
    }
    let events = scene.events("bare").await;
    assert_eq!(events.iter().map(|(reason, _)| &reason[..]).collect::<Vec<_>>(), ["NoLabel"]);
    assert!(scene.events("cpu-only").await.is_empty());
    assert!(scene.until("bare", "is gone", |_| true).await.reason.is_empty());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flag_is_the_cluster_policys_as_long_as_there_is_one() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "vm-passthrough"));
    scene.merge("n", &json!({ "metadata": { "labels": { "nvidia.com/gpu.present": "true" } } })).await;
    let managing = ClusterSettings { manage_operands: true, ..sandbox() };
    let controller = scene.controller("one", managing).await;
    scene.until_advertises("n", MODEL).await;
    let deploys = async || {
        let labels = scene.nodes.get("n").await.unwrap().metadata.labels.unwrap();
        labels.keys().filter(|label| label.starts_with("nvidia.com/gpu.deploy.")).count()
    };
    assert!(deploys().await > 0, "deploy labels are managed where the operator is not installed");

    apply(&scene, &definition());
    let policy = |enabled: bool| {
        json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": { "name": "cluster-policy" },
            "spec": { "sandboxWorkloads": { "enabled": enabled } },
        })
        .to_string()
    };
    let established =
        ["wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com", "--timeout=180s"];
    tokio::task::block_in_place(|| scene.cluster.kubectl(established)).unwrap();
    apply(&scene, &policy(false));
    let seen = scene.until("n", "does not follow the policy", |seen| seen.reason == "LabelNotRead").await;
    assert!(seen.message.contains("in ClusterPolicy cluster-policy"), "{}", seen.message);
    scene.until_advertises("n", GPU).await;

    let before = deploys().await;
    apply(&scene, &policy(true));
    scene.until_advertises("n", MODEL).await;
    assert_eq!(deploys().await, before, "deploy labels are the operator's where it is installed");

    apply(&scene, &policy(false));
    scene.until_advertises("n", GPU).await;
    tokio::task::block_in_place(|| scene.cluster.kubectl(["delete", "crd", "clusterpolicies.nvidia.com"]))
        .unwrap();
    scene.until_advertises("n", MODEL).await;
    controller.end().await;
    scene.end().await;
}

fn apply(scene: &Scene<'_>, manifest: &str) {
    tokio::task::block_in_place(|| scene.cluster.apply(manifest)).unwrap();
}

/// The definition of `ClusterPolicy`, without the operator's schema.
fn definition() -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusterpolicies.nvidia.com" },
        "spec": {
            "group": "nvidia.com", "scope": "Cluster",
            "names": {
                "kind": "ClusterPolicy", "listKind": "ClusterPolicyList",
                "plural": "clusterpolicies", "singular": "clusterpolicy",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_controller_sends_nothing_but_its_lease_and_its_watches() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("right", "vm-passthrough"));
    scene.add(&node("wrong", "vm-passthru"));
    let controller = scene.controller("one", sandbox()).await;
    scene.until_advertises("right", MODEL).await;
    scene.until("wrong", "is not judged", |seen| seen.reason == "UnknownLabelValue").await;
    eventually("no Event tells of it", async || !scene.events("wrong").await.is_empty()).await;
    let before = controller.requests();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(controller.requests(), before);
    controller.end().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_every_step_and_writes_nothing() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "vm-passthrough"));
    let before = scene.until("n", "is not there", |_| true).await;
    let access = ApiServerAccess { kubeconfig: Some(scene.cluster.kubeconfig().to_owned()), context: None };
    let mut printed = Vec::new();
    dry_run(&access.connect().await.unwrap(), &sandbox(), &mut printed).await.unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["body"]["status"]["capacity"], json!({ MODEL: "2" }));
    assert_eq!(lines[0]["body"]["status"]["conditions"][0]["reason"], "Valid");
    let after = scene.until("n", "is gone", |_| true).await;
    assert!(after.names().is_empty() && after.reason.is_empty(), "{before:?} {after:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_that_are_shipped_suffice() {
    let cluster = shared_cluster();
    let mut scene = Scene::on(&cluster).await;
    scene.add(&node("n", "vm-passthru"));
    apply(&scene, include_str!("../../../../deploy/control/rbac.yaml"));
    let controller = scene.controller_as("gpupool-system", "gpupool-control", sandbox(), None).await;
    eventually("no Event tells of it", async || !scene.events("n").await.is_empty()).await;
    scene.label("n", "vm-passthrough").await;
    scene.until_advertises("n", MODEL).await;
    controller.end().await;

    scene.merge("n", &json!({ "metadata": { "labels": { "nvidia.com/gpu.present": "true" } } })).await;
    let managing = || ClusterSettings { manage_operands: true, ..sandbox() };
    let controller = scene.controller_as("gpupool-system", "gpupool-control", managing(), None).await;
    let deploys = async || {
        let labels = scene.nodes.get("n").await.unwrap().metadata.labels.unwrap();
        labels.contains_key("nvidia.com/gpu.deploy.vfio-manager")
    };
    eventually("deploy labels are not written", deploys).await;
    controller.end().await;
    scene.end().await;
}
