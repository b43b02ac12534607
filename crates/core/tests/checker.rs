//! The checker: the published lab, a table of cases under both rules, and what reasons and warnings say.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use gpupool_core::checker::{Code, JudgedNode, Judgement, Rules, judge};
use gpupool_core::quantity::Quantity;
use proptest::prelude::*;

/// `name:quantity, …` as a resource map; names get the domain unless they have one.
fn resources(text: &str) -> Vec<(String, Quantity)> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (name, quantity) = entry.rsplit_once(':').expect("name:quantity");
            let name = if name.contains('/') { name.to_owned() } else { format!("nvidia.com/{name}") };
            (name, Quantity::parse(quantity).expect("quantity"))
        })
        .collect()
}

fn borrowed(resources: &[(String, Quantity)]) -> Vec<(&str, Quantity)> {
    resources.iter().map(|(name, quantity)| (name.as_str(), *quantity)).collect()
}

struct Node {
    label: Option<&'static str>,
    vgpu_config: Option<&'static str>,
    allocatable: Option<&'static str>,
    capacity: Option<&'static str>,
}

impl Node {
    /// Allocatable and capacity agree, as they do on a healthy node.
    fn new(label: &'static str, advertised: &'static str) -> Self {
        Self {
            label: Some(label),
            vgpu_config: None,
            allocatable: Some(advertised),
            capacity: Some(advertised),
        }
    }

    fn judge(&self, rules: Rules) -> Option<Judgement> {
        let allocatable = self.allocatable.map(resources);
        let capacity = self.capacity.map(resources);
        let (allocatable, capacity) =
            (allocatable.as_deref().map(borrowed), capacity.as_deref().map(borrowed));
        judge(
            rules,
            JudgedNode {
                label: self.label,
                vgpu_config: self.vgpu_config,
                allocatable: allocatable.as_deref(),
                capacity: capacity.as_deref(),
            },
        )
    }

    fn code(&self, rules: Rules) -> Option<Code> {
        self.judge(rules).expect("carries the label").mismatch.map(|mismatch| mismatch.code())
    }

    fn reason(&self, rules: Rules) -> String {
        self.judge(rules).expect("carries the label").mismatch.expect("mismatch").to_string()
    }

