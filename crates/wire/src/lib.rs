//! What the library inside GPU programs (the shim) and the agent share: messages, and three pieces of shared memory.
//!
//! This room knows layouts and the few rules that both sides must keep in the same way: how a frame is recognised,
//! how the memory ledger is counted so that no kill can falsify it, how the limits page is read without tearing.
//! It must not know sockets, descriptors, mappings, clocks or CUDA: each side brings its own. It is `no_std` and
//! never allocates, since one of its users lives inside other people's programs.
//!
//! Whatever arrives here was written by somebody else and is hostile until it has been checked: every decoder is
//! bounded by the bytes it was given, answers with an error value, and never panics.
//!
//! * [`message`]: frames on the agent's socket.
//! * [`limits`]: the page that the agent writes and a pod's processes read.
//! * [`cards`]: the table of cards, as the driver described them to the agent.
//! * [`ledger`]: the memory account of one pod, written by all of its processes.
//! * [`bucket`]: the pod's device time, in the ledger's header.

#![cfg_attr(not(test), no_std)]

pub mod cards;
pub mod ledger;
pub mod limits;
pub mod message;

pub mod bucket;
mod text;

mod atomic;
mod uuid;

pub use uuid::{CardUuid, NO_CARD};

/// Environment variable that names the agent's socket; it wins over every default, except in containers of sharing pods
/// ([`LIBRARY_IN_CONTAINERS`]).
pub const SOCKET_VARIABLE: &str = "GPUPOOL_SOCKET";

/// Where a node's agent listens when nothing else is said; containers see it under the same path.
pub const SYSTEM_SOCKET: &str = "/run/gpupool/agent.sock";

/// Where the library lies in containers of sharing pods, and only there. Who finds it there is held, and waits for the
/// agent on [`SYSTEM_SOCKET`] even while there is none, and whatever the environment says.
pub const LIBRARY_IN_CONTAINERS: &str = "/usr/lib/gpupool/libgpupool.so";
