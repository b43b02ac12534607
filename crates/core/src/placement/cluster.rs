//! The nodes and pods that placement depends on, as last seen, and the picks that the watch does not show yet.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::pool::CardUuid;

use crate::sharing::Policy;

use super::room::{self, Card, Room};
use super::{Demand, Unfit};

/// A node, as far as placement depends on it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PlacementNode {
    /// The share policy in force.
    pub policy: Policy,
    /// The cards, once its agent has named them.
    pub cards: Option<Vec<Card>>,
}

/// A pod that has a node and has not finished.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlacementPod {
    /// `spec.nodeName`.
    pub node: String,
    /// What it wants of GPUs.
    pub demand: Demand,
    /// The card that was chosen for it.
    pub card: Option<CardUuid>,
}

#[derive(Debug, Default)]
struct NodeRecord {
    /// Nothing before it was seen and after it has gone: pods may be known of before and longer.
    facts: Option<PlacementNode>,
    /// Uids of the pods on it, in an order that does not change.
    pods: BTreeSet<String>,
    rooms: Vec<Room>,
    /// Percent of computing time that its shared pods may use at most, all together.
    promised: u32,
}

/// The nodes and pods of a cluster as last seen, and the placements that are decided and not yet seen.
#[derive(Debug, Default)]
pub struct Cluster {
    nodes: HashMap<String, NodeRecord>,
    /// By uid.
    pods: HashMap<String, PlacementPod>,
    /// Uids of pods in `pods` that were placed here and not yet seen where they were placed.
    assumed: HashSet<String>,
}

impl Cluster {
    /// A node is new or has changed: `facts` replaces what was known of it.
    pub fn node_seen(&mut self, name: &str, facts: PlacementNode) {
        self.nodes.entry(name.to_owned()).or_default().facts = Some(facts);
        self.reckon(name);
    }

    /// A node is gone. Its pods, if they still exist, are told of on their own.
    pub fn node_gone(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.facts = None;
        if node.pods.is_empty() {
            self.nodes.remove(name);
        } else {
            self.reckon(name);
        }
    }

    /// A pod was seen: where it is, or nothing if it has no node. That it has no node yet says
    /// nothing about a pick of a moment ago, which such news may be older than.
    pub fn pod_seen(&mut self, uid: &str, facts: Option<PlacementPod>) {
        match facts {
            Some(facts) => {
                self.assumed.remove(uid);
                self.put(uid, facts);
            }
            None if self.assumed.contains(uid) => {}
            None => self.take_out(uid),
        }
    }

    /// A pod is gone or has finished.
    pub fn pod_gone(&mut self, uid: &str) {
        self.assumed.remove(uid);
        self.take_out(uid);
    }

    /// Exactly these nodes and pods exist; picks that were not seen yet stay.
    pub fn keep_only(&mut self, nodes: Option<&HashSet<String>>, pods: Option<&HashSet<String>>) {
        if let Some(nodes) = nodes {
            let gone: Vec<String> =
                self.nodes.keys().filter(|name| !nodes.contains(*name)).cloned().collect();
            for name in gone {
                self.node_gone(&name);
            }
        }
        if let Some(pods) = pods {
            let gone = |uid: &&String| !pods.contains(*uid) && !self.assumed.contains(*uid);
            let gone: Vec<String> = self.pods.keys().filter(gone).cloned().collect();
            for uid in gone {
                self.pod_gone(&uid);
            }
        }
    }

    /// What `ask` finds as if the pick for this pod, if there is one that was not seen yet, had not been made. It stays
    /// made: who asks may be anybody.
    pub fn without_pick<T>(&mut self, uid: &str, ask: impl FnOnce(&Self) -> T) -> T {
        let pick = self.assumed.contains(uid).then(|| self.pods.get(uid).cloned()).flatten();
        if pick.is_some() {
            self.take_out(uid);
        }
        let found = ask(self);
        if let Some(pick) = pick {
            self.put(uid, pick);
        }
        found
    }

    /// A pod that was placed here before and never seen there is to be placed again: that came to nothing. Whoever says so
    /// has seen that the pod has no node.
    pub fn sought(&mut self, uid: &str) {
        if self.assumed.remove(uid) {
            self.take_out(uid);
        }
    }

    /// A pod is about to be bound to a node and card: counted from now on.
    pub fn assume(&mut self, uid: &str, facts: PlacementPod) {
        self.assumed.insert(uid.to_owned());
        self.put(uid, facts);
    }

