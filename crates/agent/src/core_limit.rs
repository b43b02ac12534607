//! The core limit: how fast the launches of a pod with a part of a card may go, so that it uses that part.
//!
//! A pod's processes pay for their launches from a bucket (`gpupool_wire::bucket`), each with what it has measured.
//! What they measure is not quite what the card does: a long kernel of theirs takes longer while others have their
//! turns. So the rate at which the bucket fills is corrected by what NVML says the pod really used: by the
//! [`Controller`] of each pod, ten times a second, with the shares that the [`meter`] reads. While no pod with a limit
//! below 100 runs, nothing here does anything.

mod controller;
pub(crate) mod meter;

pub(crate) use controller::{Controller, Seen};
