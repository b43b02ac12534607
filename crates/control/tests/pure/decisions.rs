//! What is written to a node, for every use, label, flag and state of its status; pure.

use crate::support::{CARDS, OFFERED, Shape, advertised, condition, message, sandbox, settle};
use gpupool_control::node_controller::NodeWrite;
use gpupool_control::node_controller::finding::UseReason;
use gpupool_control::node_controller::plan::plan;
use gpupool_control::{ClusterSettings, SettingsSource};
use gpupool_core::checker::Rules;

fn pair(name: &str, amount: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), amount.to_owned())]
}

#[test]
fn every_use_advertises_its_name_and_nothing_else() {
    for (label, name, amount) in OFFERED {
        let (writes, node, _) = settle(Shape::labelled(label).with_cards(CARDS).node(), &sandbox());
        assert_eq!(writes.len(), 1, "{label}");
        assert_eq!(advertised(&node), pair(name, amount));
        assert_eq!(condition(&node), Some(("True", "Valid")));
        assert_eq!(message(&node), format!("use {label}: advertises {name}"));
    }
}

#[test]
fn the_old_name_goes_before_the_new_one_comes() {
    for (from, old, amount) in OFFERED {
        for (to, new, _) in OFFERED.into_iter().filter(|(to, ..)| *to != from) {
            let node = Shape::labelled(to).with_cards(CARDS).own(old, amount).node();
            let (writes, after, _) = settle(node, &sandbox());
            let [NodeWrite::UseStatus(first), NodeWrite::UseStatus(second)] = &writes[..] else {
                panic!("{from} to {to}: {writes:?}");
            };
            assert!(
                first.advertisement.names().next().is_none(),
                "{from} to {to}: a name stands in the first write"
            );
            let reason = first.condition.as_ref().map(|finding| finding.reason);
            assert_eq!(reason, Some(UseReason::ChangingUse));
            assert!(second.advertisement.names().all(|name| name == new));
            assert_eq!(condition(&after), Some(("True", "Valid")));
        }
    }
}

#[test]
fn with_the_flag_off_every_node_is_for_containers_and_the_text_says_which_flag() {
    for (source, where_) in [
        (SettingsSource::CommandLine, "run gpupool control with --sandbox-workloads"),
        (SettingsSource::ClusterPolicy("cluster-policy".to_owned()), "in ClusterPolicy cluster-policy"),
    ] {
        let off = ClusterSettings { source, ..ClusterSettings::default() };
        for label in ["vm-passthrough", "vm-vgpu"] {
            let (writes, node, _) = settle(Shape::labelled(label).with_cards(CARDS).node(), &off);
            assert_eq!(advertised(&node), pair("nvidia.com/gpu", "4"));
            assert_eq!(condition(&node), Some(("True", "LabelNotRead")));
            assert!(message(&node).contains("sandboxWorkloads.enabled is not true"), "{}", message(&node));
            assert!(message(&node).contains(where_), "{}", message(&node));
            assert!(
                matches!(&writes[..], [NodeWrite::UseStatus(write)] if write.emit_event),
                "an Event tells of it"
            );
        }
        let (_, node, _) = settle(Shape::labelled("container").with_cards(CARDS).node(), &off);
        assert_eq!(condition(&node), Some(("True", "Valid")));
    }
}

#[test]
fn with_the_flag_off_the_condition_judges_the_effective_use() {
    let node = Shape::labelled("vm-passthrough").foreign("nvidia.com/GA102GL_A10", "2").node();
    let (_, node, _) = settle(node, &ClusterSettings::default());
    assert_eq!(condition(&node), Some(("False", "WrongResource")));
    assert!(message(&node).contains("sandboxWorkloads.enabled is not true"), "{}", message(&node));
    assert!(message(&node).contains("advertises nvidia.com/GA102GL_A10, expected nvidia.com/gpu"));
}

