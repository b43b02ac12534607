//! The simulated cards as this process has them: what environment variables set, which cards are visible, what they
//! say of themselves, and the queue of work of each.
//!
//! This room must not know CUDA's objects: it deals in cards, bytes and nanoseconds.

pub(crate) mod attributes;
pub(crate) mod engine;
pub(crate) mod environment;
pub(crate) mod host_call;
pub(crate) mod initialised;
mod injection;
pub(crate) mod interprocess_time;
mod kernel_time;
pub(crate) mod segments;
mod visible;
