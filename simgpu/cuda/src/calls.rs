//! The driver API's entry points, a file per family of calls.
//!
//! A call checks what the program passed, as far as a real driver does, and leaves the rest to the rooms below. The
//! structures of the C interface that only one family knows are here too. Nothing below this room may know a call.

mod array;
mod capture;
mod context;
mod copy;
mod copy_3d;
mod deprecated;
mod device;
mod entry;
mod errors;
mod event;
mod exports;
mod external;
mod graph;
mod green_context;
mod initialization;
mod ipc;
mod launch;
mod link;
mod memory;
mod memory_pool;
mod module;
mod occupancy;
mod pointer;
mod resolver;
mod stream;
mod stream_memory_op;
mod texture;
mod virtual_memory;
