//! The pods of the node and where each of them stands.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use super::config::{Limits, PodSpec};
use super::ident::{CardSlot, LeaseId, PodId, PodSlot};
use super::refusal::Refusal;
use super::state::{Ending, PodState};
use super::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct PodRecord {
    pub(super) id: PodId,
    pub(super) spec: PodSpec,
    /// `static`: the pod's card.
    pub(super) fixed: Option<CardSlot>,
    /// Removed; only its lease is still there.
    pub(super) leaving: bool,
    /// Written down as `phase`, its name in journals since the first.
    #[cfg_attr(feature = "serde", serde(rename = "phase"))]
    pub(super) state: StateRecord,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum StateRecord {
    Hibernating,
    Ready(Waiting),
    Running(Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Waiting {
    /// Given once, when the pod became ready.
    pub(super) number: u64,
    pub(super) since: Timestamp,
    /// The card that the pod's living processes are bound to.
    pub(super) only: Option<CardSlot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Again {
    pub(super) only: Option<CardSlot>,
}

impl PodRecord {
    /// The state as the pool shows it.
    pub(super) const fn pod_state(&self) -> PodState {
        match self.state {
            StateRecord::Hibernating => PodState::Hibernating,
            StateRecord::Ready(_) => PodState::Ready,
            StateRecord::Running(_) => PodState::Running,
        }
    }

    pub(super) const fn lease(&self) -> Option<&Lease> {
        match &self.state {
            StateRecord::Running(lease) => Some(lease),
            _ => None,
        }
    }

    pub(super) const fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.state {
            StateRecord::Running(lease) => Some(lease),
            _ => None,
        }
    }

    /// The one card that the pod can get, if only one will do.
    pub(super) fn only(&self) -> Option<CardSlot> {
        self.fixed.or_else(|| self.waiting()?.only)
    }

    pub(super) const fn waiting(&self) -> Option<&Waiting> {
        match &self.state {
            StateRecord::Ready(waiting) => Some(waiting),
            _ => None,
        }
    }
}

impl Lease {
    /// Whether its pod was told to go and is expected to.
    pub(super) const fn is_coming_back(&self) -> bool {
        self.ending.is_some() && !self.stuck
    }
}

/// All pods: by slot for the pool's own lists, by name for events and for an order that can be replayed.
#[derive(Debug, Clone, Default)]
pub(super) struct Pods {
    /// Those in `free` are of pods that have gone, until their place is given away.
    records: Vec<PodRecord>,
    free: Vec<PodSlot>,
    names: BTreeMap<PodId, PodSlot>,
    /// Whoever may have changed since this was last forgotten, some more than once.
    touched: Vec<PodSlot>,
    /// Who has gone since then.
    gone: Vec<PodId>,
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
        self.touched.push(slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: PodSlot) {
        if self.names.remove(&self.records[slot].id).is_some() {
            self.gone.push(self.records[slot].id.clone());
            self.free.push(slot);
        }
    }

    /// From now on it is noted anew who changes and who goes.
    pub(super) fn forget_touched(&mut self) {
        self.touched.clear();
        self.gone.clear();
    }

    /// Everybody who is here and may have changed since then, once.
    pub(super) fn touched(&self) -> impl Iterator<Item = &PodRecord> {
        let slots: BTreeSet<PodSlot> = self.touched.iter().copied().collect();
        let records = slots.into_iter().map(|slot| (slot, &self[slot]));
        records.filter(|(slot, record)| self.find(&record.id) == Some(*slot)).map(|(_, record)| record)
    }

    /// Who has gone since then.
    pub(super) fn gone(&self) -> &[PodId] {
        &self.gone
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
        if self.touched.last() != Some(&slot) {
            self.touched.push(slot);
        }
        &mut self.records[slot]
    }
}