#[test]
fn a_typo_is_told_and_takes_the_default_as_the_operator_does() {
    for (label, reason) in
        [("vm-passthru", "UnknownLabelValue"), ("VM-VGPU", "UnknownLabelValue"), ("", "EmptyLabelValue")]
    {
        for (default, name) in [(None, "nvidia.com/gpu"), (Some("vm-vgpu"), "nvidia.com/NVIDIA_A10-12Q")] {
            let cluster = ClusterSettings { default_workload: default.map(str::to_owned), ..sandbox() };
            let (writes, node, _) = settle(Shape::labelled(label).with_cards(CARDS).node(), &cluster);
            assert_eq!(condition(&node), Some(("False", reason)), "{label}");
            assert_eq!(node.advertised().keys().collect::<Vec<_>>(), [name]);
            assert!(matches!(&writes[..], [NodeWrite::UseStatus(write)] if write.emit_event));
        }
    }
    let (_, node, _) = settle(Shape::labelled("vm-passthru").node(), &sandbox());
    assert!(message(&node).contains("set it to vm-passthrough"), "{}", message(&node));
}

#[test]
fn a_typo_is_told_with_the_flag_off_too() {
    let (_, node, _) = settle(Shape::labelled("vm-passthru").node(), &ClusterSettings::default());
    assert_eq!(condition(&node), Some(("False", "UnknownLabelValue")));
    assert!(message(&node).contains("sandboxWorkloads.enabled is not true"), "{}", message(&node));
}

/// Row 7 of the users' pains: sandbox workloads on, but the node is not labelled.
#[test]
fn row_07_an_unlabelled_gpu_node_in_a_sandbox_cluster_is_told_of_without_a_condition() {
    let told = |shape: Shape, cluster: &ClusterSettings| {
        let (_, node, plan) = settle(shape.node(), cluster);
        assert_eq!(condition(&node), None);
        plan.notices.iter().map(|notice| notice.reason).collect::<Vec<_>>()
    };
    assert_eq!(told(Shape::bare().with_cards(CARDS), &sandbox()), [UseReason::NoLabel]);
    assert_eq!(told(Shape::bare().foreign("nvidia.com/gpu", "4"), &sandbox()), [UseReason::NoLabel]);
    assert!(told(Shape::bare().foreign("nvidia.com/gpu", "4"), &ClusterSettings::default()).is_empty());
    assert!(told(Shape::bare(), &sandbox()).is_empty(), "a node without a GPU needs no label");
}

#[test]
fn an_unlabelled_node_advertises_what_the_default_asks_for() {
    let (_, node, _) = settle(Shape::bare().with_cards(CARDS).node(), &ClusterSettings::default());
    assert_eq!(advertised(&node), pair("nvidia.com/gpu", "4"));
    let vgpu = ClusterSettings { default_workload: Some("vm-vgpu".to_owned()), ..sandbox() };
    let (_, node, _) = settle(Shape::bare().with_cards(CARDS).node(), &vgpu);
    assert_eq!(advertised(&node), pair("nvidia.com/NVIDIA_A10-12Q", "4"));
}

/// Row 18: a passthrough node that shows the container name.
#[test]
fn row_18_the_container_name_on_a_vm_node_is_a_mismatch_that_says_who_may_have_advertised_it() {
    let (_, node, _) =
        settle(Shape::labelled("vm-passthrough").foreign("nvidia.com/gpu", "2").node(), &sandbox());
    assert_eq!(condition(&node), Some(("False", "WrongResource")));
    assert!(message(&node).contains("permittedHostDevices"), "{}", message(&node));
}

/// Row 21: a vGPU node where no device was made.
#[test]
fn row_21_a_labelled_node_that_advertises_nothing_is_not_valid() {
    let node = Shape::labelled("vm-vgpu").foreign("nvidia.com/NVIDIA_A10-12Q", "0").node();
    let (_, node, _) = settle(node, &sandbox());
    assert_eq!(condition(&node), Some(("False", "NothingAdvertised")));
}

