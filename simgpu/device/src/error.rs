//! Why the shared state cannot be used.

use std::{io, path::PathBuf};

/// Why the simulated machine could not be opened or joined; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, made or mapped.
    #[error("cannot {action} the state of the simulated GPUs, {}: {source}", path.display())]
    Io {
        /// What was being done: "open", "create", "map", …
        action: &'static str,
        /// The state file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is not a state file of simulated GPUs; point SIMGPU_STATE at another path", path.display())]
    NotAStateFile {
        /// The file found there.
        path: PathBuf,
    },
    /// The file was written by a build with another layout.
    #[error(
        "{} was made by another build (layout {found}, this one uses {wanted}); stop its programs and remove it",
        path.display()
    )]
    OtherLayout {
        /// The file found there.
        path: PathBuf,
        /// Its layout number.
        found: u32,
        /// The layout number of this build.
        wanted: u32,
    },
    /// The file is shorter than its header says.
    #[error("{} is cut short ({found} of {wanted} bytes); stop its programs and remove it", path.display())]
    Truncated {
        /// The file found there.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// The size it should have, in bytes.
        wanted: u64,
    },
    /// `SIMGPU_CARDS` can't be understood.
    #[error("SIMGPU_CARDS: `{text}` is no list of cards: {why}")]
    Cards {
        /// The part that is wrong.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// `SIMGPU_FAULTS` can't be understood.
    #[error(
        "SIMGPU_FAULTS: `{text}` is no fault: write name=code@call, name=code, name=lose@call, name=slow:100ms, \
         driver=11040 or extra=name"
    )]
    Faults {
        /// The part that is wrong.
        text: String,
    },
    /// Every process slot is taken.
    #[error("the simulated GPUs already serve {slots} processes, which is all they can")]
    Full {
        /// How many processes fit.
        slots: usize,
    },
}
