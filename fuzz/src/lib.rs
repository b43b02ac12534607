//! Fuzz targets: one over every decoder of what others wrote, each with an oracle that says what is a wrong answer.
//!
//! A target takes bytes. Its generator reads them as decisions (a sound input, then what is broken about it), so that
//! the engine, which changes bytes and watches which code runs, reaches what lies behind checksums, lengths and
//! grammars; some inputs are taken as they are. A target panics where an answer is wrong.
//!
//! `cargo xtask fuzz` builds the targets with the engine (libFuzzer, on the toolchain of the project) and runs each for
//! a minute. `corpus/TARGET` has some inputs that reach much; an ordinary test replays them without the engine.
//!
//! This room knows the decoders' public faces and, where a crate has none for what it decodes, its hidden module
//! `fuzzing`. Nothing uses this room.

mod descriptors;

mod code;
mod dumps;
mod frames;
mod journal;
mod pages;
mod quantities;

mod choices;

pub use code::{cubin, fatbin, ptx};
pub use descriptors::descriptors;
pub use dumps::dumps;
pub use frames::{frames, messages};
pub use journal::journal;
pub use pages::{cards, limits};
pub use quantities::quantities;

/// What a target is given its input through.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also that of its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("cards", cards),
    ("cubin", cubin),
    ("descriptors", descriptors),
    ("dumps", dumps),
    ("fatbin", fatbin),
    ("frames", frames),
    ("journal", journal),
    ("limits", limits),
    ("messages", messages),
    ("ptx", ptx),
    ("quantities", quantities),
];
