//! Why the pool says no, in the sentences that users read.

use super::ident::{CardUuid, LeaseId, PodId};

use std::fmt;

/// An event that the pool does not accept. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
pub enum Refusal {
    /// No pod of this name is on the node; a removed one is forgotten when its lease is over.
    #[error("`{pod}` is not known on this node: register it first")]
    UnknownPod {
        /// The name that the event gave.
        pod: PodId,
    },
    /// A pod of this name is on the node.
    #[error("`{pod}` is already on this node: choose another name, or wait until it has ended")]
    PodExists {
        /// The name that the event gave.
        pod: PodId,
    },
    /// Removed, but its lease is not over.
    #[error("`{pod}` was stopped but its GPU processes are not gone yet: try again when they are")]
    PodLeaving {
        /// The name that the event gave.
        pod: PodId,
    },
    /// The requests don't fit on the node's healthy cards.
    #[error(
        "no room for a {resource} request of {asked}: {placed} of {total} percent are already requested on {cards} healthy card(s); \
         ask for at most {}, or wait until others have ended", .total.saturating_sub(*.placed)
    )]
    NoRoom {
        /// The dimension that is short.
        resource: Resource,
        /// The request, percent of one card.
        asked: u32,
        /// Requested by the other pods, percent of one card.
        placed: u32,
        /// What there is: 100 for each healthy card.
        total: u32,
        /// How many healthy cards there are.
        cards: u32,
    },
    /// `static`: the request doesn't fit on the pod's card.
    #[error(
        "no room on card {card} for a {resource} request of {asked}: {placed} of 100 percent are already requested there; \
         choose another card, or wait until others have ended"
    )]
    NoRoomOnCard {
        /// The pod's card, whose requests are full.
        card: CardUuid,
        /// The dimension that is short.
        resource: Resource,
        /// The request, percent of one card.
        asked: u32,
        /// Requested there by the other pods, percent of one card.
        placed: u32,
    },
    /// `static`: the requests fit on no healthy card.
    #[error(
        "none of the {cards} healthy card(s) has room for requests of {core} core and {memory} memory: ask for less, \
         or wait until others have ended"
    )]
    NoCardFits {
        /// The core request, percent of one card.
        core: u32,
        /// The memory request, percent of one card.
        memory: u32,
        /// How many healthy cards there are.
        cards: u32,
    },
    /// The pool has no card of this UUID.
    #[error("card {card} is not known on this node")]
    UnknownCard {
        /// The UUID that the event gave.
        card: CardUuid,
    },
    /// The pool has a card of this UUID.
    #[error("card {card} is already in the pool")]
    CardExists {
        /// The UUID that the event gave.
        card: CardUuid,
    },
    /// A `static` pod can't be put on a lost card.
    #[error("card {card} is lost: choose another, or wait until it is back")]
    CardIsLost {
        /// The card.
        card: CardUuid,
    },
    /// `share-pool` pods have no card of their own.
    #[error("`{pod}` names card {card}, but this node shares its cards as one pool: leave the card out")]
    CardNotForPool {
        /// The pod that the event is about.
        pod: PodId,
        /// The card that its specification names.
        card: CardUuid,
    },
    /// The pod has a card, and it isn't that one.
    #[error("`{pod}` has card {card} and can't use card {asked}: end its processes and start them again")]
    OtherCard {
        /// The pod.
        pod: PodId,
        /// The card it holds, or is fixed to.
        card: CardUuid,
        /// The card that was asked for.
        asked: CardUuid,
    },
    /// The pod doesn't hold that lease.
    #[error("`{pod}` does not hold lease {lease}: it is over already")]
    StaleLease {
        /// The pod.
        pod: PodId,
        /// The lease that the event gave.
        lease: LeaseId,
    },
}

impl Refusal {
    /// The reason as one word that never changes: for metrics, Events and conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPod { .. } => "UnknownPod",
            Self::PodExists { .. } => "PodExists",
            Self::PodLeaving { .. } => "PodLeaving",
            Self::NoRoom { .. } => "NoRoom",
            Self::NoRoomOnCard { .. } => "NoRoomOnCard",
            Self::NoCardFits { .. } => "NoCardFits",
            Self::UnknownCard { .. } => "UnknownCard",
            Self::CardExists { .. } => "CardExists",
            Self::CardIsLost { .. } => "CardIsLost",
            Self::CardNotForPool { .. } => "CardNotForPool",
            Self::OtherCard { .. } => "OtherCard",
            Self::StaleLease { .. } => "StaleLease",
        }
    }
}

/// One of the two things that a card has and pods share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
pub enum Resource {
    /// Computing time: `alibabacloud.com/gpu-core.percentage`.
    Core,
    /// Device memory: `alibabacloud.com/gpu-memory.percentage`.
    Memory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Core => "core",
            Self::Memory => "memory",
        })
    }
}
