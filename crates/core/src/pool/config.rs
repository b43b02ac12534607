//! What the pool is told at the start: cards, policy, quality of service; and of each pod, what it asks for.

use super::ident::CardUuid;
use super::time::Millis;
use crate::share::{Percent, Share};

/// One card of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Card {
    /// By this the card is known everywhere: it stays when indices move.
    pub uuid: CardUuid,
    /// NVML's index at this moment, from 0: breaks ties between cards, and is shown to people.
    pub index: u32,
}

/// How the node's cards are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// One queue for all cards; a pod gets whichever card has room for it.
    SharePool,
    /// One queue per card; a pod's card is settled when the pod is added. Nobody is pre-empted.
    Static,
}

/// When a running pod may be asked to give up its card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Qos {
    /// Whether pods that have held a card long enough make room for one that waits. Has no effect under
    /// [`Policy::Static`].
    pub preempt_enabled: bool,
    /// How long a pod holds a card undisturbed. Longer is fine while nobody waits.
    pub pod_max_duration: Millis,
    /// Between SIGTERM and SIGKILL. A change counts for the pods that are told to go after it.
    pub grace: Millis,
    /// A pod that has been idle for this long makes room for one that waits, whatever the other settings say:
    /// under both policies, with pre-emption on or off. `None`: never.
    pub idle_release: Option<Millis>,
}

/// Everything a new pool needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// The cards, in any order; no UUID twice. May be empty: cards can come later.
    pub cards: Vec<Card>,
    /// One queue for all cards, or one for each.
    pub policy: Policy,
    /// When running pods make room.
    pub qos: Qos,
    /// Whether a pod is refused when the requests of all pods would exceed the healthy cards (under
    /// [`Policy::Static`]: its card). Off where somebody else places pods, as the scheduler does in a cluster.
    pub check_requests: bool,
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct PodSpec {
    /// Percent of a card's computing time, request and limit, each from 1 to 100.
    pub core: Share,
    /// Percent of a card's memory, request and limit, each from 1 to 100.
    pub memory: Share,
    /// Higher goes first in the queue. Says nothing about who may be pre-empted.
    pub priority: i32,
    /// [`Policy::Static`] only: the card chosen for the pod. `None`: the pool chooses.
    pub card: Option<CardUuid>,
}

/// What a lease lets a pod use of its card, and what it keeps others from using.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Limits {
    /// Percent of the card's computing time, from 1 to 100.
    pub core: Percent,
    /// Percent of the card's memory, from 1 to 100.
    pub memory: Percent,
}

impl PodSpec {
    /// The limits that the pod's next lease has.
    pub const fn limits(&self) -> Limits {
        Limits { core: self.core.limit(), memory: self.memory.limit() }
    }
}
