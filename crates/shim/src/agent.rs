//! The agent's socket, and the pages that came through it.
//!
//! * [`conversation`]: what is said, and how often; pure but for its link;
//! * [`waiting`]: the lines that a waiting program reads;
//! * [`connection`]: the real socket, clock and standard error;
//! * [`pages`]: the limits, the card table and the ledger, mapped.
//!
//! This room knows nothing of CUDA, nor of what the process does with a lease.

pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod pages;
mod waiting;
