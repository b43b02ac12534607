//! What fits where: what is charged to each card, and the card that is left fullest.

use std::collections::BTreeMap;

use super::Pool;
use super::config::Card;
use super::ident::{CardSlot, LeaseId, PodSlot};
use super::load::Load;
use super::occupants::Occupants;
use super::pods::PodRecord;

/// A card and what is charged to it.
#[derive(Debug, Clone)]
pub(super) struct CardRecord {
    pub(super) card: Card,
    pub(super) lost: bool,
    pub(super) occupants: Occupants,
    /// Charged by all leases, those included that are coming to their end.
    pub(super) used: Load,
    /// The part of `used` that is expected back soon: its pods were told to terminate.
    pub(super) coming: Load,
    /// In the order of the grants, so the longest-held first.
    pub(super) leases: BTreeMap<LeaseId, PodSlot>,
}

impl CardRecord {
    pub(super) fn new(card: Card, lost: bool) -> Self {
        Self {
            card,
            lost,
            occupants: Occupants::default(),
            used: Load::default(),
            coming: Load::default(),
            leases: BTreeMap::new(),
        }
    }

    /// What nobody is charged for.
    pub(super) const fn free(&self) -> Load {
        Load::of_cards(1).beyond(self.used)
    }

    /// What will be free once everybody who was told to terminate has.
    pub(super) const fn free_soon(&self) -> Load {
        self.free().plus(self.coming)
    }
}

impl Pool {
    /// The healthy cards that a pod can get, now or when those have left whom the pool can make leave.
    pub(super) fn allowed<'a>(
        &'a self,
        record: &'a PodRecord,
    ) -> impl Iterator<Item = (CardSlot, &'a CardRecord)> {
        let range = record.only().map_or(0..self.cards.len(), |slot| slot..slot + 1);
        let cards = range.map(|slot| (slot, &self.cards[slot])).filter(|(_, card)| !card.lost);
        cards.filter(|(_, card)| self.can_be_cleared(card, record))
    }

    /// The card on which the pod fits now.
    pub(super) fn place(&self, record: &PodRecord) -> Option<CardSlot> {
        let open = self.allowed(record).filter(|(_, card)| card.occupants.leave_room_for(&record.id));
        best_fit(open.map(|(slot, card)| (slot, card, card.free())), record.spec.limits().into())
    }

    pub(super) fn healthy_cards(&self) -> u32 {
        self.cards.iter().map(|card| u32::from(!card.lost)).sum()
    }
}

/// Of the cards with room for `load`, the one left fullest; of equals the one with the lowest index, and of those
/// the first.
pub(super) fn best_fit<'a>(
    cards: impl Iterator<Item = (CardSlot, &'a CardRecord, Load)>,
    load: Load,
) -> Option<CardSlot> {
    cards
        .filter(|(_, _, free)| load.within(*free))
        .min_by_key(|(_, card, free)| (free.sum(), card.card.index))
        .map(|(slot, ..)| slot)
}