/// Rows 25 and 26: zeros are what a plugin left behind.
#[test]
fn rows_25_and_26_a_zero_of_somebody_else_counts_as_absent_and_stays() {
    let node = Shape::labelled("vm-passthrough").with_cards(CARDS).foreign("nvidia.com/gpu", "0").node();
    let (_, node, _) = settle(node, &sandbox());
    assert_eq!(advertised(&node), pair("nvidia.com/GA102GL_A10", "2"));
    assert!(node.capacity.contains_key("nvidia.com/gpu"));
    assert_eq!(condition(&node), Some(("True", "Valid")));
}

#[test]
fn rows_25_and_26_a_zero_of_its_own_is_deleted() {
    let (_, node, _) = settle(Shape::labelled("container").own("nvidia.com/gpu", "0").node(), &sandbox());
    assert!(node.capacity.is_empty() && node.allocatable.is_empty());
}

#[test]
fn names_that_others_wrote_are_never_touched() {
    let node = Shape::labelled("container").with_cards(CARDS).foreign("nvidia.com/gpu", "3").node();
    let (writes, node, _) = settle(node, &sandbox());
    let [NodeWrite::UseStatus(write)] = &writes[..] else { panic!("{writes:?}") };
    assert!(write.advertisement.names().next().is_none(), "the amount of the other stays: {write:?}");
    assert_eq!(advertised(&node), pair("nvidia.com/gpu", "3"));
    assert_eq!(condition(&node), Some(("True", "Valid")));
}

