//! A `libnvidia-ml.so.1` on simulated cards.
//!
//! This room turns what `simgpu-device` knows about its cards into NVML's calls, so that unmodified tools
//! (`nvidia-smi`, nvitop, gpustat, anything on nvidia-ml-py) see them. Every function of NVML 13.5 is exported;
//! what a simulated card lacks is "not supported", as on a real card without the feature.
//!
//! It must not know gpupool: no leases, no limits, no shim. It never takes device memory and never makes a context,
//! and it reads the cards afresh at every call.
//!
//! - [`calls`]: the exported functions, by subject
//! - `library`: the count of inits, and the one way by which every entry is answered
//! - `cards`: what is asked of `simgpu-device`
//! - `return_code`: what a call answers that fails; `text`: strings into a caller's buffer

pub mod calls;

mod library;

mod cards;
mod text;

mod return_code;

pub use return_code::ReturnCode;
