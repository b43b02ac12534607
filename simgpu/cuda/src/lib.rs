//! A `libcuda.so.1` on simulated cards, for programs that use CUDA's driver API directly.
//!
//! It translates driver calls into the words of `simgpu-device`. Memory is really taken and really moved, device time
//! really passes and is shared by all processes of the machine; kernels are checked, timed and not computed. What it
//! can't do answers `CUDA_ERROR_NOT_SUPPORTED`, and its cards' names say that they are simulated.
//!
//! It must not know who loads it: nothing here asks for the sharing agent or its shim.
//!
//! Only the driver API's own names are exported (`entry_points.tsv` lists all of them); there is no Rust interface.

mod calls;
#[doc(hidden)]
pub mod fuzzing;

mod objects;

mod memory;

mod device;

mod handles;
mod image;

mod error;
mod sync;
