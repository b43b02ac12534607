//! The share policy of nodes: the next write on the way to what is decided.
//!
//! Pure. The decision itself is `gpupool_core::sharing`'s; this room takes a node and its load apart for it, and turns
//! what comes out into writes, one at a time:
//!
//! 1. the metadata: label and annotations with the policy in force, its quality of service, what is reserved, and what
//!    `allocatable` is without that;
//! 2. the status: the two conditions; on nodes without a kubelet the percentages and what is left of `allocatable`.
//!
//! Where a kubelet runs, it writes `allocatable` itself, and a webhook subtracts what the metadata says whenever a status
//! is written; the second write is then what makes it act at once.

use std::collections::BTreeMap;

use gpupool_core::node_use::NodeUse;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::{Amounts, Condition, Dimension, SharingDecision, SharingNode};

use super::cards_annotation::OfferedResources;
use super::node_write::{NodeWrite, SharingStatusChange};
use super::observed::{CONDITIONS, ObservedCondition, ObservedNode, SharingMetadata};

/// The next write for a node whose effective use is `node_use`; nothing when all is as it should be, or while its pods
/// are not known. `reserve`: whether cpu, memory and ephemeral storage are kept back for gpupool.
pub(super) fn next(node: &ObservedNode, node_use: NodeUse, reserve: bool) -> Option<NodeWrite> {
    let (view, load) = (&node.sharing, node.load.as_ref()?);
    if !view.is_concerned() {
        return None;
    }
    let cards = CardCounts::of(node);
    let unreserved = unreserved(node);
    let decision = SharingNode {
        label: view.label.as_deref(),
        qos: view.qos.as_deref(),
        in_force: &view.in_force(),
        node_use,
        cards: cards.all,
        capacity: &view.capacity,
        allocatable: &unreserved,
        load,
        reserve,
    }
    .decide();
    if is_still_offered(node) && view.shared_nothing() && decision.in_force.policy.shares() {
        // Pods would be placed on what is about to go, and turned away by the kubelet. Its next status brings us back.
        return None;
    }
    let metadata = metadata(node, &decision, &unreserved);
    if metadata != view.metadata {
        return Some(NodeWrite::SharingMetadata(metadata));
    }
    status(node, &decision, &cards, &unreserved).map(NodeWrite::SharingStatus)
}

/// How many cards there are to share.
struct CardCounts {
    all: u32,
    /// Of them, those that work.
    healthy: u32,
}

impl CardCounts {
    fn of(node: &ObservedNode) -> Self {
        if let Some(found) = node.sharing.found_cards() {
            let count = |healthy: bool| found.iter().filter(|card| card.healthy || !healthy).count();
            let [all, healthy] =
                [false, true].map(|healthy| u32::try_from(count(healthy)).unwrap_or(u32::MAX));
            return Self { all, healthy };
        }
        let all = match &node.cards {
            Some(text) if !node.kubelet => {
                let offered = OfferedResources::parse(text).map(|cards| cards.offered(NodeUse::Container));
                // Condition GPUNodeUseValid says that it cannot be read; until then the node keeps what it has.
                offered.map_or(node.sharing.whole_cards, |names| names.into_values().sum())
            }
            _ => node.sharing.whole_cards,
        };
        Self { all, healthy: all }
    }
}

/// `allocatable` without the reservation: as it is, except for amounts that gpupool has lowered.
fn unreserved(node: &ObservedNode) -> Amounts {
    let view = &node.sharing;
    let noted = view.metadata.unreserved.as_deref().and_then(Amounts::parse).unwrap_or_default();
    let mut unreserved = view.allocatable.clone();
    for (one, amount) in noted.iter() {
        // On a node without a kubelet, what somebody else wrote over our amount is the new amount.
        if node.kubelet || node.own.allocatable.contains(one.resource()) {
            unreserved.set(one, amount);
        }
    }
    unreserved
}

/// The label and annotations that the node should have.
fn metadata(node: &ObservedNode, decision: &SharingDecision, unreserved: &Amounts) -> SharingMetadata {
    let in_force = &decision.in_force;
    let shares = in_force.policy.shares();
    let reserves = shares && !in_force.reserved.is_empty();
    let noted = if node.kubelet || !reserves {
        // The webhook writes it as the kubelet sends it; the status write that gives back the reservation removes it.
        node.sharing.metadata.unreserved.clone()
    } else {
        Some(unreserved.to_json())
    };
    SharingMetadata {
        policy: shares.then(|| in_force.policy.value().to_owned()),
        qos: shares.then(|| in_force.qos.to_json()),
        reserved: reserves.then(|| in_force.reserved.to_json()),
        unreserved: noted,
    }
}

