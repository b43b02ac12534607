//! Which of several controllers writes: by a `coordination.k8s.io/v1` Lease, shown by a label on the leader's pod.
//!
//! The rules are pure and in `election`; `candidate` plays them against the API server. What the leader then does is
//! none of this room's business.

mod candidate;
mod election;
mod pod_label;

pub(crate) use candidate::Candidate;
pub use pod_label::LEADER_LABEL;
pub(crate) use pod_label::keep_pod_label;
