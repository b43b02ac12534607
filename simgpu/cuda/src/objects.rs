//! What programs have handles of: contexts, modules, streams, events, graphs, arrays, textures.
//!
//! Here is what these are and how they work together. This room must not know by which of the driver API's many calls
//! a program reached it.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod context_teardown;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod graph;
pub(crate) mod graph_exec;
pub(crate) mod green_context;
pub(crate) mod launch;
pub(crate) mod linker;
pub(crate) mod memcpy3d;
pub(crate) mod module;
pub(crate) mod stream;
pub(crate) mod stream_work;
pub(crate) mod texture;
