//! What a node is for: the decision that the GPU Operator takes from a label, a flag and a default.
//!
//! The rule is `getWorkloadConfig` of gpu-operator 26.7.0: matching is exact and case-sensitive, and the label is
//! not read at all while the flag is off. Where the operator stays silent, the decision here carries a finding.

pub mod operands;

use std::fmt;
use std::str::FromStr;

use crate::names::{ResourceKind, nearest::nearest};
use crate::one_line::one_line;

/// The label that says what a node is for.
pub const LABEL: &str = "nvidia.com/gpu.workload.config";

/// The field of `ClusterPolicy` without which the label is not read.
pub const ENABLE_FLAG: &str = "sandboxWorkloads.enabled";

/// What a node is for.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum NodeUse {
    /// Containers: the data centre driver and the container device plugin.
    #[default]
    Container,
    /// Virtual machines that get whole cards.
    VmPassthrough,
    /// Virtual machines that get vGPUs.
    VmVgpu,
}

/// A label value that is none of the three.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" is none of container, vm-passthrough and vm-vgpu")]
pub struct UnknownUse(pub String);

impl NodeUse {
    /// Every use, in the order in which they are listed to users.
    pub const ALL: [Self; 3] = [Self::Container, Self::VmPassthrough, Self::VmVgpu];

    /// The label value.
    pub fn value(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::VmPassthrough => "vm-passthrough",
            Self::VmVgpu => "vm-vgpu",
        }
    }

    /// What a node of this use should advertise, as part of a sentence.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Container => "nvidia.com/gpu",
            Self::VmPassthrough => "one passthrough model such as nvidia.com/GA102GL_A10",
            Self::VmVgpu => "one vGPU profile such as nvidia.com/NVIDIA_A10-12Q",
        }
    }

    /// The use whose nodes advertise names of this kind; nothing for what is no GPU workload.
    pub fn advertising(kind: ResourceKind) -> Option<Self> {
        match kind {
            ResourceKind::Container | ResourceKind::Shared | ResourceKind::Mig => Some(Self::Container),
            ResourceKind::Passthrough => Some(Self::VmPassthrough),
            ResourceKind::Vgpu => Some(Self::VmVgpu),
            ResourceKind::Companion | ResourceKind::Fabric | ResourceKind::Other => None,
        }
    }

    /// The use that a mistyped value is nearest to, if it is near to one.
    pub fn nearest_to(value: &str) -> Option<Self> {
        let nearest = nearest(value, Self::ALL.map(Self::value), 1);
        nearest.first().and_then(|value| value.parse().ok())
    }
}

impl fmt::Display for NodeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value())
    }
}

impl FromStr for NodeUse {
    type Err = UnknownUse;

    fn from_str(value: &str) -> Result<Self, UnknownUse> {
        let known = Self::ALL.into_iter().find(|known| known.value() == value);
        known.ok_or_else(|| UnknownUse(one_line(value, 63)))
    }
}

/// The cluster's side of the decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorSettings<'a> {
    /// Whether sandbox workloads are enabled. Off by default, and then no label is read.
    pub enabled: bool,
    /// `sandboxWorkloads.defaultWorkload`: what unlabelled nodes are for. `container` where it is not set.
    pub default_workload: Option<&'a str>,
}

/// The node's side of the decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeLabels<'a> {
    /// Whether `nvidia.com/gpu.present` is `true`.
    pub gpu_present: bool,
    /// The value of [`LABEL`]; an empty value is not the same as none.
    pub workload: Option<&'a str>,
}

/// What a node is for, and what was found on the way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UseDecision {
    /// The use that takes effect.
    pub effective: NodeUse,
    /// What somebody should hear about the label, if anything.
    pub finding: Option<Finding>,
    /// The configured default, where it is none of the three and `container` was taken in its place.
    pub bad_default: Option<UnknownUse>,
}

/// Something about a node's label that its owner should hear.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Finding {
    /// The label asks for something that does not happen.
    #[error(
        "label {LABEL} is \"{asked}\" but not read: set {ENABLE_FLAG} to true; until then the node is for containers"
    )]
    NotRead {
        /// The label's value.
        asked: String,
    },
    /// The flag is on and the node says nothing.
    #[error("no label {LABEL}: the default, {taken}, applies; label the node with what it is for")]
    NoLabel {
        /// The default that applies.
        taken: NodeUse,
    },
    /// A typo, an empty value or wrong case.
    #[error("label {LABEL}: {value}; the default, {taken}, applies")]
    Invalid {
        /// The label's value.
        value: UnknownUse,
        /// The default that applies.
        taken: NodeUse,
    },
}

impl Finding {
    /// What the operator itself writes in its log, at level info, for the same finding. Nothing where it is silent.
    pub fn operator_log(&self) -> Option<String> {
        match self {
            Self::NotRead { .. } => None,
            Self::NoLabel { .. } => Some("no GPU workload config found".to_owned()),
            Self::Invalid { value, .. } => Some(format!("invalid GPU workload config: {}", value.0)),
        }
    }
}

/// What a node is for. Nothing for a node without a GPU, which gets no operands at all.
pub fn decide(settings: OperatorSettings<'_>, node: NodeLabels<'_>) -> Option<UseDecision> {
    if !node.gpu_present {
        return None;
    }
    if !settings.enabled {
        let asked = node.workload.filter(|&value| value != NodeUse::Container.value());
        let finding = asked.map(|value| Finding::NotRead { asked: one_line(value, 63) });
        return Some(UseDecision { effective: NodeUse::Container, finding, bad_default: None });
    }
    let (taken, bad_default) = match settings.default_workload.map(str::parse) {
        None => (NodeUse::default(), None),
        Some(Ok(default)) => (default, None),
        Some(Err(error)) => (NodeUse::default(), Some(error)),
    };
    let (effective, finding) = match node.workload.map(str::parse) {
        Some(Ok(labelled)) => (labelled, None),
        None => (taken, Some(Finding::NoLabel { taken })),
        Some(Err(value)) => (taken, Some(Finding::Invalid { value, taken })),
    };
    Some(UseDecision { effective, finding, bad_default })
}
