//! The agent: one per node. It owns the pool of its cards, knows who is calling, and hands out leases.
//!
//! Programs, people and the kernel speak here; their words become events of the pool (`gpupool_core`), and its
//! decisions become messages, signals and pages of shared memory. Who gets a card is never decided here.

#![cfg_attr(
    not(feature = "kubernetes"),
    allow(
        dead_code,
        reason = "what the agent says to a cluster and hears from it stays in, and nobody uses it"
    )
)]

#[doc(hidden)]
pub mod fuzzing;

mod server;

#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod pool_task;

mod event;

mod metrics;

pub mod admin_api;
mod restart;

mod environment;

mod registry;
mod usage_audit;

pub mod cards;
mod core_limit;
mod identity;
mod inquiry;
mod notice;
mod packet_socket;
mod pages;
mod peer;

mod clock;
mod journal;
mod lock;
#[cfg(test)]
mod log;
mod pod;
mod procfs;
mod shared_memory;
pub mod socket_path;
mod worker;

pub use journal::JournalError;
pub use lock::LockError;
pub use packet_socket::PassedDescriptors;
pub use pool_task::UnservedPrograms;
pub use restart::RestartError;
pub use server::{AgentError, LogHooks, Settings, serve};
pub use worker::WorkerEnded;
