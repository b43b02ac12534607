//! The agent on a node with a real kubelet and a real container runtime, under a real API server. Policy and limits are
//! written here as the control plane would write them; nothing else of gpupool runs.
//!
//! These tests need root. The cards are simulated. What `cargo xtask dist` builds is built first unless `GPUPOOL_DIST` says
//! where it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is all test code, its helpers included"
)]

mod fixed;
mod forged;
mod pool;
mod reboot;
mod scene;
