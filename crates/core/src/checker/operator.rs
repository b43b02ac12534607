//! The rules for real fleets: what healthy nodes under the GPU Operator show is no mismatch.
//!
//! - `container`: `nvidia.com/gpu`, shared names and MIG slices, in any mix.
//! - `vm-passthrough`: any models, with the audio and USB functions and the switches that were bound along with them.
//! - `vm-vgpu`: any profiles; if `nvidia.com/vgpu.config` names one, it is that one.
//! - What is no GPU workload resource counts for nothing, and is warned of.

use super::warning::missing_profile;
use super::{Advert, JudgedNode, Mismatch, Warning};
use crate::names::{ResourceKind, classify};
use crate::node_use::NodeUse;
use crate::quantity::Quantity;

/// Judges what a node advertises, which is at least one resource.
pub(super) fn judge(
    node_use: NodeUse,
    node: JudgedNode<'_>,
    advertised: &[(&str, Quantity)],
    warnings: &mut Vec<Warning>,
) -> Option<Mismatch> {
    let wrong: Vec<_> = of(advertised, |kind| place(kind, node_use) == Place::Wrong);
    let right: Vec<_> = of(advertised, |kind| place(kind, node_use) == Place::Right);
    let ignored = of(advertised, |kind| place(kind, node_use) == Place::Ignored);
    warnings.extend(ignored.iter().map(|&advert| Warning::NoWorkload(Advert::of(advert))));
    if !wrong.is_empty() {
        return Some(Mismatch::WrongKind { node_use, found: Advert::list(&wrong) });
    }
    if right.is_empty() {
        return Some(Mismatch::OnlyCompanions { node_use, found: Advert::list(advertised) });
    }
    if node_use == NodeUse::VmVgpu {
        if let Some(config) = missing_profile(node, advertised) {
            return Some(Mismatch::OtherProfile { config, found: Advert::list(&right) });
        }
        if right.len() > 1 {
            warnings.push(Warning::SeveralProfiles(Advert::list(&right)));
        }
    }
    None
}

fn of<'a>(
    advertised: &[(&'a str, Quantity)],
    select: impl Fn(ResourceKind) -> bool,
) -> Vec<(&'a str, Quantity)> {
    advertised.iter().copied().filter(|(name, _)| select(classify(name))).collect()
}

/// Where a kind stands on a node of some use.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    /// What the node is for.
    Right,
    /// Comes along with what the node is for.
    Along,
    /// Says nothing about GPU workloads.
    Ignored,
    /// Belongs to another use.
    Wrong,
}

fn place(kind: ResourceKind, node_use: NodeUse) -> Place {
    match (kind, node_use) {
        (ResourceKind::Companion | ResourceKind::Fabric, NodeUse::VmPassthrough) => Place::Along,
        // A sound function bound by hand on a container node harms nobody.
        (ResourceKind::Other, _) | (ResourceKind::Companion, NodeUse::Container) => Place::Ignored,
        _ if NodeUse::advertising(kind) == Some(node_use) => Place::Right,
        _ => Place::Wrong,
    }
}
