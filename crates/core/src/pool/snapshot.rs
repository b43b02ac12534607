//! The pool's state written down, and a pool made of it that behaves the same.
//!
//! Only what can't be worked out is written; the rest is counted again. What comes back is input like any other.

use super::Pool;
use super::config::{Card, Policy, Qos};
use super::fit::CardRecord;
use super::invariants::{Violation, violation};
use super::load::Load;
use super::occupants::Occupants;
use super::pods::{PodRecord, Pods, StateRecord};
use super::queue::{Lane, QueueKey};
use super::time::Timestamp;

/// A pool's state, written down. Its fields are the pool's own business.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Snapshot {
    pub(super) policy: Policy,
    pub(super) check_requests: bool,
    pub(super) qos: Qos,
    pub(super) now: Timestamp,
    pub(super) next_number: u64,
    pub(super) next_lease: u64,
    /// In the pool's own order, which the pods' card numbers refer to.
    pub(super) cards: Vec<(Card, bool)>,
    /// Those of `cards` that are occupied, by their place there. Journals of earlier versions don't have it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub(super) occupied: Vec<(usize, Occupants)>,
    /// Journals of earlier versions don't have it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub(super) unseen: bool,
    /// In name order.
    pub(super) pods: Vec<PodRecord>,
}

impl Pool {
    /// All that the pool knows, to be written down. [`Pool::restore`] gives a pool that behaves the same.
    pub fn snapshot(&self) -> Snapshot {
        let pods = self.pods.iter().map(|(_, record)| record.clone()).collect();
        Snapshot { pods, ..self.snapshot_without_pods() }
    }

    /// The same of a pool without pods.
    pub(super) fn snapshot_without_pods(&self) -> Snapshot {
        Snapshot {
            policy: self.policy,
            check_requests: self.check_requests,
            qos: self.qos,
            now: self.now,
            next_number: self.next_number,
            next_lease: self.next_lease,
            cards: self.cards.iter().map(|record| (record.card.clone(), record.lost)).collect(),
            occupied: self.occupied(),
            unseen: self.unseen,
            pods: Vec::new(),
        }
    }

    fn occupied(&self) -> Vec<(usize, Occupants)> {
        let cards = self.cards.iter().map(|record| record.occupants.clone()).enumerate();
        cards.filter(|(_, occupants)| !occupants.is_empty()).collect()
    }

    /// The pool that `snapshot` was taken of. Refused when the snapshot contradicts itself, as after a damaged
    /// journal.
    pub fn restore(snapshot: Snapshot) -> Result<Self, Violation> {
        let lanes = match snapshot.policy {
            Policy::SharePool => 1,
            Policy::Static => snapshot.cards.len(),
        };
        let mut pool = Self {
            policy: snapshot.policy,
            check_requests: snapshot.check_requests,
            qos: snapshot.qos,
            now: snapshot.now,
            unseen: snapshot.unseen,
            cards: snapshot.cards.into_iter().map(|(card, lost)| CardRecord::new(card, lost)).collect(),
            pods: Pods::default(),
            lanes: vec![Lane::default(); lanes],
            due: std::collections::BTreeMap::new(),
            next_number: snapshot.next_number,
            next_lease: snapshot.next_lease,
        };
        for (slot, occupants) in snapshot.occupied {
            let card = pool.cards.get_mut(slot);
            card.ok_or_else(|| violation!("card {slot} is occupied and isn't there"))?.occupants = occupants;
        }
        for record in snapshot.pods {
            pool.take_back(record)?;
        }
        pool.check_invariants()?;
        Ok(pool)
    }

    /// Enters a pod of a snapshot in all the pool's lists.
    fn take_back(&mut self, record: PodRecord) -> Result<(), Violation> {
        let named = [
            record.fixed,
            record.waiting().and_then(|waiting| waiting.only),
            record.lease().map(|lease| lease.card),
            record.lease().and_then(|lease| lease.again?.only),
        ];
        if named.into_iter().flatten().any(|card| card >= self.cards.len()) {
            return Err(violation!("pod `{}` refers to a card that isn't there", record.id));
        }
        if record.fixed.is_some() != (self.policy == Policy::Static) {
            return Err(violation!("pod `{}` and the policy disagree on whether it has a card", record.id));
        }
        if self.pods.find(&record.id).is_some() {
            return Err(violation!("pod `{}` is there twice", record.id));
        }
        let lane = self.lane_of(&record);
        if !record.leaving {
            self.lanes[lane].placed.add(Load::requests(&record.spec));
        }
        let slot = self.pods.insert(record);
        let record = &self.pods[slot];
        match &record.state {
            StateRecord::Hibernating => {}
            StateRecord::Ready(waiting) => {
                self.lanes[lane].waiting.insert(QueueKey::new(record, waiting), slot);
            }
            StateRecord::Running(lease) => {
                let card = &mut self.cards[lease.card];
                card.used.add(lease.limits.into());
                if lease.is_coming_back() {
                    card.coming.add(lease.limits.into());
                }
                card.leases.insert(lease.id, slot);
                if let Some(due) = lease.due_at() {
                    self.due.insert((due, lease.id), slot);
                }
            }
        }
        Ok(())
    }
}
