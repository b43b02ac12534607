//! The agent: one per node. It drives the pool, knows who is calling, and hands out leases.
//!
//! Programs, people and the kernel speak here; their words become events of the pool (`gpupool_core`), and its
//! decisions become messages, signals and pages of shared memory. Who gets a card is never decided here.

pub(crate) mod accounting;
mod books;
pub mod cards;
pub mod control;
mod core_limit;
mod driver;
mod identity;
mod journal;
pub mod kubernetes;
mod lock;
mod metrics;
mod pages;
mod peer;
mod procfs;
mod restart;
mod server;
mod shared_memory;
pub mod socket_path;

pub use journal::JournalError;
pub use lock::LockError;
pub use restart::RestartError;
pub use server::{AgentError, Settings, serve};
