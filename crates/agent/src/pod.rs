//! A pod of a cluster as far as the agent is concerned: which object it is, and what it asks for.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::share::Share;
use serde::{Deserialize, Serialize};

/// Which object a pod is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRef {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name there.
    pub(crate) name: String,
    /// The object's UID: another pod under the same name has another.
    pub(crate) uid: String,
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// A pod of this node that asks for a share of a card, rightly or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodOnNode {
    /// What its cgroup is called after.
    pub(crate) id: PodId,
    /// The object.
    pub(crate) reference: PodRef,
    /// What it asks for, or why it can't have it.
    pub(crate) asks: Result<Asks, Rejection>,
    /// Its condition says that it was turned away.
    pub(crate) turned_away: bool,
    /// The card in its annotation.
    pub(crate) card: Option<CardUuid>,
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asks {
    /// The policy of the nodes that it is for.
    pub(crate) policy: Policy,
    /// Of a card's computing time.
    pub(crate) core: Share,
    /// Of a card's memory.
    pub(crate) memory: Share,
    /// Higher goes first in the queue.
    pub(crate) priority: i32,
    /// `static`: the card that was chosen for it, where one was.
    pub(crate) card: Option<CardUuid>,
}

/// Why a pod has no place in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// One word, for the condition.
    pub(crate) reason: &'static str,
    /// What is wrong and what to do.
    pub(crate) sentence: String,
}

impl Rejection {
    pub(crate) fn new(reason: &'static str, sentence: String) -> Self {
        Self { reason, sentence }
    }
}

/// What the API server says about this node's pods.
#[derive(Debug)]
pub(crate) enum PodNews {
    /// The pod is there, like this.
    Present(PodOnNode),
    /// It has finished, or is not there any more.
    Gone(PodId),
    /// These are there, and no others.
    Listed(Vec<PodOnNode>),
}
