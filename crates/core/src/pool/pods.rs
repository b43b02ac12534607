//! The pods of the node and where each of them stands.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use super::config::{Limits, PodSpec};
use super::fit::CardSlot;
use super::ident::{LeaseId, PodId};
use super::refusal::Refusal;
use super::time::Timestamp;
use super::view::Ending;

/// A pod by its place in [`Pods`]: cheaper than its name to follow. Never decides anything: a restored pool has
/// other slots.
pub(super) type PodSlot = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct PodRecord {
    pub(super) id: PodId,
    pub(super) spec: PodSpec,
    /// `static`: the pod's card.
    pub(super) fixed: Option<CardSlot>,
    /// Removed; only its lease is still there.
    pub(super) leaving: bool,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Phase {
    Hibernating,
    Ready(Waiting),
    Running(Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Waiting {
    /// Given once, when the pod became ready.
    pub(super) number: u64,
    pub(super) since: Timestamp,
    /// The card that the pod's living processes are bound to.
    pub(super) only: Option<CardSlot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) card: CardSlot,
    pub(super) since: Timestamp,
    /// What it charges to the card.
    pub(super) limits: Limits,
    pub(super) idle_since: Option<Timestamp>,
    pub(super) ending: Option<Ending>,
    /// SIGKILL was long ago: nobody waits for this share any more.
    pub(super) stuck: bool,
    /// A process asked after the pod was told to terminate.
    pub(super) again: Option<Again>,
}

/// A pod that will wait again as soon as its lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Again {
    pub(super) only: Option<CardSlot>,
}

impl PodRecord {
    pub(super) const fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Running(lease) => Some(lease),
            _ => None,
        }
    }

    pub(super) const fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.phase {
            Phase::Running(lease) => Some(lease),
            _ => None,
        }
    }

    /// The one card that the pod can get, if only one will do.
    pub(super) fn only(&self) -> Option<CardSlot> {
        self.fixed.or_else(|| self.waiting()?.only)
    }

    pub(super) const fn waiting(&self) -> Option<&Waiting> {
        match &self.phase {
            Phase::Ready(waiting) => Some(waiting),
            _ => None,
        }
    }
}

/// All pods: by slot for the pool's own lists, by name for events and for an order that can be replayed.
#[derive(Debug, Clone, Default)]
pub(super) struct Pods {
    /// Those in `free` are of pods that have gone, until their place is given away.
    records: Vec<PodRecord>,
    free: Vec<PodSlot>,
    names: BTreeMap<PodId, PodSlot>,
}

impl Pods {
    pub(super) fn insert(&mut self, record: PodRecord) -> PodSlot {
        let id = record.id.clone();
        let slot = if let Some(slot) = self.free.pop() {
            self.records[slot] = record;
            slot
        } else {
            self.records.push(record);
            self.records.len() - 1
        };
        self.names.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: PodSlot) {
        if self.names.remove(&self.records[slot].id).is_some() {
            self.free.push(slot);
        }
    }

    pub(super) fn find(&self, id: &PodId) -> Option<PodSlot> {
        self.names.get(id).copied()
    }

    /// The slot of a pod that an event names.
    pub(super) fn known(&self, id: &PodId) -> Result<PodSlot, Refusal> {
        self.find(id).ok_or_else(|| Refusal::UnknownPod { pod: id.clone() })
    }

    /// The same for events that a removed pod can't have any more.
    pub(super) fn staying(&self, id: &PodId) -> Result<PodSlot, Refusal> {
        let slot = self.known(id)?;
        if self[slot].leaving { Err(Refusal::PodLeaving { pod: id.clone() }) } else { Ok(slot) }
    }

    /// In name order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PodSlot, &PodRecord)> {
        self.names.values().map(|slot| (*slot, &self[*slot]))
    }
}

impl Index<PodSlot> for Pods {
    type Output = PodRecord;

    fn index(&self, slot: PodSlot) -> &PodRecord {
        &self.records[slot]
    }
}

impl IndexMut<PodSlot> for Pods {
    fn index_mut(&mut self, slot: PodSlot) -> &mut PodRecord {
        &mut self.records[slot]
    }
}
