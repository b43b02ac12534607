//! The share policy's steps: they come to an end, and what they did can be undone.

use std::collections::BTreeMap;

use gpupool_control::ClusterSettings;
use gpupool_control::node_controller::NodeWrite;
use gpupool_control::node_controller::observed::ObservedNode;
use gpupool_control::node_controller::plan::plan;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::names::POLICY_LABEL;
use gpupool_core::sharing::{Load, Reserved};
use k8s_openapi::api::core::v1::Node as KubeNode;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::settle;

/// A node with two cards; run by a kubelet, or with its cards named in an annotation.
fn node(kubelet: bool, policy: Option<&str>) -> ObservedNode {
    let amounts =
        json!({ "cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "2" });
    let mut annotations = json!({});
    if !kubelet {
        annotations["gpupool.io/cards"] = json!(r#"{"nvidia.com/gpu": 2}"#);
    }
    let version = if kubelet { "v1.36.3" } else { "" };
    let object: KubeNode = serde_json::from_value(json!({
        "metadata": {
            "name": "n", "uid": "u", "resourceVersion": "1", "annotations": annotations,
            "labels": policy.map_or_else(|| json!({}), |policy| json!({ POLICY_LABEL: policy })),
        },
        "status": { "capacity": amounts, "allocatable": amounts, "nodeInfo": node_info(version) },
    }))
    .unwrap();
    ObservedNode { load: Some(Load::default()), ..ObservedNode::of(&object) }
}

fn node_info(version: &str) -> Value {
    json!({
        "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
        "kubeletVersion": version, "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
    })
}

fn asking(mut node: ObservedNode, policy: Option<&str>) -> ObservedNode {
    node.sharing.label = policy.map(str::to_owned);
    node
}

fn cpu(node: &ObservedNode) -> String {
    node.sharing.allocatable.amount(Reserved::Cpu).to_string()
}

#[test]
fn marks_come_before_the_status_and_both_once() {
    for kubelet in [false, true] {
        let (writes, after, _) = settle(node(kubelet, Some("static")), &ClusterSettings::default());
        assert!(
            matches!(&writes[..], [NodeWrite::SharingMetadata(_), NodeWrite::SharingStatus(_)]),
            "{writes:?}"
        );
        assert_eq!(after.sharing.metadata.policy.as_deref(), Some("static"));
        assert_eq!(cpu(&after), "28");
        // Percentages of a node with a kubelet are its device plugins'.
        assert_eq!(after.sharing.percentages[0].len(), if kubelet { 0 } else { 2 });
    }
}

#[test]
fn a_card_that_is_lost_counts_in_capacity_and_not_in_allocatable() {
    let (_, mut shared, _) = settle(node(false, Some("share-pool")), &ClusterSettings::default());
    let amounts = |node: &ObservedNode| {
        let lists = node.sharing.percentages.clone();
        lists.map(|list| list.into_values().map(|one| one.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(amounts(&shared), [["200", "200"], ["200", "200"]]);
    shared.sharing.pool_cards = Some(
        r#"[{"uuid":"GPU-a","index":0,"healthy":true},{"uuid":"GPU-b","index":1,"healthy":false}]"#
            .to_owned(),
    );
    let (_, after, _) = settle(shared, &ClusterSettings::default());
    assert_eq!(amounts(&after), [["200", "200"], ["100", "100"]]);
    assert_eq!(cpu(&after), "28");
}

#[test]
fn nothing_is_decided_while_the_pods_are_not_known() {
    let unknown = ObservedNode { load: None, ..node(true, Some("static")) };
    assert_eq!(plan(&unknown, &ClusterSettings::default()).write, None);
}

#[test]
fn a_node_that_never_heard_of_sharing_gets_nothing() {
    for kubelet in [false, true] {
        assert_eq!(plan(&node(kubelet, None), &ClusterSettings::default()).write, None);
    }
}

#[test]
fn a_mark_that_somebody_spoilt_is_put_right() {
    let (_, good, _) = settle(node(false, Some("share-pool")), &ClusterSettings::default());
    for spoil in [
        |node: &mut ObservedNode| node.sharing.metadata.policy = Some("static".to_owned()),
        |node: &mut ObservedNode| node.sharing.metadata.policy = None,
        |node: &mut ObservedNode| node.sharing.metadata.qos = Some("rubbish".to_owned()),
        |node: &mut ObservedNode| node.sharing.metadata.reserved = None,
    ] {
        let mut spoilt = good.clone();
        spoil(&mut spoilt);
        let (_, after, _) = settle(spoilt, &ClusterSettings::default());
        assert_eq!(after.sharing, good.sharing);
    }
}

#[test]
fn sharing_begins_again_when_the_kubelet_has_stopped_offering_what_was_shared() {
    let mut again = node(true, Some("share-pool"));
    let offered = [("alibabacloud.com/gpu-core.percentage".to_owned(), Quantity::whole_units(200))];
    again.sharing.percentages[1] = offered.into();
    assert_eq!(plan(&again, &ClusterSettings::default()).write, None);
    again.sharing.percentages[1].values_mut().for_each(|amount| *amount = Quantity::whole_units(0));
    let (_, after, _) = settle(again, &ClusterSettings::default());
    assert_eq!(after.sharing.metadata.policy.as_deref(), Some("share-pool"));
}

fn whole(pod: &str) -> BTreeMap<String, String> {
    [(pod.to_owned(), "nvidia.com/gpu".to_owned())].into()
}

#[test]
fn a_refusal_is_told_once() {
    let mut busy = node(true, Some("share-pool"));
    busy.load = Some(Load { exclusive: whole("a/b"), ..Load::default() });
    let (writes, after, _) = settle(busy, &ClusterSettings::default());
    let told: Vec<_> = writes.iter().filter_map(NodeWrite::event).collect();
    assert_eq!(
        told,
        [("ExclusivePodsOnNode", "pod a/b asks for whole cards on the node: delete or move it first")]
    );
    assert_eq!(plan(&after, &ClusterSettings::default()).write, None);
    // Another pod is in the way now: the condition says so, and no second Event.
    let mut other = after;
    other.load = Some(Load { exclusive: whole("a/c"), ..Load::default() });
    let (writes, after, _) = settle(other, &ClusterSettings::default());
    assert!(writes.len() == 1 && writes[0].event().is_none(), "{writes:?}");
    assert!(after.sharing.conditions[0].as_ref().unwrap().message.contains("a/c"));
}

fn policy() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![Some("share-pool"), Some("static"), Some("none"), Some("typo"), None])
}

proptest! {
    #[test]
    fn whatever_is_asked_for_the_steps_end_and_none_gives_everything_back(
        kubelet in any::<bool>(),
        reserve in any::<bool>(),
        asked in prop::collection::vec((policy(), any::<bool>(), any::<bool>()), 1..6),
    ) {
        let cluster = ClusterSettings { no_reservation: !reserve, ..ClusterSettings::default() };
        let first = node(kubelet, None);
        let mut now = first.clone();
        for (policy, exclusive, shared) in asked {
            now = asking(now, policy);
            let mut load = Load::default();
            load.exclusive.extend(whole("a/whole").into_iter().filter(|_| exclusive));
            load.shared.extend(shared.then(|| "a/shared".to_owned()));
            now.load = Some(load);
            let before = now.sharing.metadata.policy.clone();
            now = settle(now, &cluster).1;
            if shared && before.is_some() {
                prop_assert_eq!(&now.sharing.metadata.policy, &before);
            }
            let lowered = now.sharing.metadata.policy.is_some() && reserve;
            prop_assert_eq!(cpu(&now), if lowered { "28" } else { "32" });
        }
        now.load = Some(Load::default());
        let after = settle(asking(now, None), &cluster).1;
        prop_assert_eq!(&after.sharing, &first.sharing);
    }
}