    fn warnings(&self, rules: Rules) -> Vec<String> {
        let judgement = self.judge(rules).expect("carries the label");
        judgement.warnings.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn the_three_nodes_of_the_published_lab_match() {
    for (label, advertised) in
        [("container", "gpu:4"), ("vm-passthrough", "GA102GL_A10:2"), ("vm-vgpu", "NVIDIA_A10-12Q:4")]
    {
        for rules in [Rules::Strict, Rules::Operator] {
            let node = Node::new(label, advertised);
            assert_eq!(node.code(rules), None, "{label}");
            assert_eq!(node.warnings(rules), Vec::<String>::new(), "{label}");
        }
    }
}

use Code::{EmptyLabel, NothingAdvertised, OtherProfile, SeveralResources, UnknownLabel, WrongKind};

/// Label, what is advertised, the strict verdict, the verdict for real fleets.
type Case = (&'static str, &'static str, Option<Code>, Option<Code>);

const CASES: &[Case] = &[
    ("container", "gpu:4", None, None),
    ("container", "gpu:4, GA102GL_A10:0", None, None),
    ("container", "GA102GL_A10:2", Some(WrongKind), Some(WrongKind)),
    ("container", "NVIDIA_A10-12Q:4", Some(WrongKind), Some(WrongKind)),
    ("container", "gpu:4, NVIDIA_A10-12Q:4", Some(SeveralResources), Some(WrongKind)),
    ("container", "gpu:0", Some(NothingAdvertised), Some(NothingAdvertised)),
    ("container", "gpu.shared:16", Some(WrongKind), None),
    ("container", "mig-1g.5gb:7, mig-2g.10gb:2", Some(SeveralResources), None),
    ("vm-passthrough", "GA102GL_A10:2", None, None),
    ("vm-passthrough", "GA102GL_A10G:2", None, None),
    ("vm-passthrough", "AD102GL_L40S:8", None, None),
    ("vm-passthrough", "gpu:2", Some(WrongKind), Some(WrongKind)),
    ("vm-passthrough", "NVIDIA_A10-12Q:4", Some(WrongKind), Some(WrongKind)),
    (
        "vm-passthrough",
        "GA102_GEFORCE_RTX_3090:4, GA102_HIGH_DEFINITION_AUDIO_CONTROLLER:4",
        Some(SeveralResources),
        None,
    ),
    ("vm-passthrough", "pgpu:8, nvswitch:4", Some(SeveralResources), None),
    ("vm-passthrough", "2571:1", None, None),
    ("vm-passthrough", "GA102GL_A10:2, AD102GL_L40:1", Some(SeveralResources), None),
    ("vm-vgpu", "NVIDIA_A10-12Q:4", None, None),
    ("vm-vgpu", "NVIDIA_A10-12Q:0, NVIDIA_A10-8Q:6, gpu:0, GA102GL_A10:0", None, None),
    ("vm-vgpu", "NVIDIA_A100-1-5CME:7", None, None),
    ("vm-vgpu", "GA102GL_A10:2", Some(WrongKind), Some(WrongKind)),
    ("vm-vgpu", "NVIDIA_A10-12Q:2, NVIDIA_A10-6Q:4", Some(SeveralResources), None),
    ("vm-passthru", "gpu:4", Some(UnknownLabel), Some(UnknownLabel)),
    ("", "gpu:4", Some(EmptyLabel), Some(EmptyLabel)),
    ("container", "gpu:4k", None, None),
    ("container", "alibabacloud.com/gpu-core.percentage:1600, gpu:16", None, None),
    // Dumps that people posted.
    ("vm-vgpu", "A10-12Q:0, GA102GL_A10:0, NVIDIA_A10-12Q:0, NVIDIA_A10-8Q:6, gpu:0", None, None),
    ("vm-passthrough", "2571:0, GA106_RTX_A2000_12GB:1, gpu:0", None, None),
    ("vm-passthrough", "ARIEL_DEVICE_24_FUNCTION_3:1, GM204GL_TESLA_M6:0, gpu:0", None, None),
    ("container", "gpu:4, hostdev:0, mig-1g.5gb:7, mig-2g.10gb:0", Some(SeveralResources), None),
    ("container", "gpu:8, mig-1g.5gb:56, mig-7g.40gb:8", Some(SeveralResources), None),
    ("container", "gpu:0, gpu.shared:128", Some(WrongKind), None),
    // Quantities in every form.
    ("container", "gpu:1e0", None, None),
    ("container", "gpu:0e3", Some(NothingAdvertised), Some(NothingAdvertised)),
    ("container", "gpu:0.0", Some(NothingAdvertised), Some(NothingAdvertised)),
    ("container", "gpu:4, GA102GL_A10:0Ki", None, None),
    ("container", "gpu:4, GA102GL_A10:1m", Some(SeveralResources), Some(WrongKind)),
    // What belongs to nobody.
    ("container", "hostdev:4", Some(WrongKind), Some(NothingAdvertised)),
    ("container", "gpu:4, hostdev:4", Some(SeveralResources), None),
    ("container", "nvswitch:4, gpu:8", Some(SeveralResources), Some(WrongKind)),
    ("vm-passthrough", "GA102_HIGH_DEFINITION_AUDIO_CONTROLLER:4", Some(WrongKind), Some(NothingAdvertised)),
    ("vm-passthrough", "mig-1g.5gb:7", Some(WrongKind), Some(WrongKind)),
    ("vm-vgpu", "NVIDIA_A10-12Q:4, nvswitch:1", Some(SeveralResources), Some(WrongKind)),
    ("vm-vgpu", "amd.com/gpu:4", Some(NothingAdvertised), Some(NothingAdvertised)),
    ("Container", "gpu:4", Some(UnknownLabel), Some(UnknownLabel)),
    ("container ", "gpu:4", Some(UnknownLabel), Some(UnknownLabel)),
];

#[test]
fn every_case_has_its_verdict_under_both_rules() {
    for &(label, advertised, strict, operator) in CASES {
        let node = Node::new(label, advertised);
        assert_eq!(node.code(Rules::Strict), strict, "strict: {label} {advertised}");
        assert_eq!(node.code(Rules::Operator), operator, "operator: {label} {advertised}");
    }
}

#[test]
fn a_node_without_the_label_is_not_judged() {
    let node = Node { label: None, ..Node::new("", "GA102GL_A10:2") };
    assert_eq!(node.judge(Rules::Strict), None);
}

#[test]
fn allocatable_decides_and_what_is_left_in_capacity_is_named() {
    let node = Node { capacity: Some("gpu:4"), ..Node::new("container", "gpu:0") };
    assert_eq!(node.code(Rules::Strict), Some(NothingAdvertised));
    assert!(node.reason(Rules::Strict).contains("nvidia.com/gpu (4)"), "{}", node.reason(Rules::Strict));
    let empty = Node { capacity: Some("gpu:4"), ..Node::new("container", "") };
    assert_eq!(
        empty.code(Rules::Strict),
        Some(NothingAdvertised),
        "an empty allocatable is not a missing one"
    );
}

#[test]
fn capacity_counts_where_a_node_has_no_allocatable_at_all() {
    let node = Node { allocatable: None, ..Node::new("container", "gpu:4") };
    assert_eq!(node.code(Rules::Strict), None);
    assert!(node.warnings(Rules::Strict)[0].contains("capacity"));
    let wrong = Node { allocatable: None, ..Node::new("vm-vgpu", "gpu:4") };
    assert_eq!(wrong.code(Rules::Strict), Some(WrongKind));
    let bare = Node { allocatable: None, capacity: None, ..Node::new("container", "") };
    assert_eq!(bare.code(Rules::Strict), Some(NothingAdvertised));
}

#[test]
fn a_profile_other_than_the_configured_one_is_a_warning_or_under_operator_rules_a_mismatch() {
    for (config, advertised, same) in [
        ("A100-1-5CME", "NVIDIA_A100-1-5C:7", false),
        ("A100-1-5CME", "NVIDIA_A100-1-5CME:7", true),
        ("A10-12Q", "NVIDIA_A10-12Q:4", true),
        ("A10-12Q", "A10-12Q:4", true),
        ("0-12Q", "NVIDIA_A10-12Q:4", false),
        ("DC-1-24QGFX", "NVIDIA_RTX_Pro_6000_Blackwell_DC-1-24Q:4", true),
        ("default", "NVIDIA_A10-12Q:4", true),
        ("my-mix", "NVIDIA_A10-12Q:4", true),
        ("", "NVIDIA_A10-12Q:4", true),
    ] {
        let node = Node { vgpu_config: Some(config), ..Node::new("vm-vgpu", advertised) };
        assert_eq!(node.code(Rules::Strict), None, "{config}");
        assert_eq!(
            node.warnings(Rules::Strict).is_empty(),
            same,
            "{config}: {:?}",
            node.warnings(Rules::Strict)
        );
        assert_eq!(node.code(Rules::Operator), (!same).then_some(OtherProfile), "{config}");
    }
}

#[test]
fn oddities_are_warned_of_and_change_no_verdict() {
    for (label, advertised, word) in [
        ("vm-passthrough", "2571:1", "raw PCI id"),
        ("vm-passthrough", "ARIEL_DEVICE_24_FUNCTION_3:1", "NVIDIA chip"),
        ("vm-passthrough", "UNKNOWN_DEVICE:1", "NVIDIA chip"),
        ("vm-vgpu", "h100-80G:8", "no known vGPU profile"),
        ("container", "gpu:4k", "more than a node can have"),
        ("container", "gpu:-1", "no count"),
        ("container", "gpu:500m", "no count"),
    ] {
        let node = Node::new(label, advertised);
        assert_eq!(node.code(Rules::Strict), None, "{advertised}");
        assert!(
            node.warnings(Rules::Strict)[0].contains(word),
            "{advertised}: {:?}",
            node.warnings(Rules::Strict)
        );
    }
    let dropped = Node { capacity: Some(""), ..Node::new("container", "gpu:4") };
    assert_eq!(dropped.code(Rules::Strict), None);
    assert!(
        dropped.warnings(Rules::Strict)[0].contains("kubelet will remove"),
        "{:?}",
        dropped.warnings(Rules::Strict)
    );
    let hostdev = Node::new("container", "gpu:4, hostdev:2");
    assert!(
        hostdev.warnings(Rules::Operator)[0].contains("hostdev"),
        "{:?}",
        hostdev.warnings(Rules::Operator)
    );
    let two = Node::new("vm-vgpu", "NVIDIA_A10-12Q:2, NVIDIA_A10-6Q:4");
    assert!(two.warnings(Rules::Operator)[0].contains("several"), "{:?}", two.warnings(Rules::Operator));
    assert!(Node::new("vm-passthrough", "pgpu:8").warnings(Rules::Strict).is_empty(), "the usual alias");
}

#[test]
fn a_reason_says_what_was_found_what_was_expected_and_what_to_do() {
    let reason = |label, advertised| Node::new(label, advertised).reason(Rules::Strict);
    for (label, advertised, words) in [
        (
            "container",
            "GA102GL_A10:2",
            ["nvidia.com/GA102GL_A10 (2)", "expected nvidia.com/gpu", "vm-passthrough"],
        ),
        (
            "vm-passthrough",
            "gpu:2",
            ["nvidia.com/gpu (2)", "expected one passthrough model", "permittedHostDevices"],
        ),
        (
            "vm-vgpu",
            "GA102GL_A10:2",
            ["nvidia.com/GA102GL_A10 (2)", "expected one vGPU profile", "vm-passthrough"],
        ),
        ("container", "gpu:4, NVIDIA_A10-12Q:4", ["2 resources", "expected only nvidia.com/gpu", "vm-vgpu"]),
        ("container", "gpu:0", ["no nvidia.com/ resource", "expected nvidia.com/gpu", "device plugin runs"]),
        (
            "vm-passthru",
            "gpu:4",
            ["\"vm-passthru\"", "expected container, vm-passthrough or vm-vgpu", "set it to vm-passthrough"],
        ),
        ("", "gpu:4", ["is empty", "expected container, vm-passthrough or vm-vgpu", "remove the label"]),
        (
            "container",
            "gpu.shared:16",
            ["nvidia.com/gpu.shared (16)", "expected nvidia.com/gpu", "--rules operator"],
        ),
        ("container", "mig-1g.5gb:7", ["a MIG slice", "expected nvidia.com/gpu", "--rules operator"]),
        (
            "vm-passthrough",
            "GA102GL_A10:2, AD102GL_L40:1",
            ["2 resources", "expected only one", "--rules operator"],
        ),
        ("container", "hostdev:4", ["nvidia.com/hostdev (4)", "expected nvidia.com/gpu", "another domain"]),
    ] {
        let reason = reason(label, advertised);
        for word in words {
            assert!(reason.contains(word), "{label} {advertised}: {word:?} not in {reason:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_reason_is_one_line_of_bounded_length_whatever_the_node_says(
        label in "\\PC{0,20}|(?s).{0,300}", names in proptest::collection::vec("(?s).{0,300}", 0..40), rule: bool,
    ) {
        let rules = if rule { Rules::Strict } else { Rules::Operator };
        let names: Vec<String> = names.into_iter().map(|name| format!("nvidia.com/{name}")).collect();
        let resources: Vec<_> = names.iter().map(|name| (name.as_str(), Quantity::whole_units(1))).collect();
        let facts = JudgedNode { label: Some(&label), vgpu_config: Some(&label), allocatable: Some(&resources), capacity: None };
        let judgement = judge(rules, facts).expect("carries the label");
        let reason = judgement.mismatch.map(|mismatch| mismatch.to_string()).unwrap_or_default();
        for line in judgement.warnings.iter().map(ToString::to_string).chain([reason]) {
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            prop_assert!(line.chars().count() < 8000, "{}", line.len());
        }
    }

    #[test]
    fn the_order_of_resources_and_zeros_among_them_change_nothing(
        mut entries in proptest::collection::vec((proptest::sample::select(vec![
            "nvidia.com/gpu", "nvidia.com/GA102GL_A10", "nvidia.com/NVIDIA_A10-12Q", "nvidia.com/gpu.shared",
            "nvidia.com/nvswitch", "nvidia.com/hostdev", "cpu",
        ]), 0_u32..3), 0..6),
        label in proptest::sample::select(vec!["container", "vm-passthrough", "vm-vgpu", "typo", ""]), rule: bool,
    ) {
        let rules = if rule { Rules::Strict } else { Rules::Operator };
        entries.sort_unstable();
        entries.dedup_by_key(|(name, _)| *name);
        let verdict = |entries: &[(&str, u32)]| {
            let resources: Vec<_> = entries.iter().map(|&(name, count)| (name, Quantity::whole_units(count))).collect();
            judge(rules, JudgedNode { label: Some(label), allocatable: Some(&resources), ..JudgedNode::default() })
        };
        let first = verdict(&entries);
        entries.reverse();
        prop_assert_eq!(&verdict(&entries), &first);
        entries.retain(|(_, count)| *count > 0);
        prop_assert_eq!(&verdict(&entries), &first);
    }
}
