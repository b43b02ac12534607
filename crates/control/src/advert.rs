//! Which names a node without a kubelet gets from this controller, and in which order they change.
//!
//! Pure arithmetic on names. What is somebody else's is never written, neither its name nor its amount, and
//! capacity and allocatable are looked at separately, as somebody may have written only one of them.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::names::classify;
use gpupool_core::node_use::NodeUse;
use gpupool_core::quantity::Quantity;

use crate::observed::Node;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// What this controller's part of a node's status should be after the next write.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Advert {
    /// Its part of `status.capacity`.
    pub capacity: Amounts,
    /// Its part of `status.allocatable`.
    pub allocatable: Amounts,
    /// Where on the way to what is wanted that is.
    pub stage: Stage,
}

/// How far the names are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Stage {
    /// All that is wanted.
    #[default]
    Arrived,
    /// Names that are no longer wanted go; nothing comes in the same write.
    Withdrawing {
        /// What goes.
        gone: BTreeSet<String>,
        /// What follows in the next write.
        next: BTreeSet<String>,
    },
    /// Nothing is added while names of others stand on the node.
    Blocked {
        /// Those names.
        by: BTreeSet<String>,
    },
}

impl Advert {
    /// What a node advertises of ours at this moment.
    pub fn standing(node: &Node) -> Self {
        let own = |amounts: &Amounts, names: &BTreeSet<String>| {
            let own = amounts.iter().filter(|(name, _)| names.contains(*name));
            own.map(|(name, amount)| (name.clone(), *amount)).collect()
        };
        Self {
            capacity: own(&node.capacity, &node.own.capacity),
            allocatable: own(&node.allocatable, &node.own.allocatable),
            stage: Stage::Arrived,
        }
    }

    /// The next step from what stands on the node to what is wanted there.
    pub fn towards(node: &Node, wanted: &Amounts) -> Self {
        let standing = Self::standing(node);
        let gone: BTreeSet<String> =
            standing.names().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        if !gone.is_empty() {
            let mut kept = standing;
            kept.capacity.retain(|name, _| !gone.contains(name));
            kept.allocatable.retain(|name, _| !gone.contains(name));
            let left: BTreeSet<&String> = kept.names().collect();
            let next = wanted.keys().filter(|name| !left.contains(name)).cloned().collect();
            return Self { stage: Stage::Withdrawing { gone, next }, ..kept };
        }
        let target = Self {
            capacity: without(wanted, &foreign(&node.capacity, &node.own.capacity)),
            allocatable: without(wanted, &foreign(&node.allocatable, &node.own.allocatable)),
            stage: Stage::Arrived,
        };
        let adds = target.capacity.keys().any(|name| !standing.capacity.contains_key(name))
            || target.allocatable.keys().any(|name| !standing.allocatable.contains_key(name));
        let by = blockers(node, wanted);
        if adds && !by.is_empty() {
            return Self { stage: Stage::Blocked { by }, ..standing };
        }
        target
    }

    /// Every name in it.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.capacity.keys().chain(self.allocatable.keys())
    }

    /// Whether the node's status has exactly this of ours.
    pub fn stands(&self, node: &Node) -> bool {
        let standing = Self::standing(node);
        standing.capacity == self.capacity && standing.allocatable == self.allocatable
    }
}

/// Names that stand in one of the two lists and are not ours; a zero of somebody else's is his, too.
fn foreign(amounts: &Amounts, own: &BTreeSet<String>) -> BTreeSet<String> {
    amounts.keys().filter(|name| !own.contains(*name)).cloned().collect()
}

/// Names of GPUs, not ours and not wanted, that the node has more than none of.
fn blockers(node: &Node, wanted: &Amounts) -> BTreeSet<String> {
    let lists = [(&node.capacity, &node.own.capacity), (&node.allocatable, &node.own.allocatable)];
    let others = lists.into_iter().flat_map(|(amounts, own)| {
        amounts
            .iter()
            .filter(|(name, amount)| !own.contains(*name) && !amount.is_zero())
            .map(|(name, _)| name)
    });
    let in_the_way =
        |name: &&String| !wanted.contains_key(*name) && NodeUse::advertising(classify(name)).is_some();
    others.filter(in_the_way).cloned().collect()
}

fn without(wanted: &Amounts, names: &BTreeSet<String>) -> Amounts {
    let left = wanted.iter().filter(|(name, _)| !names.contains(*name));
    left.map(|(name, amount)| (name.clone(), *amount)).collect()
}
