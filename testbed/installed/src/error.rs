//! What can go wrong when gpupool is installed into a cluster.

use std::io;
use std::path::PathBuf;

/// Why there is no cluster with gpupool.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster itself.
    #[error(transparent)]
    Testbed(#[from] gpupool_testbed::Error),
    /// Something of gpupool is not built.
    #[error("{0} is missing; `cargo xtask dist` builds it")]
    NotBuilt(PathBuf),
    /// The program for the tests was not compiled.
    #[error("cannot compile {program}: {said}")]
    Compile {
        /// Which program.
        program: PathBuf,
        /// What gcc said.
        said: String,
    },
    /// A temporary file.
    #[error("cannot write the chart's values: {0}")]
    Settings(io::Error),
    /// helm does not start.
    #[error("cannot run helm: {0}")]
    Helm(io::Error),
    /// helm refused.
    #[error("helm {arguments}: {said}")]
    Refused {
        /// What it was asked.
        arguments: String,
        /// What it said.
        said: String,
    },
    /// The Secret cannot be read.
    #[error("the Secret with the certificate cannot be read: {0}")]
    Secret(serde_json::Error),
    /// The Secret holds no authority.
    #[error("the Secret with the certificate holds no ca.crt")]
    NoAuthority,
}
