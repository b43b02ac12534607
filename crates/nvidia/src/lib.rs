//! What CUDA's driver API and NVML say in numbers: the values of enumerations and flags, and the layouts of structures,
//! under NVIDIA's own names, as far as the shim and the simulated driver read or write them.
//!
//! * [`cuda`]: what `cuda.h` declares.
//! * [`nvml`]: what `nvml.h` declares.
//!
//! This room knows names and numbers, nothing of what they are used for. It has no dependencies and no code, and what a
//! program doesn't use of it leaves no byte in the program.
//!
//! A test compiles all of it against the published headers of two releases (CUDA 12.9 and 13) and compares sizes,
//! offsets and values. `since 13` marks what only the newer header declares: the test skips it for the older one, after
//! making sure that the name is not there.
//!
//! # To add a name
//!
//! Write it into the `constants!` or `structures!` of the file where its neighbours are, spelled as in the header.
//! Nothing else: the declaration is also the list that the test compares, and a list that no header's module takes up
//! is dead code for the compiler. A new file has one of each at most, and its list goes into
//! [`cuda::CONSTANTS`] or its sibling.
//!
//! ```text
//! constants! {
//!     /// What the values are for.
//!     enum CUlimit = u32 {
//!         CU_LIMIT_STACK_SIZE = 0,
//!         CU_LIMIT_PER_BLOCK_MEMORY_SIZE = 10 since 13,
//!     }
//!
//!     // Macros have no type of their own.
//!     u32 {
//!         CU_MEMHOSTALLOC_PORTABLE = 1,
//!     }
//! }
//!
//! structures! {
//!     /// What it is for.
//!     struct CUmemPoolProps {
//!         allocType: CUmemAllocationType,
//!         // A member of a member; a field that only the newer header has; bytes that the header does not name.
//!         fd: i32 = "handle.fd",
//!         gpuDirectRDMACapable: u8 = "gpuDirectRDMACapable" since 13,
//!         unused: [u32; 3] = "",
//!     }
//!
//!     /// A structure that has no name in C: a member of another one.
//!     struct CUDA_RESOURCE_DESC_linear = "CUDA_RESOURCE_DESC" at "res.linear" {
//!         devPtr: u64,
//!     }
//! }
//! ```
//!
//! Handles (`CUcontext`, `CUstream` …) and addresses of a device are `u64`: nobody but the driver may follow them.
//! Enumerations are integers, since a driver may answer with a value that no header has yet.

#![no_std]
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::upper_case_acronyms,
    reason = "the names are NVIDIA's"
)]

pub mod cuda;
pub mod nvml;

mod declare;

pub use declare::{Constant, Field, Structure};
