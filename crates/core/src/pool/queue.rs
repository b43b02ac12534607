//! The queue: by priority, then by the moment a pod became ready. Nothing overtakes a blocked head.
//!
//! Under `share-pool` there is one lane for all cards, under `static` one for each.
//!
//! Pods that can use lost or occupied cards only are set aside: they keep their number and their place, and come into
//! play again when the card is back. Otherwise one dead card could hold up everybody. And who waits for the card that it is
//! on already takes no room from anybody.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Pool;
use super::action::Action;
use super::config::Policy;
use super::ident::{CardSlot, LeaseId, PodSlot};
use super::load::Load;
use super::pods::{Lease, PodRecord, StateRecord, Waiting};

/// Where a pod stands in its lane: the lowest key is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey {
    priority: Reverse<i32>,
    number: u64,
}

impl QueueKey {
    pub(super) const fn new(record: &PodRecord, waiting: &Waiting) -> Self {
        Self { priority: Reverse(record.spec.priority), number: waiting.number }
    }
}

/// One queue, and what the pods that belong to it request.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) waiting: BTreeMap<QueueKey, PodSlot>,
    /// The requests of all its pods, waiting or not.
    pub(super) placed: Load,
}

impl Pool {
    /// The lane that the pod belongs to.
    pub(super) fn lane_of(&self, record: &PodRecord) -> usize {
        match self.policy {
            Policy::SharePool => 0,
            Policy::Static => record.fixed.unwrap_or(0),
        }
    }

    /// A hibernating pod becomes ready, at the tail of its priority.
    pub(super) fn enqueue(&mut self, slot: PodSlot, only: Option<CardSlot>) {
        let waiting = Waiting { number: self.next_number, since: self.now, only };
        self.next_number += 1;
        let record = &mut self.pods[slot];
        let key = QueueKey::new(record, &waiting);
        record.state = StateRecord::Ready(waiting);
        let lane = self.lane_of(&self.pods[slot]);
        self.lanes[lane].waiting.insert(key, slot);
    }

    /// A ready pod hibernates.
    pub(super) fn dequeue(&mut self, slot: PodSlot) {
        let record = &self.pods[slot];
        let Some(waiting) = record.waiting() else { return };
        let key = QueueKey::new(record, waiting);
        let lane = self.lane_of(record);
        self.lanes[lane].waiting.remove(&key);
        self.pods[slot].state = StateRecord::Hibernating;
    }

    /// The pod whose turn it is in the lane.
    pub(super) fn head(&self, lane: usize) -> Option<PodSlot> {
        let mut waiting = self.lanes[lane].waiting.values();
        waiting.find(|slot| self.allowed(&self.pods[**slot]).next().is_some()).copied()
    }

    /// Grants until no head fits, and asks running pods to make room for those that don't.
    pub(super) fn pass(&mut self, out: &mut Vec<Action>) {
        if self.unseen {
            return;
        }
        self.grant_to_sole_occupants(out);
        for lane in 0..self.lanes.len() {
            while let Some(head) = self.head(lane) {
                let Some(card) = self.place(&self.pods[head]) else {
                    self.make_room(head, out);
                    break;
                };
                self.grant(head, card, out);
            }
        }
    }

    /// Who waits for the one card on which it is already, and alone, gets it whoever is before it: nobody else is let in
    /// there while it stays, and with a lease it can be told to go. So it is after an agent has lost its journal.
    fn grant_to_sole_occupants(&mut self, out: &mut Vec<Action>) {
        for card in 0..self.cards.len() {
            let occupants = &self.cards[card].occupants;
            let mut pods = occupants.pods.iter();
            let (Some(pod), None, false) = (pods.next(), pods.next(), occupants.strangers) else { continue };
            let Some(slot) = self.pods.find(pod) else { continue };
            let record = &self.pods[slot];
            let waits_for_it = record.waiting().is_some() && record.only() == Some(card);
            if waits_for_it && self.place(record).is_some() {
                self.grant(slot, card, out);
            }
        }
    }

    fn grant(&mut self, slot: PodSlot, card: CardSlot, out: &mut Vec<Action>) {
        self.dequeue(slot);
        let id = LeaseId(self.next_lease);
        self.next_lease += 1;
        let record = &mut self.pods[slot];
        let limits = record.spec.limits();
        record.state = StateRecord::Running(Lease {
            id,
            card,
            since: self.now,
            limits,
            idle_since: None,
            ending: None,
            stuck: false,
            again: None,
        });
        let holder = &mut self.cards[card];
        holder.used.add(limits.into());
        holder.leases.insert(id, slot);
        out.push(Action::Grant { pod: record.id.clone(), card: holder.card.uuid.clone(), lease: id, limits });
    }
}
