//! Which names a node without a kubelet gets from this controller, and in which order they change.
//!
//! Pure arithmetic on names. What is somebody else's is never written, neither its name nor its amount, and
//! capacity and allocatable are treated separately, as somebody may have written only one of them.

use std::collections::BTreeSet;

use gpupool_core::names::classify;
use gpupool_core::node_use::NodeUse;

use super::observed::ObservedNode;
use super::resource_amounts::ResourceAmounts;

/// What this controller's part of a node's status should be after the next write.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Advertisement {
    /// Its part of `status.capacity`.
    pub capacity: ResourceAmounts,
    /// Its part of `status.allocatable`.
    pub allocatable: ResourceAmounts,
    /// How much of what is wanted it is.
    pub stage: AdvertisementStage,
}

/// How much of what is wanted a node advertises after the next write.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum AdvertisementStage {
    /// All of it.
    #[default]
    Complete,
    /// Names that are no longer wanted go; nothing comes in the same write.
    Withdrawing {
        /// What is withdrawn.
        gone: BTreeSet<String>,
        /// What follows in the next write.
        next: BTreeSet<String>,
    },
    /// Nothing is added while names of other writers are on the node.
    Blocked {
        /// Those names.
        by: BTreeSet<String>,
    },
}

impl Advertisement {
    /// What a node advertises of ours at this moment.
    pub fn current(node: &ObservedNode) -> Self {
        let own = |amounts: &ResourceAmounts, names: &BTreeSet<String>| {
            let own = amounts.iter().filter(|(name, _)| names.contains(*name));
            own.map(|(name, amount)| (name.clone(), *amount)).collect()
        };
        Self {
            capacity: own(&node.capacity, &node.own.capacity),
            allocatable: own(&node.allocatable, &node.own.allocatable),
            stage: AdvertisementStage::Complete,
        }
    }

    /// The next step from what the node advertises now to what is wanted.
    pub fn next(node: &ObservedNode, wanted: &ResourceAmounts) -> Self {
        let current = Self::current(node);
        let gone: BTreeSet<String> =
            current.names().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        if !gone.is_empty() {
            let mut kept = current;
            kept.capacity.retain(|name, _| !gone.contains(name));
            kept.allocatable.retain(|name, _| !gone.contains(name));
            let left: BTreeSet<&String> = kept.names().collect();
            let next = wanted.keys().filter(|name| !left.contains(name)).cloned().collect();
            return Self { stage: AdvertisementStage::Withdrawing { gone, next }, ..kept };
        }
        let target = Self {
            capacity: without(wanted, &foreign(&node.capacity, &node.own.capacity)),
            allocatable: without(wanted, &foreign(&node.allocatable, &node.own.allocatable)),
            stage: AdvertisementStage::Complete,
        };
        let adds = target.capacity.keys().any(|name| !current.capacity.contains_key(name))
            || target.allocatable.keys().any(|name| !current.allocatable.contains_key(name));
        let by = blockers(node, wanted);
        if adds && !by.is_empty() {
            return Self { stage: AdvertisementStage::Blocked { by }, ..current };
        }
        target
    }

    /// Every name in it.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.capacity.keys().chain(self.allocatable.keys())
    }

    /// Whether the node's status has exactly this of ours.
    pub fn is_current(&self, node: &ObservedNode) -> bool {
        let current = Self::current(node);
        current.capacity == self.capacity && current.allocatable == self.allocatable
    }
}

/// Names in one of the two lists that another writer owns, also where their amount is zero.
fn foreign(amounts: &ResourceAmounts, own: &BTreeSet<String>) -> BTreeSet<String> {
    amounts.keys().filter(|name| !own.contains(*name)).cloned().collect()
}

/// Names of GPUs, not ours and not wanted, that the node has more than none of.
fn blockers(node: &ObservedNode, wanted: &ResourceAmounts) -> BTreeSet<String> {
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

fn without(wanted: &ResourceAmounts, names: &BTreeSet<String>) -> ResourceAmounts {
    let left = wanted.iter().filter(|(name, _)| !names.contains(*name));
    left.map(|(name, amount)| (name.clone(), *amount)).collect()
}
