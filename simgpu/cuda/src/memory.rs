//! Memory of this process: addresses, allocations and what lies behind them, pools, and copies between them.
//!
//! What is taken of a card is told to the machine, which counts it for all processes. This room must not know contexts
//! or streams: an allocation only carries the handle of the context that it belongs to.

mod arena;
pub(crate) mod graph_memory;
pub(crate) mod ipc;
pub(crate) mod physical;
pub(crate) mod pool;
pub(crate) mod space;
