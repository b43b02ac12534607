//! Which software a use brings to a node: the short list for people, and the operator's deploy labels.

use super::{ENABLE_FLAG, NodeUse};

/// What the operator's deploy labels begin with; each has the value `true`.
pub const DEPLOY_PREFIX: &str = "nvidia.com/gpu.deploy.";

/// `sandboxWorkloads.mode`: which runtime the virtual machines use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// `KubeVirt`, the operator's default.
    #[default]
    Kubevirt,
    /// Kata containers.
    Kata,
}

/// The operands that matter for a use, in the order in which they prepare a node.
pub fn short(node_use: NodeUse) -> &'static [&'static str] {
    match node_use {
        NodeUse::Container => &["datacenter-driver", "container-toolkit", "device-plugin", "dcgm-exporter"],
        NodeUse::VmPassthrough => &["vfio-manager", "sandbox-device-plugin"],
        NodeUse::VmVgpu => &["vgpu-manager", "vgpu-device-manager", "sandbox-device-plugin"],
    }
}

/// The five lines that say it all: a list per use, the use of an unlabelled node, the flag.
pub fn lines(operands: impl Fn(NodeUse) -> Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> =
        NodeUse::ALL.iter().map(|&node_use| format!("{node_use}={}", operands(node_use).join(","))).collect();
    lines.push(format!("NO_LABEL={}", NodeUse::default()));
    lines.push(format!("ENABLE_FLAG={ENABLE_FLAG}"));
    lines
}

/// The operator's deploy labels of a use, without [`DEPLOY_PREFIX`], as gpu-operator 26.7.0 sets them.
///
/// `mig_capable` matters for container nodes only.
pub fn deploy_labels(node_use: NodeUse, mode: Mode, mig_capable: bool) -> Vec<&'static str> {
    let mut labels = match (node_use, mode) {
        (NodeUse::Container, _) => vec![
            "driver",
            "gpu-feature-discovery",
            "container-toolkit",
            "device-plugin",
            "dcgm",
            "dcgm-exporter",
            "node-status-exporter",
            "operator-validator",
            "client",
        ],
        (NodeUse::VmPassthrough, Mode::Kubevirt) => {
            vec![
                "sandbox-device-plugin",
                "sandbox-validator",
                "vfio-manager",
                "kata-manager",
                "cc-manager",
                "client",
            ]
        }
        (NodeUse::VmPassthrough, Mode::Kata) => vec![
            "kata-sandbox-device-plugin",
            "sandbox-validator",
            "vfio-manager",
            "kata-manager",
            "cc-manager",
            "client",
        ],
        (NodeUse::VmVgpu, _) => vec![
            "sandbox-device-plugin",
            "vgpu-manager",
            "vgpu-device-manager",
            "sandbox-validator",
            "cc-manager",
            "client",
        ],
    };
    if node_use == NodeUse::Container && mig_capable {
        labels.push("mig-manager");
    }
    labels
}

/// Whether a deploy label brings a pod to the node. The operator sets some labels whose component it never starts
/// in this mode, each silently.
pub fn is_deployed(label: &str, mode: Mode) -> bool {
    match label {
        "kata-manager" => false,
        "cc-manager" | "kata-sandbox-device-plugin" => mode == Mode::Kata,
        "sandbox-device-plugin" => mode == Mode::Kubevirt,
        _ => true,
    }
}
