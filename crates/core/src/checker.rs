//! The checker: does a node advertise what its label says it is for?
//!
//! It judges the label, from what the node's object says and nothing else; whether the operator reads that label is
//! another question ([`crate::node_use::decide`]). Only nodes that carry the label are judged.
//!
//! This room gets facts and gives verdicts. It knows neither files nor formats.

mod finding;
mod operator;
mod strict;
mod warning;

pub use finding::{Advert, Code, Mismatch};
pub use warning::Warning;

use crate::names::{self, ResourceKind};
use crate::node_use::NodeUse;
use crate::one_line::one_line;
use crate::quantity::Quantity;

/// The label that names the vGPU profile which the device manager should make.
pub const VGPU_CONFIG_LABEL: &str = "nvidia.com/vgpu.config";

/// How strictly nodes are judged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rules {
    /// One resource a node, of exactly the kind that the label names.
    #[default]
    Strict,
    /// What healthy nodes under the GPU Operator really show: MIG slices, shared names, companion functions of a
    /// card, several models or profiles of one kind.
    Operator,
}

/// What the checker looks at in a node. Resources are those under `nvidia.com/`, in any order, zeros included.
#[derive(Clone, Copy, Debug, Default)]
pub struct JudgedNode<'a> {
    /// The value of [`crate::node_use::LABEL`]; nothing where the node does not carry it.
    pub label: Option<&'a str>,
    /// The value of [`VGPU_CONFIG_LABEL`].
    pub vgpu_config: Option<&'a str>,
    /// `status.allocatable`; nothing where the node has none at all.
    pub allocatable: Option<&'a [(&'a str, Quantity)]>,
    /// `status.capacity`; nothing where the node has none at all, or it is unknown.
    pub capacity: Option<&'a [(&'a str, Quantity)]>,
}

/// What came out for one node that carries the label.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Judgement {
    /// Why the node does not advertise what its label says; nothing if it does.
    pub mismatch: Option<Mismatch>,
    /// What is odd about it without being wrong.
    pub warnings: Vec<Warning>,
}

/// Judges a node. Nothing for a node that does not carry the label.
pub fn judge(rules: Rules, node: JudgedNode<'_>) -> Option<Judgement> {
    let label = node.label?;
    let advertised = advertised(node);
    let mut warnings = warning::about(node, &advertised);
    let mismatch = match label.parse::<NodeUse>() {
        Ok(node_use) if advertised.is_empty() => Some(nothing(node_use, node)),
        Ok(node_use) => match rules {
            Rules::Strict => {
                let config = warning::missing_profile(node, &advertised);
                warnings.extend(config.map(|config| Warning::OtherProfile { config }));
                strict::judge(node_use, &advertised)
            }
            Rules::Operator => operator::judge(node_use, node, &advertised, &mut warnings),
        },
        Err(_) if label.is_empty() => Some(Mismatch::EmptyLabel),
        Err(_) => {
            Some(Mismatch::UnknownLabel { value: one_line(label, 63), nearest: NodeUse::nearest_to(label) })
        }
    };
    Some(Judgement { mismatch, warnings })
}

/// What a node advertises: the resources under `nvidia.com/` that are not zero in `allocatable`, or in `capacity`
/// where a node has no `allocatable` at all; in name order.
pub fn advertised(node: JudgedNode<'_>) -> Vec<(&str, Quantity)> {
    let counted = node.allocatable.or(node.capacity).unwrap_or_default();
    nonzero(counted)
}

fn nonzero<'a>(resources: &[(&'a str, Quantity)]) -> Vec<(&'a str, Quantity)> {
    let mut found: Vec<_> = resources
        .iter()
        .copied()
        .filter(|(name, quantity)| name.starts_with(names::DOMAIN) && !quantity.is_zero())
        .collect();
    found.sort_unstable();
    found
}

/// Nothing is advertised. What stands in `capacity` only tells that a plugin was there.
fn nothing(node_use: NodeUse, node: JudgedNode<'_>) -> Mismatch {
    let stale = node.allocatable.and(node.capacity).map(nonzero).unwrap_or_default();
    Mismatch::Nothing { node_use, stale: Advert::list(&stale) }
}

/// Whether a kind belongs on a node of this use, strictly taken.
fn belongs(kind: ResourceKind, node_use: NodeUse) -> bool {
    matches!(
        (kind, node_use),
        (ResourceKind::Container, NodeUse::Container)
            | (ResourceKind::Passthrough, NodeUse::VmPassthrough)
            | (ResourceKind::Vgpu, NodeUse::VmVgpu)
    )
}
