//! What came of an event, written down; and a pool put together from a snapshot and what came of the events since.
//!
//! Nothing is decided anew there: a pool of another version, which would choose otherwise today, comes to the same.

use std::collections::BTreeMap;

use super::Pool;
use super::config::{Card, Qos};
use super::event::Event;
use super::ident::PodId;
use super::invariants::Violation;
use super::occupants::Occupants;
use super::pods::PodRecord;
use super::snapshot::Snapshot;
use super::time::Timestamp;

/// What one event changed in the pool. Its fields are the pool's own business.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Change {
    now: Timestamp,
    next_number: u64,
    next_lease: u64,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    surroundings: Option<Surroundings>,
    /// Every pod that came or changed, as it is now.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pods: Vec<PodRecord>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    gone: Vec<PodId>,
}

/// What is around the pods, which changes rarely, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
struct Surroundings {
    qos: Qos,
    cards: Vec<(Card, bool)>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    occupied: Vec<(usize, Occupants)>,
    unseen: bool,
}

impl Event {
    /// Whether it may change what is around the pods.
    const fn is_of_surroundings(&self) -> bool {
        matches!(
            self,
            Self::CardLost { .. }
                | Self::CardBack { .. }
                | Self::CardAdded { .. }
                | Self::CardRenumbered { .. }
                | Self::CardsSeen { .. }
                | Self::CardsUnseen
                | Self::QosChanged { .. }
        )
    }
}

impl Pool {
    /// What the last [`Pool::step`] changed, which was with this event and was not refused.
    pub fn last_change(&self, event: &Event) -> Change {
        Change {
            now: self.now,
            next_number: self.next_number,
            next_lease: self.next_lease,
            surroundings: event.is_of_surroundings().then(|| {
                let Snapshot { qos, cards, occupied, unseen, .. } = self.snapshot_without_pods();
                Surroundings { qos, cards, occupied, unseen }
            }),
            pods: self.pods.touched().cloned().collect(),
            gone: self.pods.gone().to_vec(),
        }
    }
}

/// A pool that is being put together.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    snapshot: Snapshot,
    pods: BTreeMap<PodId, PodRecord>,
}

impl Rebuilt {
    /// Begins with a snapshot.
    pub fn new(mut snapshot: Snapshot) -> Self {
        let pods = std::mem::take(&mut snapshot.pods);
        Self { snapshot, pods: pods.into_iter().map(|record| (record.id.clone(), record)).collect() }
    }

    /// Takes in what came of the next event.
    pub fn apply(&mut self, change: Change) {
        self.snapshot.now = change.now;
        self.snapshot.next_number = change.next_number;
        self.snapshot.next_lease = change.next_lease;
        if let Some(Surroundings { qos, cards, occupied, unseen }) = change.surroundings {
            self.snapshot.qos = qos;
            self.snapshot.cards = cards;
            self.snapshot.occupied = occupied;
            self.snapshot.unseen = unseen;
        }
        for pod in change.gone {
            self.pods.remove(&pod);
        }
        self.pods.extend(change.pods.into_iter().map(|record| (record.id.clone(), record)));
    }

    /// The pool as it is now. Refused when what was taken in contradicts itself.
    pub fn pool(self) -> Result<Pool, Violation> {
        let Self { mut snapshot, pods } = self;
        snapshot.pods = pods.into_values().collect();
        Pool::restore(snapshot)
    }
}
