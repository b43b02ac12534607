//! GPU sharing on real kubelets, as the published page walks through it, with plain kubectl.
//!
//! One cluster serves all: two nodes with simulated cards, one of them the published machine, and gpupool installed
//! from its chart. It needs root, and what `cargo xtask dist` builds: done first unless
//! `GPUPOOL_DIST` says where it is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod faults;
mod notebook;
mod published;
mod scene;
