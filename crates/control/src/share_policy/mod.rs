//! The share policy of nodes: what is in force is marked on the node, told in its conditions, and shown in what it
//! advertises.
//!
//! Pure. The decision itself is `gpupool_core::sharing`'s; this room takes a node and its pods apart for it, and turns
//! what comes out into steps, one at a time:
//!
//! 1. the marks: the policy in force, its quality of service, what is reserved, and what was there before;
//! 2. the status: the two conditions; on nodes without a kubelet the percentages and what is left of `allocatable`.
//!
//! Where a kubelet runs, it writes `allocatable` itself, and a webhook subtracts what the marks say whenever a status
//! is written; the second step is then what makes it act at once.

pub mod pods;
mod steps;
mod view;
mod write;

pub use steps::next;
pub use view::View;
pub use write::{Marks, StatusChange, after_marks, after_status, marks_body, status_body};
