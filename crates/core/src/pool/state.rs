//! The states of a pod and of a lease that is being taken back, as records keep them and views show them.

use super::action::TerminationReason;
use super::time::Timestamp;

/// The state of a pod; the metric `DCGM_FI_POOLING_STATUS` numbers them 0, 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum PodState {
    /// Holds nothing and waits for nothing.
    Hibernating,
    /// Waits in the queue; its position counts from 1.
    Ready,
    /// Holds a lease, also while that is being taken back ([`Ending`]).
    Running,
}

/// A lease that is coming to its end: its pod has been told to terminate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Ending {
    /// Why, as [`super::Action::Terminate`] said it.
    pub why: TerminationReason,
    /// When SIGTERM was ordered.
    pub told_at: Timestamp,
    /// When SIGKILL follows: [`super::Qos::grace`] after `told_at`, as the grace was then.
    pub kill_at: Timestamp,
    /// When SIGKILL was ordered; `None` before that.
    pub killed_at: Option<Timestamp>,
}
