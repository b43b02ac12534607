//! The deploy labels, by the GPU Operator's own algorithm, for clusters where it does not run.
//!
//! The rule is that of `NodeLabelingReconciler` in gpu-operator 26.7.0: what no longer applies is removed, what is
//! missing is added, and a value that somebody has set (a paused operand) is honoured as long as the label applies.
//! Only labels that the operator knows are touched. `nvidia.com/gpu.present` is read, never written.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::node_use::NodeUse;
use gpupool_core::node_use::operands::{DEPLOY_PREFIX, Mode, deploy_labels};

use super::observed::ObservedNode;

/// Changes to a node's labels: a value to set, or nothing for a label to remove.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// Says with `false` that a node wants no operands at all.
const OPERANDS: &str = "nvidia.com/gpu.deploy.operands";
/// What the operator sets on a node that has a card.
const PRESENT: &str = "nvidia.com/gpu.present";
/// What NFD sets on a node that has an NVIDIA device: any class, 3D controller, VGA controller.
const NFD_PRESENT: [&str; 3] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
];
/// Labels of the operator's other mode (`GPUCluster`), which it removes here.
const DRA: [&str; 4] = ["dra-driver", "dra-validator", "dcgm-dra", "dcgm-exporter-dra"];
/// Products that can be cut into slices, for nodes that do not say whether they can.
const MIG_PRODUCTS: [&str; 3] = ["h100", "a100", "a30"];

/// Whether the node has a card: the operator's label says so, or NFD does and the operator would.
pub(crate) fn has_card(node: &ObservedNode) -> bool {
    NFD_PRESENT.iter().chain([&PRESENT]).any(|label| node.label(label) == Some("true"))
}

/// What must change for the labels to be those of the use.
pub(crate) fn changes(node: &ObservedNode, node_use: NodeUse, mode: Mode) -> LabelChanges {
    let wanted: BTreeSet<&str> = if has_card(node) && node.label(OPERANDS) != Some("false") {
        deploy_labels(node_use, mode, is_mig_capable(node)).into_iter().collect()
    } else {
        BTreeSet::new()
    };
    let mut changes = LabelChanges::new();
    for operand in known() {
        let label = format!("{DEPLOY_PREFIX}{operand}");
        let value = node.label(&label);
        if wanted.contains(operand) {
            if value.is_none_or(str::is_empty) {
                changes.insert(label, Some("true".to_owned()));
            }
        } else if value.is_some() {
            changes.insert(label, None);
        }
    }
    changes
}

/// Every operand whose label the operator ever sets.
fn known() -> BTreeSet<&'static str> {
    let uses = NodeUse::ALL.into_iter();
    let all = uses
        .flat_map(|node_use| [Mode::Kubevirt, Mode::Kata].map(|mode| deploy_labels(node_use, mode, true)));
    all.flatten().chain(DRA).collect()
}

