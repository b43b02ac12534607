//! What several crates read from Kubernetes objects, read in one place.
//!
//! Only reading: what follows from a pod's requests is decided in `gpupool_core`. This crate talks to no API server and
//! knows no client; the objects come in as its callers got them, typed or as JSON.

mod backoff;
pub mod pod;

pub use backoff::Backoff;
