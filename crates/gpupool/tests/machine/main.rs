//! One machine as people use it: `gpupool run`, `status`, `stop` and `demo` on simulated cards, from a laid-out gpupool.
//! They need `GPUPOOL_DIST`; without it they fail and say so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is all test code, its helpers included"
)]

mod agreement;
mod demo;
mod ends;
mod held;
#[path = "../agent_node/mod.rs"]
mod node;
mod run;
mod status;