fn is_mig_capable(node: &ObservedNode) -> bool {
    let guest = node.label("nvidia.com/vgpu.host-driver-version").is_some_and(|version| !version.is_empty());
    let product = node.label("nvidia.com/gpu.product").unwrap_or_default().to_lowercase();
    !guest
        && match node.label("nvidia.com/mig.capable") {
            Some(capable) => capable == "true",
            None => MIG_PRODUCTS.iter().any(|known| product.contains(known)),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> ObservedNode {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ObservedNode { labels, ..ObservedNode::default() }
    }

    fn with_card(labels: &[(&str, &str)]) -> ObservedNode {
        let mut node = node(labels);
        node.labels.insert(PRESENT.to_owned(), "true".to_owned());
        node
    }

    /// The node after the changes.
    fn after(mut node: ObservedNode, changes: LabelChanges) -> ObservedNode {
        for (label, value) in changes {
            match value {
                Some(value) => node.labels.insert(label, value),
                None => node.labels.remove(&label),
            };
        }
        node
    }

    fn deployed(node: &ObservedNode) -> BTreeSet<&str> {
        node.labels.keys().filter_map(|label| label.strip_prefix(DEPLOY_PREFIX)).collect()
    }

    #[test]
    fn every_use_gets_its_labels_and_keeps_none_of_another() {
        for (from, to) in NodeUse::ALL.into_iter().flat_map(|from| NodeUse::ALL.map(|to| (from, to))) {
            let first = with_card(&[]);
            let first = after(first.clone(), changes(&first, from, Mode::Kubevirt));
            let second = after(first.clone(), changes(&first, to, Mode::Kubevirt));
            let expected: BTreeSet<&str> = deploy_labels(to, Mode::Kubevirt, false).into_iter().collect();
            assert_eq!(deployed(&second), expected, "{from} to {to}");
            assert!(changes(&second, to, Mode::Kubevirt).is_empty(), "{from} to {to}: written twice");
        }
    }

    #[test]
    fn a_value_that_somebody_set_is_honoured_while_the_label_applies() {
        let paused = [("nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade")];
        let container = changes(&with_card(&paused), NodeUse::Container, Mode::Kubevirt);
        assert!(!container.contains_key("nvidia.com/gpu.deploy.device-plugin"));
        let passthrough = changes(&with_card(&paused), NodeUse::VmPassthrough, Mode::Kubevirt);
        assert_eq!(passthrough.get("nvidia.com/gpu.deploy.device-plugin"), Some(&None));
    }

    #[test]
    fn an_empty_value_counts_as_absent() {
        let empty = with_card(&[("nvidia.com/gpu.deploy.driver", "")]);
        let set = changes(&empty, NodeUse::Container, Mode::Kubevirt);
        assert_eq!(set.get("nvidia.com/gpu.deploy.driver"), Some(&Some("true".to_owned())));
    }

    #[test]
    fn without_a_card_or_with_operands_refused_all_known_labels_go_and_foreign_ones_stay() {
        let labels =
            [("nvidia.com/gpu.deploy.driver", "true"), ("nvidia.com/gpu.deploy.somebodys-own", "true")];
        let mut refused = with_card(&labels);
        refused.labels.insert(OPERANDS.to_owned(), "false".to_owned());
        for node in [node(&labels), refused] {
            let gone = changes(&node, NodeUse::Container, Mode::Kubevirt);
            assert_eq!(gone, LabelChanges::from([("nvidia.com/gpu.deploy.driver".to_owned(), None)]));
        }
    }

    #[test]
    fn row_16_a_node_whose_card_is_gone_gets_no_deploy_labels() {
        let gone = node(&[(PRESENT, "false")]);
        assert!(changes(&gone, NodeUse::Container, Mode::Kubevirt).is_empty());
    }

    #[test]
    fn mig_manager_comes_with_cards_that_can_be_sliced() {
        let mig = |labels: &[(&str, &str)]| {
            changes(&with_card(labels), NodeUse::Container, Mode::Kubevirt)
                .contains_key("nvidia.com/gpu.deploy.mig-manager")
        };
        assert!(mig(&[("nvidia.com/mig.capable", "true")]));
        assert!(mig(&[("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB")]));
        assert!(!mig(&[("nvidia.com/mig.capable", "false"), ("nvidia.com/gpu.product", "NVIDIA-H100")]));
        assert!(!mig(&[("nvidia.com/mig.capable", "true"), ("nvidia.com/vgpu.host-driver-version", "550")]));
        assert!(!mig(&[("nvidia.com/gpu.product", "Tesla-T4")]));
    }

    #[test]
    fn the_kata_mode_brings_its_own_plugin() {
        let kata = changes(&with_card(&[]), NodeUse::VmPassthrough, Mode::Kata);
        assert!(kata.contains_key("nvidia.com/gpu.deploy.kata-sandbox-device-plugin"));
        assert!(!kata.contains_key("nvidia.com/gpu.deploy.sandbox-device-plugin"));
    }
}
