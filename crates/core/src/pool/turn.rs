//! A pod's turn: it wants a card, it is idle or busy, it has let go.

use super::Pool;
use super::action::Action;
use super::ident::{CardSlot, CardUuid, LeaseId, PodId};
use super::load::Load;
use super::pods::{Again, Lease, PodRecord, StateRecord};
use super::refusal::Refusal;

impl Pool {
    pub(super) fn gpu_wanted(&mut self, pod: &PodId, only: Option<&CardUuid>) -> Result<(), Refusal> {
        let slot = self.pods.staying(pod)?;
        let only = only.map(|card| self.card_slot(card)).transpose()?;
        if let Some(fixed) = self.pods[slot].fixed {
            self.check_same(&self.pods[slot], fixed, only)?;
        }
        match &mut self.pods[slot].state {
            StateRecord::Hibernating => self.enqueue(slot, only),
            StateRecord::Ready(waiting) => waiting.only = only,
            StateRecord::Running(Lease { ending: Some(_), again, .. }) => *again = Some(Again { only }),
            StateRecord::Running(Lease { card, .. }) => {
                let card = *card;
                self.check_same(&self.pods[slot], card, only)?;
            }
        }
        Ok(())
    }

    /// Whether a process that is bound to `only` can use the pod's `card`.
    fn check_same(&self, record: &PodRecord, card: CardSlot, only: Option<CardSlot>) -> Result<(), Refusal> {
        match only.filter(|only| *only != card) {
            None => Ok(()),
            Some(asked) => Err(Refusal::OtherCard {
                pod: record.id.clone(),
                card: self.cards[card].card.uuid.clone(),
                asked: self.cards[asked].card.uuid.clone(),
            }),
        }
    }

    pub(super) fn want_gone(&mut self, pod: &PodId) -> Result<(), Refusal> {
        let slot = self.pods.known(pod)?;
        self.dequeue(slot);
        if let Some(lease) = self.pods[slot].lease_mut() {
            lease.again = None;
        }
        Ok(())
    }

    pub(super) fn idle(&mut self, pod: &PodId, idle: bool) -> Result<(), Refusal> {
        let slot = self.pods.known(pod)?;
        let now = self.now;
        if let Some(lease) = self.pods[slot].lease_mut() {
            lease.idle_since = idle.then(|| lease.idle_since.unwrap_or(now));
        }
        Ok(())
    }

    pub(super) fn released(
        &mut self,
        pod: &PodId,
        lease: LeaseId,
        out: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let slot = self.pods.known(pod)?;
        let record = &mut self.pods[slot];
        let Some(ended) = record.lease().filter(|held| held.id == lease).cloned() else {
            return Err(Refusal::StaleLease { pod: pod.clone(), lease });
        };
        record.state = StateRecord::Hibernating;
        let leaving = record.leaving;
        let card = &mut self.cards[ended.card];
        let load = Load::from(ended.limits);
        card.used.take(load);
        card.leases.remove(&lease);
        if ended.is_coming_back() {
            card.coming.take(load);
        }
        if let Some(due) = ended.due_at() {
            self.due.remove(&(due, lease));
        }
        let card = card.card.uuid.clone();
        let why = ended.ending.map(|ending| ending.why);
        out.push(Action::Hibernated { pod: pod.clone(), card, lease, why });
        if leaving {
            self.pods.remove(slot);
        } else if let Some(again) = ended.again {
            self.enqueue(slot, again.only);
        }
        Ok(())
    }
}
