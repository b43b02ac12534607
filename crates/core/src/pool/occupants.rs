//! Who is on a card without a right to what it takes there: nobody else is let in beside them.
//!
//! The pool is told who they are; how anybody knows is not its business.

use std::collections::{BTreeMap, BTreeSet};

use super::Pool;
use super::fit::CardRecord;
use super::ident::{CardUuid, PodId, PodSlot};
use super::pods::{Lease, PodRecord};
use super::refusal::Refusal;

/// Who has memory or processes on a card that no lease allows. A card with occupants is granted to nobody but an
/// occupant that is alone there; leases that hold it stay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Occupants {
    /// Pods that use the card without a lease of it, or take more of its memory than their lease allows.
    pub pods: BTreeSet<PodId>,
    /// Whether somebody is there who belongs to no pod, or of whom nothing is known.
    pub strangers: bool,
}

impl Occupants {
    /// True when nobody is there who must not be.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && !self.strangers
    }

    /// True when nobody but `pod` is there who must not be.
    pub(super) fn leave_room_for(&self, pod: &PodId) -> bool {
        !self.strangers && self.others_than(pod).next().is_none()
    }

    fn others_than(&self, pod: &PodId) -> impl Iterator<Item = &PodId> {
        self.pods.iter().filter(move |other| *other != pod)
    }
}

impl Pool {
    pub(super) fn cards_seen(&mut self, mut occupied: BTreeMap<CardUuid, Occupants>) -> Result<(), Refusal> {
        occupied.keys().try_for_each(|card| self.card_slot(card).map(drop))?;
        for record in &mut self.cards {
            record.occupants = occupied.remove(&record.card.uuid).unwrap_or_default();
        }
        self.unseen = false;
        Ok(())
    }

    /// Whether everybody who keeps `record`'s pod off the card holds a lease there, so that the pool can end it.
    pub(super) fn can_be_cleared(&self, card: &CardRecord, record: &PodRecord) -> bool {
        !card.occupants.strangers
            && card.occupants.others_than(&record.id).all(|other| self.lease_on(card, other).is_some())
    }

    /// Whether everybody who keeps `record`'s pod off the card was told to go and is expected to.
    pub(super) fn is_being_cleared(&self, card: &CardRecord, record: &PodRecord) -> bool {
        !card.occupants.strangers
            && card
                .occupants
                .others_than(&record.id)
                .all(|other| self.lease_on(card, other).is_some_and(Lease::is_coming_back))
    }

    /// Whether the pod in `slot` must leave the card before `record`'s pod can get it.
    pub(super) fn keeps_out(&self, card: &CardRecord, slot: PodSlot, record: &PodRecord) -> bool {
        let pod = &self.pods[slot].id;
        card.occupants.pods.contains(pod) && *pod != record.id
    }

    fn lease_on(&self, card: &CardRecord, pod: &PodId) -> Option<&Lease> {
        let slot = self.pods.find(pod)?;
        let lease = self.pods[slot].lease()?;
        card.leases.contains_key(&lease.id).then_some(lease)
    }
}
