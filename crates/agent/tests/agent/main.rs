//! The agent as programs meet it on its socket. It runs on simulated cards from a laid-out gpupool: what `cargo xtask
//! dist` builds is built first unless `GPUPOOL_DIST` says where it is.
//!
//! Each test has an agent of its own. The test's process registers itself, as `gpupool run` would, and then talks to the
//! agent as the shim does; where several processes are needed, they are shells that register nothing and belong to it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is all test code, its helpers included"
)]

mod answering;
mod core_limit;
mod descriptors;
mod full_disk;
mod hostile;
mod journal;
mod leases;
mod log;
mod matrix;
mod node;
mod occupied;
mod passed;
mod program;
mod scrapers;
