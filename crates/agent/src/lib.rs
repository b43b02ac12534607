//! The agent: one per node. It drives the pool, knows who is calling, and hands out leases.
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

pub(crate) mod accounting;
mod books;
pub mod cards;
mod cgroup;
pub mod control;
mod core_limit;
mod driver;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod inquiry;
mod journal;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod lock;
mod metrics;
mod notice;
mod pages;
mod peer;
mod pod;
mod procfs;
mod restart;
mod server;
mod shared_memory;
pub mod socket_path;

pub use journal::JournalError;
pub use lock::LockError;
pub use restart::RestartError;
pub use server::{AgentError, Settings, serve};
