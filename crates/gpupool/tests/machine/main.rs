//! One machine as people use it: `gpupool run`, `status`, `stop` and `demo` on simulated cards, from a laid-out gpupool.
//! What `cargo xtask dist` builds is built first unless `GPUPOOL_DIST` says where it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is all test code, its helpers included"
)]

#[path = "../fixtures/agent_node.rs"]
mod agent_node;
mod agreement;
#[path = "../fixtures/card_holders.rs"]
mod card_holders;
mod demo;
mod ends;
mod held;
mod hostile;
mod lost_journal;
mod measured;
mod preload;
mod run;
mod status;
