//! A `libcuda.so.1` on simulated cards, for programs that use CUDA's driver API directly.
//!
//! It translates driver calls into the words of `simgpu-device`. Memory is really taken and really moved, device time
//! really passes and is shared by all processes of the machine; kernels are checked, timed and not computed. What it
//! can't do answers `CUDA_ERROR_NOT_SUPPORTED`, and its cards' names say that they are simulated.
//!
//! It must not know who loads it: nothing here asks for the sharing agent or its shim.
//!
//! Only the driver API's own names are exported (`entry_points.tsv` lists all of them); there is no Rust interface.

mod address_calls;
mod arena;
mod array;
mod array_calls;
mod attributes;
mod box_calls;
mod context;
mod context_calls;
mod copy_calls;
mod driver;
mod engine;
mod entry;
mod error;
mod event;
mod exports;
mod external_calls;
mod foreign;
mod graph;
mod green_calls;
mod handles;
mod identity;
mod image;
mod ipc_calls;
mod kernel_time;
mod launch;
mod life;
mod link_calls;
mod memory_calls;
mod module;
mod module_calls;
mod old_calls;
mod opened;
mod physical;
mod pointer_calls;
mod pool;
mod pool_calls;
mod resolver;
mod shared;
mod space;
mod stream;
mod stream_calls;
mod sync;
mod value_calls;
mod visible;
