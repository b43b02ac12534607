//! The release before beside this one: agents are replaced under programs that keep the shim they were started with, in
//! both directions. `cargo xtask test upgrade` says so where that release cannot be had.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a surprise is a failure"
)]

#[path = "../fixtures/agent_node.rs"]
mod agent_node;
mod replaced_agents;
