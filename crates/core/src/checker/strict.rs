//! The strict rules: one `nvidia.com/` resource on a node, of exactly the kind that the label names.

use super::{Advert, Mismatch, belongs};
use crate::names::classify;
use crate::node_use::NodeUse;
use crate::quantity::Quantity;

/// Judges what a node advertises, which is at least one resource.
pub(super) fn judge(node_use: NodeUse, advertised: &[(&str, Quantity)]) -> Option<Mismatch> {
    match advertised {
        [(name, _)] if belongs(classify(name), node_use) => None,
        [one] => Some(Mismatch::WrongKind { node_use, found: Advert::list(&[*one]) }),
        several => Some(Mismatch::Several { node_use, found: Advert::list(several) }),
    }
}
