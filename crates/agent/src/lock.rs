//! One agent per socket and per journal: a lock file beside each, held for as long as the agent lives.
//!
//! The lock dies with the process, however it ends, so there is never a stale one to clean up. The file itself
//! stays: whoever removes a lock file can lock one that another agent no longer sees.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use thiserror::Error;

/// Why this agent may not use a socket or journal.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another agent has it.
    #[error(
        "another agent uses {0}: stop it, or give this one a socket and a journal of its own (--socket, --journal)"
    )]
    Taken(PathBuf),
    /// The lock file can't be made.
    #[error("cannot make the lock file {path}: {source}")]
    File {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A claim on a path.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Claims `path` by locking `<path>.lock`.
    pub(crate) fn claim(path: &Path) -> Result<Self, LockError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let name = PathBuf::from(name);
        let failed = |source| LockError::File { path: name.clone(), source };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Taken(path.to_owned())),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_claimed_once_until_the_claim_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.sock");
        let first = Lock::claim(&path).unwrap();
        assert!(matches!(Lock::claim(&path), Err(LockError::Taken(taken)) if taken == path));
        drop(first);
        Lock::claim(&path).unwrap();
    }
}
