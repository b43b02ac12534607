//! Node use: the operator's truth table, its operand lists, and label values.

use NodeUse::{Container, VmPassthrough, VmVgpu};
use gpupool_core::node_use::operands::{self, Mode};
use gpupool_core::node_use::{Finding, NodeLabels, NodeUse, OperatorSettings, decide};

/// Flag, default, label, effective use, what the operator logs.
type Row = (bool, Option<&'static str>, Option<&'static str>, NodeUse, Option<&'static str>);

const NO_LABEL: Option<&str> = Some("no GPU workload config found");

const TRUTH: [Row; 15] = [
    (false, Some("container"), None, Container, None),
    (false, Some("container"), Some("container"), Container, None),
    (false, Some("container"), Some("vm-passthrough"), Container, None),
    (false, Some("vm-vgpu"), Some("vm-vgpu"), Container, None),
    (false, Some("vm-passthrough"), Some("typo"), Container, None),
    (true, Some("container"), None, Container, NO_LABEL),
    (true, Some("vm-passthrough"), None, VmPassthrough, NO_LABEL),
    (true, Some("container"), Some("container"), Container, None),
    (true, Some("container"), Some("vm-passthrough"), VmPassthrough, None),
    (true, Some("container"), Some("vm-vgpu"), VmVgpu, None),
    (true, Some("vm-vgpu"), Some("container"), Container, None),
    (
        true,
        Some("container"),
        Some("vm-passthru"),
        Container,
        Some("invalid GPU workload config: vm-passthru"),
    ),
    (
        true,
        Some("vm-passthrough"),
        Some("VM-VGPU"),
        VmPassthrough,
        Some("invalid GPU workload config: VM-VGPU"),
    ),
    (true, Some("container"), Some(""), Container, Some("invalid GPU workload config: ")),
    (true, Some("bogus"), None, Container, NO_LABEL),
];

#[test]
fn the_decision_is_the_operators_in_every_row_of_the_truth_table() {
    for (row, (enabled, default_workload, workload, effective, log)) in TRUTH.into_iter().enumerate() {
        let settings = OperatorSettings { enabled, default_workload };
        let decision = decide(settings, NodeLabels { gpu_present: true, workload }).expect("has a GPU");
        assert_eq!(decision.effective, effective, "row {}", row + 1);
        let logged = decision.finding.as_ref().and_then(Finding::operator_log);
        assert_eq!(logged.as_deref(), log, "row {}", row + 1);
        assert_eq!(
            decision.bad_default.is_some(),
            enabled && default_workload == Some("bogus"),
            "row {}",
            row + 1
        );
    }
}

#[test]
fn a_node_without_a_gpu_gets_no_decision_whatever_the_rest_says() {
    for (enabled, default_workload, workload, ..) in TRUTH {
        assert_eq!(
            decide(
                OperatorSettings { enabled, default_workload },
                NodeLabels { gpu_present: false, workload }
            ),
            None
        );
    }
}

#[test]
fn without_a_default_an_unlabelled_node_is_for_containers() {
    let settings = OperatorSettings { enabled: true, default_workload: None };
    let decision = decide(settings, NodeLabels { gpu_present: true, workload: None }).expect("has a GPU");
    assert_eq!((decision.effective, decision.bad_default), (Container, None));
}

#[test]
fn what_the_operator_hides_is_said_here() {
    let sentence = |enabled, workload| {
        let settings = OperatorSettings { enabled, default_workload: None };
        let decision =
            decide(settings, NodeLabels { gpu_present: true, workload: Some(workload) }).expect("has a GPU");
        decision.finding.map(|finding| finding.to_string())
    };
    let off = sentence(false, "vm-vgpu").expect("the label is not read");
    assert!(off.contains("sandboxWorkloads.enabled") && off.contains("\"vm-vgpu\""), "{off}");
    assert!(sentence(false, "typo").is_some());
    assert_eq!(sentence(false, "container"), None, "label and effect agree");
    let typo = sentence(true, "vm-passthru").expect("a typo");
    assert!(
        typo.contains("vm-passthru") && typo.contains("vm-passthrough") && typo.contains("container"),
        "{typo}"
    );
}

#[test]
fn a_hostile_label_stays_one_short_line() {
    for hostile in ["vm\nvgpu\u{1b}[31m\u{202e}".to_owned(), "x".repeat(1 << 20)] {
        let settings = OperatorSettings { enabled: true, default_workload: Some(&hostile) };
        let decision =
            decide(settings, NodeLabels { gpu_present: true, workload: Some(&hostile) }).expect("has a GPU");
        let text =
            format!("{} {}", decision.finding.expect("invalid"), decision.bad_default.expect("invalid"));
        assert!(text.len() < 500 && !text.contains(char::is_control) && !text.contains('\u{202e}'), "{text}");
    }
}

#[test]
fn values_are_matched_exactly_and_a_typo_finds_its_neighbour() {
    for node_use in NodeUse::ALL {
        assert_eq!(node_use.value().parse(), Ok(node_use));
    }
    for wrong in ["", " container", "container ", "Container", "vm_vgpu", "vm-vgpu\n"] {
        assert!(wrong.parse::<NodeUse>().is_err(), "{wrong:?}");
    }
    assert_eq!(NodeUse::nearest_to("vm-passthru"), Some(VmPassthrough));
    assert_eq!(NodeUse::nearest_to("VM_VGPU"), Some(VmVgpu));
    assert_eq!(NodeUse::nearest_to("banana"), None);
}

#[test]
fn the_short_list_is_the_published_one() {
    let short = |node_use| operands::short(node_use).iter().map(|&name| name.to_owned()).collect();
    assert_eq!(
        operands::lines(short),
        [
            "container=datacenter-driver,container-toolkit,device-plugin,dcgm-exporter",
            "vm-passthrough=vfio-manager,sandbox-device-plugin",
            "vm-vgpu=vgpu-manager,vgpu-device-manager,sandbox-device-plugin",
            "NO_LABEL=container",
            "ENABLE_FLAG=sandboxWorkloads.enabled",
        ]
    );
}

#[test]
fn deploy_labels_are_the_operators_in_both_modes() {
    let labels = |node_use, mode, mig| {
        let mut labels = operands::deploy_labels(node_use, mode, mig);
        labels.sort_unstable();
        labels.join(" ")
    };
    let container = "client container-toolkit dcgm dcgm-exporter device-plugin driver gpu-feature-discovery \
                     node-status-exporter operator-validator";
    let mig = "client container-toolkit dcgm dcgm-exporter device-plugin driver gpu-feature-discovery mig-manager \
               node-status-exporter operator-validator";
    let vgpu = "cc-manager client sandbox-device-plugin sandbox-validator vgpu-device-manager vgpu-manager";
    for mode in [Mode::Kubevirt, Mode::Kata] {
        assert_eq!(labels(Container, mode, false), container);
        assert_eq!(labels(Container, mode, true), mig);
        assert_eq!(labels(VmVgpu, mode, true), vgpu);
    }
    assert_eq!(
        labels(VmPassthrough, Mode::Kubevirt, true),
        "cc-manager client kata-manager sandbox-device-plugin sandbox-validator vfio-manager"
    );
    assert_eq!(
        labels(VmPassthrough, Mode::Kata, true),
        "cc-manager client kata-manager kata-sandbox-device-plugin sandbox-validator vfio-manager"
    );
}

#[test]
fn labels_that_bring_no_pod_are_told_apart() {
    assert!(!operands::is_deployed("kata-manager", Mode::Kata));
    assert!(!operands::is_deployed("cc-manager", Mode::Kubevirt));
    // The trap: a vGPU node in Kata mode is labelled for a plugin that never comes.
    assert!(!operands::is_deployed("sandbox-device-plugin", Mode::Kata));
    assert!(operands::is_deployed("sandbox-device-plugin", Mode::Kubevirt));
    assert!(operands::is_deployed("kata-sandbox-device-plugin", Mode::Kata));
}
