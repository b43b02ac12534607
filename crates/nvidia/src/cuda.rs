//! What `cuda.h` declares.
//!
//! By subject, each with everything in it here as well: [`result`], [`device`], [`memory`], [`array`](mod@array),
//! [`code`], [`stream`], [`launch`], [`graph`].

pub mod array;
pub mod code;
pub mod device;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod result;
pub mod stream;

pub use self::{array::*, code::*, device::*, graph::*, launch::*, memory::*, result::*, stream::*};

/// Every value, for the test that compares them with the header.
pub const CONSTANTS: &[&[crate::Constant]] = &[
    array::CONSTANTS,
    code::CONSTANTS,
    device::CONSTANTS,
    graph::CONSTANTS,
    launch::CONSTANTS,
    memory::CONSTANTS,
    result::CONSTANTS,
    stream::CONSTANTS,
];

/// Every structure, for the test that compares them with the header.
pub const STRUCTURES: &[&[crate::Structure]] = &[
    array::STRUCTURES,
    device::STRUCTURES,
    graph::STRUCTURES,
    launch::STRUCTURES,
    memory::STRUCTURES,
    stream::STRUCTURES,
];
