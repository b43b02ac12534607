//! What the pool tells the agent to do.

use std::fmt;

use super::config::Limits;
use super::ident::{CardUuid, LeaseId, PodId};
use super::time::Timestamp;

/// A decision, to be carried out in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
pub enum Action {
    /// The pod holds the card from now on.
    Grant {
        /// The pod that was at the head of its queue.
        pod: PodId,
        /// The card with room for its limits; of several the one left fullest.
        card: CardUuid,
        /// The lease's number, which [`super::Event::Released`] repeats.
        lease: LeaseId,
        /// What the lease lets the pod use, charged to the card until [`super::Event::Released`].
        limits: Limits,
    },
    /// A running pod makes room for the head of the queue. Said once for each pair, before the victim's
    /// [`Action::Terminate`].
    Preempted {
        /// The running pod that gives up its card.
        victim: PodId,
        /// The head of the queue, which no card had room for.
        beneficiary: PodId,
        /// The card that the victim holds.
        card: CardUuid,
    },
    /// Send SIGTERM to the pod's GPU processes.
    Terminate {
        /// The pod whose lease ends.
        pod: PodId,
        /// The card that the lease is of.
        card: CardUuid,
        /// The lease, as its [`Action::Grant`] numbered it.
        lease: LeaseId,
        /// Why, in the sentence that the pod's owner reads.
        why: TerminationReason,
        /// When the grace is over and [`Action::Kill`] follows.
        kill_at: Timestamp,
    },
    /// The grace is over: send SIGKILL to the pod's GPU processes. Said once a lease.
    Kill {
        /// The pod whose processes outlived the grace.
        pod: PodId,
        /// The card that the lease is of.
        card: CardUuid,
        /// The lease, as its [`Action::Grant`] numbered it.
        lease: LeaseId,
        /// The reason that [`Action::Terminate`] gave.
        why: TerminationReason,
    },
    /// The pod's lease is over and its share is back; the pod hibernates, or is gone if it was removed. When one of
    /// its processes asked after it was told to go, it waits again at once, at the tail of the queue.
    Hibernated {
        /// The pod that holds nothing any more.
        pod: PodId,
        /// The card that the lease was of.
        card: CardUuid,
        /// The lease that is over.
        lease: LeaseId,
        /// Why it was told to terminate; `None` when it ended by itself.
        why: Option<TerminationReason>,
    },
    /// What a running pod may use has changed.
    LimitsChanged {
        /// The running pod.
        pod: PodId,
        /// What its lease lets it use from now on.
        limits: Limits,
    },
}

/// Why a running pod is told to terminate. Its text is the sentence that the pod's owner reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub enum TerminationReason {
    /// It had held its card for `podMaxDuration`, and another couldn't be placed.
    Preempted {
        /// The head of the queue at that moment.
        by: PodId,
    },
    /// It had been idle for `idleRelease`, and another couldn't be placed.
    IdleRelease {
        /// The head of the queue at that moment.
        by: PodId,
    },
    /// Its card doesn't work any more.
    CardLost,
    /// It was removed from the node.
    Stopped,
}

impl fmt::Display for TerminationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preempted { by } => {
                write!(f, "pre-empted for `{by}`: its time on the card was up and `{by}` waits for room")
            }
            Self::IdleRelease { by } => {
                write!(f, "released for `{by}`: it was idle and `{by}` waits for room")
            }
            Self::CardLost => f.write_str("its card is lost"),
            Self::Stopped => f.write_str("it was stopped"),
        }
    }
}
