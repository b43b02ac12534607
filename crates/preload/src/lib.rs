//! How the dynamic loader (`ld.so`) is brought to load gpupool's library into every program, and where it will not.
//!
//! A program of another kind than the library's own gets a loader error at every start if the list of preloads simply names
//! the library. So the list names it by the loader's platform, and [`layout`] has something for each: the library, or for
//! 32-bit programs a library in which there is nothing. [`name`] says which paths a list can hold, [`program`] which
//! programs take no preload.
//!
//! Knows files and their bytes; nothing of agents, pods or clusters.

pub mod layout;

pub mod name;
pub mod program;
mod stub;
