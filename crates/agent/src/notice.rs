//! What the owners of pods are told. Written where they look by whoever speaks with the API server.
//!
//! No process of a pod is signalled without that: a [`Warrant`] is all that a process handle takes, and who wants one says
//! why.

use gpupool_core::pool::{self, CardUuid, Millis, TerminationReason};
use gpupool_core::sharing::names;
use rustix::process::Signal;

use crate::pod::{Maker, PodRef, Rejection};

/// Why a pod's processes are ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The pool's reason to end a lease; also that of `gpupool stop`.
    Pool(TerminationReason),
    /// It takes more memory than its limit past its ledger, as this sentence says.
    OverLimit(String),
}

impl Cause {
    /// The word for it, where the owners of pods look.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Pool(TerminationReason::Preempted { .. }) => names::PREEMPTED,
            Self::Pool(TerminationReason::IdleRelease { .. }) => names::IDLE_RELEASED,
            Self::Pool(TerminationReason::CardLost) => names::CARD_LOST,
            Self::Pool(TerminationReason::Stopped) => names::STOPPED,
            Self::OverLimit(_) => names::EVICTED,
        }
    }
}

/// A pod's processes are ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Termination {
    /// Why.
    pub(crate) cause: Cause,
    /// When they were told to go, by the clock that runs from the boot on.
    pub(crate) told_at: pool::Timestamp,
    /// Set once they have outlived this grace, and are killed.
    pub(crate) outlived: Option<Millis>,
    /// The card that they hold.
    pub(crate) card: Option<CardUuid>,
}

/// The right to signal a pod's processes.
#[derive(Debug, Clone)]
pub(crate) struct Warrant(Signal);

impl Warrant {
    /// Has it told why, and gives the right: to SIGTERM, and after the grace to SIGKILL.
    pub(crate) fn issue(termination: Termination, tell: impl FnOnce(Termination)) -> Self {
        let signal = if termination.outlived.is_some() { Signal::KILL } else { Signal::TERM };
        tell(termination);
        Self(signal)
    }

    /// The signal.
    pub(crate) fn signal(&self) -> Signal {
        self.0
    }
}

/// Something to tell the owners of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// One makes room for another.
    Preempted {
        /// Who gives up its card.
        victim: PodRef,
        /// For whom.
        beneficiary: PodRef,
        /// When, by the clock that runs from the boot on. It names the Events: said again after a restart, they are
        /// the same ones.
        at: pool::Timestamp,
    },
    /// A pod's processes are ended for another reason than a pre-emption, or killed for whatever reason.
    Ended {
        /// Whose.
        pod: PodRef,
        /// Why, and how far it has come.
        termination: Termination,
        /// For whom, where it makes room.
        beneficiary: Option<PodRef>,
        /// Whether the pod can't have another card.
        fixed: bool,
    },
    /// A pod gets no place in the pool.
    Rejected {
        /// Which.
        pod: PodRef,
        /// Why.
        why: Rejection,
    },
    /// The agent's check on the shim has found something about a pod.
    Found {
        /// Which.
        pod: PodRef,
        /// The Event's reason.
        reason: &'static str,
        /// What it says.
        sentence: String,
    },
    /// The kubelet has turned a pod away for good, because nobody had registered a card that works.
    NotAdmitted {
        /// Which.
        pod: PodRef,
        /// Who makes it anew.
        maker: Maker,
    },
    /// A pod that was turned away has got its place.
    Admitted {
        /// Which.
        pod: PodRef,
    },
}
