//! Where pods that ask for GPUs may go: which nodes, and for `static` pods which card.
//!
//! The scheduler asks for each pod and many nodes; the answers come from what nodes and pods were last seen to be,
//! and from what was decided since. Sums over a node (do its percentages suffice for one more request?) are the
//! scheduler's own arithmetic and not repeated here. What is decided here is what the scheduler cannot see: that a
//! request fits on *one* card, that exclusive pods stay off shared nodes, that a pod goes where its own policy is
//! in force. It knows no Kubernetes object and no wire format.

mod cluster;
mod room;

use crate::share::{Percent, Share};
use crate::sharing::Policy;

pub use cluster::{Cluster, PlacementNode, PlacementPod};
pub use room::{Card, Room};

/// What a pod wants of GPUs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Demand {
    /// No GPU at all, or no percentage of one.
    None,
    /// Cards for itself, whole (`nvidia.com/gpu`) or in parts.
    Exclusive,
    /// A share of one card, on a node with that policy.
    Shared {
        /// The policy that the pod's label names.
        policy: Policy,
        /// Percent of one card's computing time, request and limit.
        core: Share,
        /// Percent of one card's memory, request and limit.
        memory: Share,
    },
}

impl Demand {
    /// What must be free on one card: the requests, core and memory.
    fn requests(self) -> Option<(Percent, Percent)> {
        match self {
            Self::Shared { core, memory, .. } => Some((core.request(), memory.request())),
            Self::None | Self::Exclusive => None,
        }
    }
}

/// Why a pod may not go to a node. The texts name no node and hold no percent sign: the scheduler counts equal ones
/// together, and sends them through a format that takes the sign for its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// The node has never been seen.
    #[error("gpupool has not seen this node yet")]
    Unknown,
    /// The pod wants a share, and the node shares nothing.
    #[error("no gpu share policy is in force (label the node alibabacloud.com/gpu-share-policy={})", wanted)]
    NotShared {
        /// The pod's policy.
        wanted: Policy,
    },
    /// The pod wants another policy than the one in force.
    #[error("the gpu share policy in force is {}, the pod is for {}", in_force, wanted)]
    OtherPolicy {
        /// The node's policy.
        in_force: Policy,
        /// The pod's policy.
        wanted: Policy,
    },
    /// The pod wants cards for itself, and the node shares them.
    #[error("its cards are shared ({}), the pod asks for cards or parts of them for itself", in_force)]
    Shares {
        /// The node's policy.
        in_force: Policy,
    },
    /// A card must be chosen, and nobody has said which there are.
    #[error("its cards are not known yet (the agent there has not named them)")]
    CardsUnknown,
    /// None of the cards has room for the requests.
    #[error("no single card has room for both requests")]
    NoRoom,
}

impl Unfit {
    /// Whether room made by other pods' leaving could change it.
    pub const fn may_be_resolved_by_room(self) -> bool {
        matches!(self, Self::NoRoom)
    }
}
