//! What can be seen of the pool: for status, metrics and the pages that programs read.

use super::Pool;
use super::config::{Limits, PodSpec, Policy, Qos};
use super::ident::{CardUuid, LeaseId, PodId, PodSlot};
use super::occupants::Occupants;
use super::pods::PodRecord;
use super::queue::Lane;
use super::state::{Ending, PodState};
use super::time::Timestamp;

/// A pod as the pool knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView<'a> {
    /// The name that the pod was added with.
    pub pod: &'a PodId,
    /// Its shares, priority and card, as the last event about them said.
    pub spec: &'a PodSpec,
    /// Hibernating, ready or running.
    pub state: PodState,
    /// Its lease, while it runs.
    pub lease: Option<LeaseView<'a>>,
    /// The one card it can get: fixed by `static`, or named by [`super::Event::GpuWanted`].
    pub only: Option<&'a CardUuid>,
    /// Removed; stays only until its lease is over.
    pub leaving: bool,
}

/// A pod's right to a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView<'a> {
    /// The pod that holds it.
    pub pod: &'a PodId,
    /// Its number; lower was granted earlier.
    pub lease: LeaseId,
    /// The card that it is of.
    pub card: &'a CardUuid,
    /// When it was granted.
    pub since: Timestamp,
    /// What it lets the pod use, and charges to the card.
    pub limits: Limits,
    /// Since when the pod has been idle; `None` when it works.
    pub idle_since: Option<Timestamp>,
    /// Set once the pod has been told to terminate.
    pub ending: Option<&'a Ending>,
    /// Whether one of its processes has asked since: the pod waits again as soon as this lease is over.
    pub wants_again: bool,
}

/// A pod in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView<'a> {
    /// The pod that waits.
    pub pod: &'a PodId,
    /// 1 is next. Under `static`, within the queue of its card.
    pub position: u32,
    /// The number it got when it became ready: lower came first.
    pub number: u64,
    /// When it became ready.
    pub since: Timestamp,
    /// The one card it can get, if only one will do.
    pub only: Option<&'a CardUuid>,
}

/// A card and what is taken of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardView<'a> {
    /// The UUID, by which the card is known everywhere.
    pub uuid: &'a CardUuid,
    /// NVML's index, as last told.
    pub index: u32,
    /// Whether it does not work: nobody gets it until [`super::Event::CardBack`].
    pub lost: bool,
    /// Who is there without a right to it: nobody else gets it until [`super::Event::CardsSeen`] says otherwise.
    pub occupants: &'a Occupants,
    /// Charged by leases, percent, 0 to 100: core.
    pub core_used: u32,
    /// Charged by leases, percent, 0 to 100: memory.
    pub memory_used: u32,
    /// Who holds it, in the order of the grants.
    pub pods: Vec<&'a PodId>,
}

impl Pool {
    /// Where the pod stands; `None` when it isn't known.
    pub fn state(&self, pod: &PodId) -> Option<PodState> {
        self.pods.find(pod).map(|slot| self.pods[slot].pod_state())
    }

    /// Everything about one pod; `None` when it isn't known.
    pub fn pod(&self, pod: &PodId) -> Option<PodView<'_>> {
        self.pods.find(pod).map(|slot| self.pod_view(&self.pods[slot]))
    }

    /// All pods, in name order, those included that were removed and whose lease is not over.
    pub fn pods(&self) -> impl Iterator<Item = PodView<'_>> {
        self.pods.iter().map(|(_, record)| self.pod_view(record))
    }

    /// The pod's place in the queue, from 1; `None` when it doesn't wait.
    pub fn position(&self, pod: &PodId) -> Option<u32> {
        let slot = self.pods.find(pod)?;
        self.pods[slot].waiting()?;
        let lane = &self.lanes[self.lane_of(&self.pods[slot])];
        (1..).zip(lane.waiting.values()).find(|(_, other)| **other == slot).map(|(position, _)| position)
    }

    /// The queue from its head; under [`Policy::Static`] one card's after the other's, by card index.
    pub fn queue(&self) -> impl Iterator<Item = QueueView<'_>> {
        self.lanes_by_index()
            .into_iter()
            .flat_map(|lane| (1..).zip(lane.waiting.values()))
            .filter_map(|(position, slot)| self.queue_view(position, *slot))
    }

    /// All cards, by index.
    pub fn cards(&self) -> impl Iterator<Item = CardView<'_>> {
        let mut cards: Vec<_> = self.cards.iter().collect();
        cards.sort_by_key(|card| card.card.index);
        cards.into_iter().map(|card| CardView {
            uuid: &card.card.uuid,
            index: card.card.index,
            lost: card.lost,
            occupants: &card.occupants,
            core_used: card.used.core,
            memory_used: card.used.memory,
            pods: card.leases.values().map(|slot| &self.pods[*slot].id).collect(),
        })
    }

    /// All leases, by number.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        let mut slots: Vec<_> = self.cards.iter().flat_map(|card| &card.leases).collect();
        slots.sort();
        slots.into_iter().filter_map(|(_, slot)| self.lease_view(&self.pods[*slot]))
    }

    /// The card that the pod holds, or the one that it would most likely get now; `None` when the pod isn't known
    /// or no card is healthy.
    pub fn likeliest_card(&self, pod: &PodId) -> Option<&CardUuid> {
        let record = &self.pods[self.pods.find(pod)?];
        let bound = record.lease().map(|lease| lease.card).or_else(|| record.only());
        let card = if let Some(slot) = bound.or_else(|| self.place(record)) {
            &self.cards[slot]
        } else {
            let healthy = self.cards.iter().filter(|card| !card.lost);
            healthy.min_by_key(|card| (card.used.sum(), card.card.index))?
        };
        Some(&card.card.uuid)
    }

    /// The quality of service in force.
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// One queue for all cards, or one for each; fixed when the pool is made.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether nothing is granted, because nobody knows who is on the cards.
    pub fn is_unseen(&self) -> bool {
        self.unseen
    }

    /// The latest moment the pool has been told.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    fn lanes_by_index(&self) -> Vec<&Lane> {
        match self.policy {
            Policy::SharePool => self.lanes.iter().collect(),
            Policy::Static => {
                let mut lanes: Vec<_> = self.cards.iter().zip(&self.lanes).collect();
                lanes.sort_by_key(|(card, _)| card.card.index);
                lanes.into_iter().map(|(_, lane)| lane).collect()
            }
        }
    }

    fn pod_view<'a>(&'a self, record: &'a PodRecord) -> PodView<'a> {
        PodView {
            pod: &record.id,
            spec: &record.spec,
            state: record.pod_state(),
            lease: self.lease_view(record),
            only: record.only().map(|slot| &self.cards[slot].card.uuid),
            leaving: record.leaving,
        }
    }

    fn lease_view<'a>(&'a self, record: &'a PodRecord) -> Option<LeaseView<'a>> {
        let lease = record.lease()?;
        Some(LeaseView {
            pod: &record.id,
            lease: lease.id,
            card: &self.cards[lease.card].card.uuid,
            since: lease.since,
            limits: lease.limits,
            idle_since: lease.idle_since,
            ending: lease.ending.as_ref(),
            wants_again: lease.again.is_some(),
        })
    }

    fn queue_view(&self, position: u32, slot: PodSlot) -> Option<QueueView<'_>> {
        let record = &self.pods[slot];
        let waiting = record.waiting()?;
        Some(QueueView {
            pod: &record.id,
            position,
            number: waiting.number,
            since: waiting.since,
            only: record.only().map(|slot| &self.cards[slot].card.uuid),
        })
    }
}
