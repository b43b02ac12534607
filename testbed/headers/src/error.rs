//! Why names cannot be had.

use std::path::PathBuf;

/// Why the names can't be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither `XDG_CACHE_HOME` nor `HOME` says where caches are.
    #[error("neither XDG_CACHE_HOME nor HOME is set: there is no place for the headers")]
    NoCache,
    /// A file or folder could not be read or made.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was being done: "read", "make", …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// Python or its installer failed.
    #[error(
        "`{command}` failed: {complaint}; python3 with venv is needed, and PyPI or a mirror of it in reach"
    )]
    Command {
        /// The command line.
        command: String,
        /// Its last words.
        complaint: String,
    },
}
