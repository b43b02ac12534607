//! Sharing on Kubernetes: what pods and nodes ask for, through the public face of `gpupool_core::sharing`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod admission;
mod namespaces;
mod nodes;
mod pods;
