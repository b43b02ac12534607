//! What `nvml.h` declares.
//!
//! By subject, each with everything in it here as well: [`result`], [`device`], [`process`].

pub mod device;
pub mod process;
pub mod result;

pub use self::{device::*, process::*, result::*};

/// A card's handle: opaque to callers.
pub type nvmlDevice_t = *mut core::ffi::c_void;

/// Every value, for the test that compares them with the header.
pub const CONSTANTS: &[&[crate::Constant]] = &[device::CONSTANTS, process::CONSTANTS, result::CONSTANTS];

/// Every structure, for the test that compares them with the header.
pub const STRUCTURES: &[&[crate::Structure]] = &[device::STRUCTURES, process::STRUCTURES];
