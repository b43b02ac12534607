//! GPU Operator's `ClusterPolicy`: whether the kind is defined, what its objects say, and the settings that follow.
//!
//! It knows no nodes.

mod follow;
mod policies;

pub(crate) use follow::follow;
pub(crate) use policies::{ClusterPolicies, DEFINITION, resource};
