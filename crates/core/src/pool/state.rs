//! The states of a pod and of a lease that is being taken back, as records keep them and views show them.

use super::action::TerminationReason;
use super::time::Timestamp;

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

/// A lease that is coming to its end: its pod has been told to terminate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ending {
    /// Why.
    pub why: TerminationReason,
    /// When it was told.
    pub told_at: Timestamp,
    /// When its grace is over.
    pub kill_at: Timestamp,
    /// When SIGKILL was ordered; `None` before that.
    pub killed_at: Option<Timestamp>,
}
