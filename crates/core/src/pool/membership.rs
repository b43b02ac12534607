//! Pods that come, change what they ask for, and go; and whether their requests find room on the node.

use super::Pool;
use super::action::{Action, TerminationReason};
use super::config::{Limits, PodSpec, Policy};
use super::fit::best_fit;
use super::ident::{CardSlot, CardUuid, PodId, PodSlot};
use super::load::Load;
use super::pods::{PodRecord, StateRecord};
use super::queue::QueueKey;
use super::refusal::{Refusal, Resource};
use crate::share::Percent;

impl Pool {
    pub(super) fn pod_added(&mut self, pod: PodId, spec: PodSpec) -> Result<(), Refusal> {
        if let Some(slot) = self.pods.find(&pod) {
            let leaving = self.pods[slot].leaving;
            return Err(if leaving { Refusal::PodLeaving { pod } } else { Refusal::PodExists { pod } });
        }
        let fixed = self.card_of_new(&pod, &spec)?;
        let requests = Load::requests(&spec);
        let lane = fixed.unwrap_or(0);
        if self.check_requests {
            self.check_room(lane, requests, Load::default())?;
        }
        self.lanes[lane].placed.add(requests);
        self.pods.insert(PodRecord { id: pod, spec, fixed, leaving: false, state: StateRecord::Hibernating });
        Ok(())
    }

    /// The card that a new pod is fixed to; none under `share-pool`.
    fn card_of_new(&self, pod: &PodId, spec: &PodSpec) -> Result<Option<CardSlot>, Refusal> {
        match (self.policy, &spec.card) {
            (Policy::SharePool, None) => Ok(None),
            (Policy::SharePool, Some(card)) => {
                Err(Refusal::CardNotForPool { pod: pod.clone(), card: card.clone() })
            }
            (Policy::Static, Some(card)) => {
                let slot = self.card_slot(card)?;
                if self.cards[slot].lost {
                    return Err(Refusal::CardIsLost { card: card.clone() });
                }
                Ok(Some(slot))
            }
            (Policy::Static, None) => self.choose_card(Load::requests(spec)).map(Some),
        }
    }

    /// `static`, no card given: the healthy card that the requests leave fullest. It must have room for them, even
    /// where requests are not checked: nobody else has chosen a card with room.
    fn choose_card(&self, requests: Load) -> Result<CardSlot, Refusal> {
        let cards = self.cards.iter().zip(&self.lanes).enumerate();
        let healthy = cards.filter(|(_, (card, _))| !card.lost);
        let free = healthy.map(|(slot, (card, lane))| (slot, card, Load::of_cards(1).beyond(lane.placed)));
        best_fit(free, requests).ok_or_else(|| Refusal::NoCardFits {
            core: requests.core,
            memory: requests.memory,
            cards: self.healthy_cards(),
        })
    }

    /// Whether `requests` find room in the lane beside those of all pods but the one that has `own` there. What is
    /// not more than before is never refused.
    fn check_room(&self, lane: usize, requests: Load, own: Load) -> Result<(), Refusal> {
        let placed = self.lanes[lane].placed.beyond(own);
        let cards = match self.policy {
            Policy::SharePool => self.healthy_cards(),
            Policy::Static => 1,
        };
        let total = Load::of_cards(cards);
        let dimensions = [
            (Resource::Core, requests.core, own.core, placed.core, total.core),
            (Resource::Memory, requests.memory, own.memory, placed.memory, total.memory),
        ];
        for (resource, asked, own, placed, total) in dimensions {
            if asked <= own || placed + asked <= total {
                continue;
            }
            return Err(match self.policy {
                Policy::SharePool => Refusal::NoRoom { resource, asked, placed, total, cards },
                Policy::Static => Refusal::NoRoomOnCard {
                    card: self.cards[lane].card.uuid.clone(),
                    resource,
                    asked,
                    placed,
                },
            });
        }
        Ok(())
    }

    pub(super) fn pod_changed(
        &mut self,
        pod: &PodId,
        spec: PodSpec,
        out: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let slot = self.pods.staying(pod)?;
        let record = &self.pods[slot];
        if let Some(card) = &spec.card {
            self.check_card(record, card)?;
        }
        let lane = self.lane_of(record);
        let (before, after) = (Load::requests(&record.spec), Load::requests(&spec));
        if self.check_requests {
            self.check_room(lane, after, before)?;
        }
        let placed = &mut self.lanes[lane].placed;
        placed.take(before);
        placed.add(after);
        if let Some(waiting) = self.pods[slot].waiting().cloned() {
            let queue = &mut self.lanes[lane].waiting;
            queue.remove(&QueueKey::new(&self.pods[slot], &waiting));
            self.pods[slot].spec = spec;
            queue.insert(QueueKey::new(&self.pods[slot], &waiting), slot);
        } else {
            self.pods[slot].spec = spec;
            self.change_lease(slot, out);
        }
        Ok(())
    }

    /// Whether a pod that is on the node can name `card`.
    fn check_card(&self, record: &PodRecord, card: &CardUuid) -> Result<(), Refusal> {
        let pod = record.id.clone();
        let Some(fixed) = record.fixed else {
            return Err(Refusal::CardNotForPool { pod, card: card.clone() });
        };
        if self.card_slot(card)? != fixed {
            let card_of_pod = self.cards[fixed].card.uuid.clone();
            return Err(Refusal::OtherCard { pod, card: card_of_pod, asked: card.clone() });
        }
        Ok(())
    }

    /// Brings a running pod's lease as near to what it asks for now as can be done without harm to others.
    fn change_lease(&mut self, slot: PodSlot, out: &mut Vec<Action>) {
        let record = &self.pods[slot];
        let Some(lease) = record.lease().filter(|lease| lease.ending.is_none()) else { return };
        let (have, want) = (lease.limits, record.spec.limits());
        let card = lease.card;
        let nobody_waits = self.lanes[self.lane_of(record)].waiting.is_empty();
        let may_grow =
            nobody_waits && !self.cards[card].lost && self.cards[card].occupants.leave_room_for(&record.id);
        let free = if may_grow { self.cards[card].free() } else { Load::default() };
        let limits = Limits {
            core: if want.core < have.core { want.core } else { raised(have.core, want.core, free.core) },
            memory: raised(have.memory, want.memory, free.memory),
        };
        if limits == have {
            return;
        }
        let used = &mut self.cards[card].used;
        used.take(have.into());
        used.add(limits.into());
        let record = &mut self.pods[slot];
        let pod = record.id.clone();
        if let Some(lease) = record.lease_mut() {
            lease.limits = limits;
        }
        out.push(Action::LimitsChanged { pod, limits });
    }

    pub(super) fn pod_removed(&mut self, pod: &PodId, out: &mut Vec<Action>) -> Result<(), Refusal> {
        let slot = self.pods.known(pod)?;
        if self.pods[slot].leaving {
            return Ok(());
        }
        self.dequeue(slot);
        let lane = self.lane_of(&self.pods[slot]);
        self.lanes[lane].placed.take(Load::requests(&self.pods[slot].spec));
        let record = &mut self.pods[slot];
        let Some(lease) = record.lease_mut() else {
            self.pods.remove(slot);
            return Ok(());
        };
        lease.again = None;
        record.leaving = true;
        self.terminate(slot, TerminationReason::Stopped, out);
        Ok(())
    }
}

/// `want` when it is more than `have` and `free` suffices for the difference, else `have`.
fn raised(have: Percent, want: Percent, free: u32) -> Percent {
    let more = u32::from(want.get()).saturating_sub(have.get().into());
    if more > 0 && more <= free { want } else { have }
}
