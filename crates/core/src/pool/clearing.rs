//! Whether those who are on a card without a right to it can be made to leave it, for somebody who waits.

use super::Pool;
use super::fit::CardRecord;
use super::ident::{PodId, PodSlot};
use super::pods::{Lease, PodRecord};

impl Pool {
    /// Whether everybody who keeps `record`'s pod off the card holds a lease there, so that the pool can end it.
    pub(super) fn can_be_cleared(&self, card: &CardRecord, record: &PodRecord) -> bool {
        self.all_others_have(card, record, |_| true)
    }

    /// Whether everybody who keeps `record`'s pod off the card was told to go and is expected to.
    pub(super) fn is_being_cleared(&self, card: &CardRecord, record: &PodRecord) -> bool {
        self.all_others_have(card, record, Lease::is_coming_back)
    }

    /// Whether the pod in `slot` must leave the card before `record`'s pod can get it.
    pub(super) fn keeps_out(&self, card: &CardRecord, slot: PodSlot, record: &PodRecord) -> bool {
        let pod = &self.pods[slot].id;
        card.occupants.pods.contains(pod) && *pod != record.id
    }

    /// Whether everybody who keeps `record`'s pod off the card has such a lease there.
    fn all_others_have(&self, card: &CardRecord, record: &PodRecord, such: impl Fn(&Lease) -> bool) -> bool {
        let mut others = card.occupants.others_than(&record.id);
        !card.occupants.strangers && others.all(|other| self.lease_on(card, other).is_some_and(&such))
    }

    fn lease_on(&self, card: &CardRecord, pod: &PodId) -> Option<&Lease> {
        let slot = self.pods.find(pod)?;
        let lease = self.pods[slot].lease()?;
        card.leases.contains_key(&lease.id).then_some(lease)
    }
}