#[test]
fn while_a_foreign_name_stands_nothing_is_added_and_the_condition_says_how_to_remove_it() {
    let node = Shape::labelled("vm-passthrough").with_cards(CARDS).foreign("nvidia.com/gpu", "4").node();
    let (_, node, _) = settle(node, &sandbox());
    assert_eq!(advertised(&node), pair("nvidia.com/gpu", "4"));
    assert_eq!(condition(&node), Some(("False", "ForeignResource")));
    assert!(
        message(&node).contains(r#"{"status":{"capacity":{"nvidia.com/gpu":null}"#),
        "{}",
        message(&node)
    );
}

#[test]
fn a_name_that_somebody_wrote_over_is_his() {
    let node = Shape::labelled("vm-vgpu")
        .with_cards(CARDS)
        .own("nvidia.com/gpu", "4")
        .foreign("nvidia.com/gpu", "4")
        .node();
    assert!(node.own.capacity.is_empty());
    let (_, node, _) = settle(node, &sandbox());
    assert_eq!(advertised(&node), pair("nvidia.com/gpu", "4"));
    assert_eq!(condition(&node), Some(("False", "ForeignResource")));
}

#[test]
fn a_node_that_a_kubelet_runs_is_only_observed() {
    for shape in [
        Shape { kubelet_version: "v1.36.3".to_owned(), ..Shape::labelled("container").with_cards(CARDS) },
        Shape::labelled("container").with_cards(CARDS).with("cpu", "4", "kubelet"),
    ] {
        let (writes, node, plan) = settle(shape.node(), &sandbox());
        assert!(writes.iter().all(
            |write| matches!(write, NodeWrite::UseStatus(write) if write.advertisement.names().next().is_none())
        ));
        assert_eq!(condition(&node), Some(("False", "NothingAdvertised")));
        assert_eq!(
            plan.notices.iter().map(|notice| notice.reason).collect::<Vec<_>>(),
            [UseReason::CardsIgnored]
        );
    }
    let kwok =
        Shape { kubelet_version: "kwok-v0.7.0".to_owned(), ..Shape::labelled("container").with_cards(CARDS) };
    assert_eq!(advertised(&settle(kwok.node(), &sandbox()).1), pair("nvidia.com/gpu", "4"));
}

#[test]
fn a_mistake_in_the_annotation_takes_nothing_away_and_is_told() {
    for (cards, reason) in
        [("{", "CardsUnreadable"), (r#"{"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": 7}"#, "CardsAmbiguous")]
    {
        let node = Shape::labelled("container").with_cards(cards).own("nvidia.com/gpu", "4").node();
        let (writes, node, _) = settle(node, &sandbox());
        assert_eq!(advertised(&node), pair("nvidia.com/gpu", "4"));
        assert_eq!(condition(&node), Some(("False", reason)));
        assert!(matches!(&writes[..], [NodeWrite::UseStatus(write)] if write.emit_event));
    }
}

#[test]
fn an_annotation_that_names_nothing_for_the_use_is_told() {
    let node =
        Shape::labelled("vm-vgpu").with_cards(r#"{"nvidia.com/gpu": 4}"#).own("nvidia.com/gpu", "4").node();
    let (_, node, _) = settle(node, &sandbox());
    assert_eq!(condition(&node), Some(("False", "NoCardsForUse")));
    assert!(advertised(&node).is_empty());
}

#[test]
fn several_names_of_one_use_stand_together_under_the_operator_rules() {
    let cards = r#"{"nvidia.com/mig-1g.5gb": 7, "nvidia.com/mig-2g.10gb": 2}"#;
    let operator = ClusterSettings { rules: Rules::Operator, ..sandbox() };
    let (_, node, _) = settle(Shape::labelled("container").with_cards(cards).node(), &operator);
    assert_eq!(advertised(&node).len(), 2);
    assert_eq!(condition(&node), Some(("True", "Valid")));
}

#[test]
fn another_count_in_the_annotation_is_followed_in_one_write() {
    let node =
        Shape::labelled("container").with_cards(r#"{"nvidia.com/gpu": 8}"#).own("nvidia.com/gpu", "4").node();
    let (writes, node, _) = settle(node, &sandbox());
    assert_eq!(writes.len(), 1);
    assert_eq!(advertised(&node), pair("nvidia.com/gpu", "8"));
}

#[test]
fn without_annotation_and_label_everything_of_ours_goes() {
    let mut node = settle(Shape::labelled("container").with_cards(CARDS).node(), &sandbox()).1;
    node.cards = None;
    node.labels.clear();
    let (writes, node, _) = settle(node, &sandbox());
    assert_eq!(writes.len(), 1);
    assert!(node.capacity.is_empty() && node.condition.is_none());
}

#[test]
fn a_condition_of_somebody_else_under_our_name_is_not_fought_over_without_a_label() {
    let mut node = settle(Shape::labelled("container").node(), &sandbox()).1;
    node.labels.clear();
    node.own.conditions.clear();
    assert!(plan(&node, &sandbox()).write.is_none());
}

#[test]
fn nothing_is_written_twice() {
    for (label, ..) in OFFERED {
        for cluster in [sandbox(), ClusterSettings::default()] {
            let node = settle(Shape::labelled(label).with_cards(CARDS).node(), &cluster).1;
            assert_eq!(plan(&node, &cluster).write, None);
        }
    }
}

#[test]
fn deploy_labels_are_written_only_when_they_are_managed_and_between_the_two_names() {
    let managed = ClusterSettings { manage_operands: true, ..sandbox() };
    let mut node = Shape::labelled("vm-passthrough").with_cards(CARDS).own("nvidia.com/gpu", "4").node();
    node.labels.insert("nvidia.com/gpu.present".to_owned(), "true".to_owned());
    let (writes, ..) = settle(node.clone(), &sandbox());
    assert!(!writes.iter().any(|write| matches!(write, NodeWrite::DeployLabels(_))));
    let (writes, after, _) = settle(node, &managed);
    assert!(
        matches!(&writes[..], [NodeWrite::UseStatus(_), NodeWrite::DeployLabels(_), NodeWrite::UseStatus(_)]),
        "{writes:?}"
    );
    assert_eq!(after.label("nvidia.com/gpu.deploy.vfio-manager"), Some("true"));
}
