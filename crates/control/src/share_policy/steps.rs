//! The next step on a node's way to what is decided.

use std::collections::BTreeMap;

use gpupool_core::node_use::NodeUse;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::{Amounts, Condition, Dimension, SharingDecision, SharingNode};

use super::view::CONDITIONS;
use super::{Marks, StatusChange};
use crate::cards::Cards;
use crate::observed::Node;
use crate::plan::{Cluster, Write, effective_use};

/// The next write for a node; nothing when all is as it should be, or while its pods are not known.
pub fn next(node: &Node, cluster: &Cluster) -> Option<Write> {
    let (view, load) = (&node.share, node.load.as_ref()?);
    if !view.is_concerned() {
        return None;
    }
    let cards = Pool::of(node);
    let unreserved = unreserved(node);
    let decision = SharingNode {
        label: view.label.as_deref(),
        qos: view.qos.as_deref(),
        in_force: &view.in_force(),
        node_use: effective_use(node, cluster).unwrap_or_default(),
        cards: cards.all,
        capacity: &view.capacity,
        allocatable: &unreserved,
        load,
        reserve: !cluster.no_reservation,
    }
    .decide();
    if is_still_offered(node) && view.shared_nothing() && decision.in_force.policy.shares() {
        // Pods would be placed on what is about to go, and turned away by the kubelet. Its next status brings us back.
        return None;
    }
    let marks = marks(node, &decision, &unreserved);
    if marks != view.marks {
        return Some(Write::Marks(marks));
    }
    status(node, &decision, &cards, &unreserved).map(Write::Share)
}

/// How many cards there are to share.
struct Pool {
    all: u32,
    healthy: u32,
}

impl Pool {
    fn of(node: &Node) -> Self {
        if let Some(found) = node.share.found_cards() {
            let count = |healthy: bool| found.iter().filter(|card| card.healthy || !healthy).count();
            let [all, healthy] =
                [false, true].map(|healthy| u32::try_from(count(healthy)).unwrap_or(u32::MAX));
            return Self { all, healthy };
        }
        let all = match &node.cards {
            Some(text) if !node.kubelet => {
                let offered = Cards::parse(text).map(|cards| cards.offered(NodeUse::Container));
                // What cannot be read is told by the node's other condition, and takes nothing away.
                offered.map_or(node.share.whole_cards, |names| names.into_values().sum())
            }
            _ => node.share.whole_cards,
        };
        Self { all, healthy: all }
    }
}

/// `allocatable` as it is without us: what stands there, unless we have lowered it.
fn unreserved(node: &Node) -> Amounts {
    let view = &node.share;
    let noted = view.marks.unreserved.as_deref().and_then(Amounts::parse).unwrap_or_default();
    let mut unreserved = view.allocatable.clone();
    for (one, amount) in noted.iter() {
        // On a node without a kubelet, what somebody else wrote over our amount is the new amount.
        if node.kubelet || node.own.allocatable.contains(one.resource()) {
            unreserved.set(one, amount);
        }
    }
    unreserved
}

/// The marks that the node should bear.
fn marks(node: &Node, decision: &SharingDecision, unreserved: &Amounts) -> Marks {
    let standing = &decision.in_force;
    let shares = standing.policy.shares();
    let reserves = shares && !standing.reserved.is_empty();
    let noted = if node.kubelet || !reserves {
        // The webhook notes it as the kubelet sends it; it goes with the status that gives back what was reserved.
        node.share.marks.unreserved.clone()
    } else {
        Some(unreserved.to_json())
    };
    Marks {
        policy: shares.then(|| standing.policy.value().to_owned()),
        qos: shares.then(|| standing.qos.to_json()),
        reserved: reserves.then(|| standing.reserved.to_json()),
        unreserved: noted,
    }
}

/// The status write, if the status is not like that already.
fn status(
    node: &Node,
    decision: &SharingDecision,
    cards: &Pool,
    unreserved: &Amounts,
) -> Option<StatusChange> {
    let view = &node.share;
    let shares = decision.in_force.policy.shares();
    let told = view.label.is_some() || shares;
    let conditions = if told { decision.conditions().map(Some) } else { [None, None] };
    let stands =
        |(wanted, (standing, kind)): (&Option<Condition>, (&Option<_>, &&str))| match (wanted, standing) {
            (Some(wanted), Some(standing)) => super::write::stands(wanted, standing),
            (Some(_), None) => false,
            // One that somebody else wrote would not go, however often it was left out.
            (None, standing) => standing.is_none() || !node.own.conditions.contains(*kind),
        };
    let conditions_stand = conditions.iter().zip(view.conditions.iter().zip(&CONDITIONS)).all(stands);
    let percentages = percentages(node, if shares { [cards.all, cards.healthy] } else { [0, 0] });
    let reserves = view.marks.reserved.is_some();
    let left = unreserved.without(&decision.in_force.reserved);
    let (allocatable, touch, give_back) = if reserves && node.kubelet {
        // The webhook does it, with whatever comes by.
        (Amounts::default(), left != view.allocatable || view.marks.unreserved.is_none(), false)
    } else if reserves {
        (changed(&view.allocatable, &left), false, false)
    } else {
        let noted = view.marks.unreserved.is_some();
        (if noted { changed(&view.allocatable, unreserved) } else { Amounts::default() }, false, noted)
    };
    let nothing = conditions_stand
        && percentages.iter().all(BTreeMap::is_empty)
        && allocatable.is_empty()
        && !touch
        && !give_back;
    // The sentence names pods, which come and go; it is in the condition, and one Event says where to look.
    let told_before = view.conditions[0].as_ref().map(|standing| &standing.reason[..]);
    let tell = decision.refusal.as_ref().is_some_and(|refusal| told_before != Some(refusal.word()));
    (!nothing).then_some(StatusChange { conditions, percentages, allocatable, give_back, tell })
}

fn changed(standing: &Amounts, wanted: &Amounts) -> Amounts {
    let mut changed = Amounts::default();
    for (one, amount) in wanted.iter().filter(|(one, amount)| standing.get(*one) != Some(*amount)) {
        changed.set(one, amount);
    }
    changed
}

/// Changes of the percentages, in capacity and in allocatable: an amount, or nothing for one that goes.
fn percentages(node: &Node, cards: [u32; 2]) -> [BTreeMap<String, Option<Quantity>>; 2] {
    let own = [&node.own.capacity, &node.own.allocatable];
    let advertises = !node.kubelet && node.cards.is_some();
    let mut changes = [BTreeMap::new(), BTreeMap::new()];
    for (at, standing) in node.share.percentages.iter().enumerate() {
        for resource in Dimension::ALL.map(Dimension::resource) {
            let stands = standing.get(resource).copied();
            let ours = own[at].contains(resource);
            let wanted = Quantity::whole_units(cards[at].saturating_mul(100));
            let wanted = (advertises && cards[0] > 0).then_some(wanted);
            let change = match (stands, wanted) {
                (None, Some(wanted)) => Some(Some(wanted)),
                (Some(stands), Some(wanted)) => (ours && stands != wanted).then_some(Some(wanted)),
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
fn is_still_offered(node: &Node) -> bool {
    node.kubelet && node.share.percentages[1].values().any(|amount| !amount.is_zero())
}

/// Whether nothing is left of a resource that was advertised.
fn is_spent(node: &Node, resource: &str) -> bool {
    node.share.percentages.iter().all(|list| list.get(resource).is_none_or(|amount| amount.is_zero()))
}
