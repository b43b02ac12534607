//! Cards that are lost, come back, are new, get another number, or are looked at.

use std::collections::BTreeMap;

use super::Pool;
use super::action::Action;
use super::config::{Card, Policy};
use super::fit::CardRecord;
use super::ident::{CardSlot, CardUuid};
use super::occupants::Occupants;
use super::queue::Lane;
use super::refusal::Refusal;

impl Pool {
    /// The card that an event names.
    pub(super) fn card_slot(&self, card: &CardUuid) -> Result<CardSlot, Refusal> {
        self.cards
            .iter()
            .position(|record| record.card.uuid == *card)
            .ok_or_else(|| Refusal::UnknownCard { card: card.clone() })
    }

    pub(super) fn card_lost(&mut self, card: &CardUuid, out: &mut Vec<Action>) -> Result<(), Refusal> {
        let slot = self.card_slot(card)?;
        self.cards[slot].lost = true;
        self.evict(slot, out);
        Ok(())
    }

    /// The share of evicted pods that have not gone yet stays charged.
    pub(super) fn card_back(&mut self, card: &CardUuid) -> Result<(), Refusal> {
        let slot = self.card_slot(card)?;
        self.cards[slot].lost = false;
        Ok(())
    }

    pub(super) fn card_added(&mut self, card: Card) -> Result<(), Refusal> {
        if self.card_slot(&card.uuid).is_ok() {
            return Err(Refusal::CardExists { card: card.uuid });
        }
        self.cards.push(CardRecord::new(card, false));
        if self.policy == Policy::Static {
            self.lanes.push(Lane::default());
        }
        Ok(())
    }

    pub(super) fn card_renumbered(&mut self, card: &CardUuid, index: u32) -> Result<(), Refusal> {
        let slot = self.card_slot(card)?;
        self.cards[slot].card.index = index;
        Ok(())
    }

    pub(super) fn cards_seen(&mut self, mut occupied: BTreeMap<CardUuid, Occupants>) -> Result<(), Refusal> {
        occupied.keys().try_for_each(|card| self.card_slot(card).map(drop))?;
        for record in &mut self.cards {
            record.occupants = occupied.remove(&record.card.uuid).unwrap_or_default();
        }
        self.unseen = false;
        Ok(())
    }
}