    /// Whether a pod may go to a node.
    pub fn fits(&self, demand: Demand, node: &str) -> Result<(), Unfit> {
        let (node, facts) = self.seen(node)?;
        match demand {
            Demand::Exclusive if facts.policy.shares() => Err(Unfit::Shares { in_force: facts.policy }),
            Demand::Shared { policy, .. } if !facts.policy.shares() => {
                Err(Unfit::NotShared { wanted: policy })
            }
            Demand::Shared { policy, .. } if policy != facts.policy => {
                Err(Unfit::OtherPolicy { in_force: facts.policy, wanted: policy })
            }
            Demand::Shared { policy: Policy::Static, .. } => place(demand, node).map(|_| ()),
            Demand::None | Demand::Exclusive | Demand::Shared { .. } => Ok(()),
        }
    }

    /// The card for a pod on a node that [`Self::fits`]; nothing where none is to be chosen (only `static` pods have
    /// a card from the start).
    pub fn card(&self, demand: Demand, node: &str) -> Result<Option<CardUuid>, Unfit> {
        self.fits(demand, node)?;
        match demand {
            Demand::Shared { policy: Policy::Static, .. } => {
                let (node, _) = self.seen(node)?;
                let room = place(demand, node)?;
                Ok(Some(room.card.uuid.clone()))
            }
            Demand::None | Demand::Exclusive | Demand::Shared { .. } => Ok(None),
        }
    }

    /// How well a node suits a pod that fits there, from 0 to 10.
    ///
    /// `share-pool`: the less computing time is promised on a card already, the shorter the queue will be. `static`:
    /// the fuller the chosen card, the more whole cards stay for large requests.
    pub fn score(&self, demand: Demand, node: &str) -> u8 {
        let Ok((node, facts)) = self.seen(node) else { return 0 };
        let Demand::Shared { policy, core, memory } = demand else { return 0 };
        match policy {
            Policy::SharePool | Policy::None => {
                let cards = facts.cards.as_ref().map_or(1, |cards| cards.len().max(1));
                let cards = u32::try_from(cards).unwrap_or(u32::MAX);
                let promised = node.promised.saturating_add(u32::from(core.limit().get()));
                tenth(10 * cards.saturating_mul(100), cards.saturating_mul(100).saturating_add(promised))
            }
            Policy::Static => {
                let Ok(room) = place(demand, node) else { return 0 };
                let asked = u32::from(core.request().get()) + u32::from(memory.request().get());
                tenth(10 * (200 - room.left().saturating_sub(asked)), 200)
            }
        }
    }

    /// The rooms of a node's cards, as far as they are known.
    pub fn rooms(&self, node: &str) -> &[Room] {
        self.nodes.get(node).map_or(&[], |node| &node.rooms)
    }

    fn seen(&self, node: &str) -> Result<(&NodeRecord, &PlacementNode), Unfit> {
        let node = self.nodes.get(node).ok_or(Unfit::Unknown)?;
        Ok((node, node.facts.as_ref().ok_or(Unfit::Unknown)?))
    }

    fn put(&mut self, uid: &str, facts: PlacementPod) {
        self.take_out(uid);
        let node = facts.node.clone();
        self.nodes.entry(node.clone()).or_default().pods.insert(uid.to_owned());
        self.pods.insert(uid.to_owned(), facts);
        self.reckon(&node);
    }

    fn take_out(&mut self, uid: &str) {
        let Some(facts) = self.pods.remove(uid) else { return };
        if let Some(node) = self.nodes.get_mut(&facts.node) {
            node.pods.remove(uid);
            if node.pods.is_empty() && node.facts.is_none() {
                self.nodes.remove(&facts.node);
                return;
            }
        }
        self.reckon(&facts.node);
    }

    /// Sums of one node, anew: a node has tens of pods, and changes far less often than it is asked about.
    fn reckon(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let pods = || node.pods.iter().filter_map(|uid| self.pods.get(uid));
        let requests = pods().filter_map(|pod| Some((pod.demand.requests()?, pod.card.as_ref())));
        let cards = node.facts.as_ref().and_then(|facts| facts.cards.as_deref());
        let rooms = room::rooms(cards.unwrap_or_default(), requests);
        let promised = pods().map(|pod| match pod.demand {
            Demand::Shared { core, .. } => u32::from(core.limit().get()),
            Demand::None | Demand::Exclusive => 0,
        });
        node.promised = promised.sum();
        node.rooms = rooms;
    }
}

/// The room that the rule gives to a pod with a share.
fn place(demand: Demand, node: &NodeRecord) -> Result<&Room, Unfit> {
    if node.facts.as_ref().is_none_or(|facts| facts.cards.is_none()) {
        return Err(Unfit::CardsUnknown);
    }
    let requests = demand.requests().ok_or(Unfit::NoRoom)?;
    room::fullest(&node.rooms, requests).and_then(|place| node.rooms.get(place)).ok_or(Unfit::NoRoom)
}

/// `part` of `whole`, rounded, as a score.
fn tenth(part: u32, whole: u32) -> u8 {
    let score = (part + whole / 2).checked_div(whole).unwrap_or(0);
    u8::try_from(score.min(10)).unwrap_or(10)
}
