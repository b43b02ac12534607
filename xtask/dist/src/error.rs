//! Why something was not built or laid out.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::{fmt, io};

/// Why something was not built or laid out. Written out by hand: a derive would bring the first dependencies.
#[derive(Debug)]
pub enum Error {
    /// The current directory is not in a checkout of gpupool.
    NoCheckout,
    /// Neither `XDG_CACHE_HOME` nor `HOME` names a folder.
    NoCache,
    /// The release before cannot be built: this clone does not have its commit.
    NoCommit(String),
    /// A command could not be started.
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A command failed.
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A file could not be read, made or put in its place.
    File {
        /// What was tried, as a verb.
        doing: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: what was done with which file.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCheckout => {
                write!(out, "neither this folder nor one above it has a Cargo.toml of a workspace")
            }
            Self::NoCache => write!(out, "set HOME or XDG_CACHE_HOME: built programs are kept below it"),
            Self::NoCommit(commit) => write!(
                out,
                "the release before cannot be built, as this clone does not have its commit {commit}: type \
                 `git fetch --unshallow`"
            ),
            Self::Start { command, source } => write!(out, "cannot start {command}: {source}"),
            Self::Failed { command, status } => write!(out, "{command} ended with {status}"),
            Self::File { doing, path, source } => write!(out, "cannot {doing} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start { source, .. } | Self::File { source, .. } => Some(source),
            Self::NoCheckout | Self::NoCache | Self::NoCommit(_) | Self::Failed { .. } => None,
        }
    }
}
