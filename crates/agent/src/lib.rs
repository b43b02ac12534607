//! The agent: one per node. It drives the pool, knows who is calling, and hands out leases.
//!
//! Programs, people and the kernel speak here; their words become events of the pool (`gpupool_core`), and its
//! decisions become messages, signals and pages of shared memory. Who gets a card is never decided here.

pub mod identity;
pub mod journal;
pub mod lock;
pub mod peer;
pub mod procfs;
pub mod shared_memory;
pub mod socket_path;
pub mod cards;
pub mod control;
pub mod pages;
