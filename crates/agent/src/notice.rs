//! What the owners of pods are told. Written where they look by whoever speaks with the API server.

use gpupool_core::pool;

use crate::pod::{PodRef, Rejection};

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
    /// A pod that was turned away has got its place.
    Admitted {
        /// Which.
        pod: PodRef,
    },
}
