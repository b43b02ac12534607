//! What can be seen of the pool: for status, metrics and the pages that programs read.

use super::action::Why;
use super::config::{Limits, PodSpec};
use super::ident::{CardUuid, LeaseId, Millis, PodId};

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum PodState {
    /// Holds nothing and waits for nothing.
    Hibernating,
    /// Waits in the queue.
    Ready,
    /// Holds a lease.
    Running,
}

/// A pod as the pool knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView<'a> {
    /// Its name.
    pub pod: &'a PodId,
    /// What it asks for.
    pub spec: &'a PodSpec,
    /// Where it stands.
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
    /// Who holds it.
    pub pod: &'a PodId,
    /// Its number.
    pub lease: LeaseId,
    /// The card.
    pub card: &'a CardUuid,
    /// Since when.
    pub since: Millis,
    /// What it lets the pod use, and charges to the card.
    pub limits: Limits,
    /// Since when the pod has been idle; `None` when it works.
    pub idle_since: Option<Millis>,
    /// Set once the pod has been told to terminate.
    pub ending: Option<&'a Ending>,
}

/// A lease that is coming to its end: its pod has been told to terminate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ending {
    /// Why.
    pub why: Why,
    /// When it was told.
    pub told_at: Millis,
    /// When its grace is over.
    pub kill_at: Millis,
    /// Whether SIGKILL has been ordered.
    pub killed: bool,
}

/// A pod in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView<'a> {
    /// Who.
    pub pod: &'a PodId,
    /// 1 is next. Under `static`, within the queue of its card.
    pub position: u32,
    /// The number it got when it became ready: lower came first.
    pub number: u64,
    /// Since when it waits.
    pub since: Millis,
    /// The one card it can get, if only one will do.
    pub only: Option<&'a CardUuid>,
}

/// A card and what is taken of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardView<'a> {
    /// What it is known by.
    pub uuid: &'a CardUuid,
    /// Its number on this machine.
    pub index: u32,
    /// Whether it is lost.
    pub lost: bool,
    /// Charged by leases, percent, 0 to 100: core.
    pub core_used: u32,
    /// Charged by leases, percent, 0 to 100: memory.
    pub memory_used: u32,
    /// Who holds it, in the order of the grants.
    pub pods: Vec<&'a PodId>,
}