/// The status write, if the status is not like that already.
fn status(
    node: &ObservedNode,
    decision: &SharingDecision,
    cards: &CardCounts,
    unreserved: &Amounts,
) -> Option<SharingStatusChange> {
    let view = &node.sharing;
    let shares = decision.in_force.policy.shares();
    let has_conditions = view.label.is_some() || shares;
    let conditions = if has_conditions { decision.conditions().map(Some) } else { [None, None] };
    let is_written =
        |(wanted, (current, kind)): (&Option<Condition>, (&Option<_>, &&str))| match (wanted, current) {
            (Some(wanted), Some(current)) => ObservedCondition::says(current, wanted),
            (Some(_), None) => false,
            // One that somebody else wrote would not go, however often it was left out.
            (None, current) => current.is_none() || !node.own.conditions.contains(*kind),
        };
    let conditions_written = conditions.iter().zip(view.conditions.iter().zip(&CONDITIONS)).all(is_written);
    let percentages = percentages(node, if shares { [cards.all, cards.healthy] } else { [0, 0] });
    let reserves = view.metadata.reserved.is_some();
    let left = unreserved.without(&decision.in_force.reserved);
    let (allocatable, touch, give_back) = if reserves && node.kubelet {
        // The webhook does it, with whatever comes by.
        (Amounts::default(), left != view.allocatable || view.metadata.unreserved.is_none(), false)
    } else if reserves {
        (changed(&view.allocatable, &left), false, false)
    } else {
        let noted = view.metadata.unreserved.is_some();
        (if noted { changed(&view.allocatable, unreserved) } else { Amounts::default() }, false, noted)
    };
    let nothing = conditions_written
        && percentages.iter().all(BTreeMap::is_empty)
        && allocatable.is_empty()
        && !touch
        && !give_back;
    // The message names pods, which come and go, and is in the condition; one Event per reason is enough.
    let reason_before = view.conditions[0].as_ref().map(|valid| &valid.reason[..]);
    let emit_event = decision.refusal.as_ref().is_some_and(|refusal| reason_before != Some(refusal.word()));
    (!nothing).then_some(SharingStatusChange { conditions, percentages, allocatable, give_back, emit_event })
}

fn changed(current: &Amounts, wanted: &Amounts) -> Amounts {
    let mut changed = Amounts::default();
    for (one, amount) in wanted.iter().filter(|(one, amount)| current.get(*one) != Some(*amount)) {
        changed.set(one, amount);
    }
    changed
}

/// Changes of the percentages, in capacity and in allocatable: an amount, `None` removes one.
fn percentages(node: &ObservedNode, cards: [u32; 2]) -> [BTreeMap<String, Option<Quantity>>; 2] {
    let own = [&node.own.capacity, &node.own.allocatable];
    let advertises = !node.kubelet && node.cards.is_some();
    let mut changes = [BTreeMap::new(), BTreeMap::new()];
    for (at, current) in node.sharing.percentages.iter().enumerate() {
        for resource in Dimension::ALL.map(Dimension::resource) {
            let present = current.get(resource).copied();
            let ours = own[at].contains(resource);
            let wanted = Quantity::whole_units(cards[at].saturating_mul(100));
            let wanted = (advertises && cards[0] > 0).then_some(wanted);
            let change = match (present, wanted) {
                (None, Some(wanted)) => Some(Some(wanted)),
                (Some(present), Some(wanted)) => (ours && present != wanted).then_some(Some(wanted)),
                (Some(_), None) if ours => Some(None),
                // A kubelet leaves a zero behind when the plugin has gone; nobody else takes it away.
                (Some(_), None) if node.kubelet && cards[0] == 0 && is_spent(node, resource) => Some(None),
                _ => None,
            };
            if let Some(change) = change {
                changes[at].insert(resource.to_owned(), change);
            }
        }
    }
    changes
}

/// Whether a kubelet still offers what was shared until a moment ago.
fn is_still_offered(node: &ObservedNode) -> bool {
    node.kubelet && node.sharing.percentages[1].values().any(|amount| !amount.is_zero())
}

/// Whether nothing is left of a resource that was advertised.
fn is_spent(node: &ObservedNode, resource: &str) -> bool {
    node.sharing.percentages.iter().all(|list| list.get(resource).is_none_or(|amount| amount.is_zero()))
}
