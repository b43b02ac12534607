//! Where the agent's socket lives: the one rule that the agent, `run`, `status` and `stop` share.
//!
//! This room knows paths and their owners; it opens no socket.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

pub use gpupool_wire::SOCKET_VARIABLE;
use gpupool_wire::SYSTEM_SOCKET;
use thiserror::Error;

/// The longest path that fits into a Unix socket address, without its closing zero.
const LONGEST_PATH: usize = 107;

/// Why a socket path can't be used.
#[derive(Debug, Error)]
pub enum SocketPathError {
    /// The kernel keeps 108 bytes for the path, one of them a zero.
    #[error(
        "the socket path {path} is {length} bytes long and the kernel takes at most {LONGEST_PATH}: give a shorter one with --socket"
    )]
    TooLong {
        /// The path as given.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// A directory that somebody else could have prepared is not trusted.
    #[error(
        "the directory {directory} belongs to user {owner}, not to you (user {user}): remove it or give another socket with --socket"
    )]
    ForeignDirectory {
        /// The directory of the socket.
        directory: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who asks.
        user: u32,
    },
    /// Others could replace the socket.
    #[error(
        "the directory {directory} can be written by others (mode {mode:03o}): run chmod 700 on it or give another socket with --socket"
    )]
    OpenDirectory {
        /// The directory of the socket.
        directory: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The directory can't be made or looked at.
    #[error("cannot use the directory {directory} for the socket: {source}")]
    Directory {
        /// The directory of the socket.
        directory: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// What the default path depends on, taken from the process once and given as values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `--socket`, where given.
    pub option: Option<PathBuf>,
    /// `GPUPOOL_SOCKET`, where set and not empty.
    pub variable: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, where set and absolute.
    pub runtime_directory: Option<PathBuf>,
    /// The effective user id.
    pub user: u32,
}

impl Surroundings {
    /// Reads the environment of this process; `option` is what `--socket` said.
    pub fn of_this_process(option: Option<PathBuf>) -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            option,
            variable: path(SOCKET_VARIABLE),
            runtime_directory: path("XDG_RUNTIME_DIR").filter(|path| path.is_absolute()),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// The socket: `--socket`, else `GPUPOOL_SOCKET`, else `/run/gpupool/agent.sock` for root; for others
    /// `$XDG_RUNTIME_DIR/gpupool/agent.sock`, else `/tmp/gpupool-<uid>/agent.sock`.
    pub fn socket(&self) -> Result<PathBuf, SocketPathError> {
        let path = self.given().unwrap_or_else(|| self.default_socket());
        let length = path.as_os_str().len();
        if length > LONGEST_PATH {
            return Err(SocketPathError::TooLong { path, length });
        }
        Ok(path)
    }

    /// Makes the socket's directory where that is needed and checks that nobody else could swap the socket.
    ///
    /// A directory that the user named is taken as it is: who may write there is the user's choice.
    pub fn prepare_directory(&self, socket: &Path) -> Result<(), SocketPathError> {
        let Some(directory) = socket.parent().filter(|directory| !directory.as_os_str().is_empty()) else {
            return Ok(());
        };
        let failed = |source| SocketPathError::Directory { directory: directory.to_owned(), source };
        let mode = if self.user == 0 { 0o755 } else { 0o700 };
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(failed)?;
        if self.given().is_some() { Ok(()) } else { check_owner(directory, self.user) }
    }

    fn given(&self) -> Option<PathBuf> {
        self.option.clone().or_else(|| self.variable.clone())
    }

    fn default_socket(&self) -> PathBuf {
        match &self.runtime_directory {
            _ if self.user == 0 => PathBuf::from(SYSTEM_SOCKET),
            Some(directory) => directory.join("gpupool/agent.sock"),
            None => PathBuf::from(format!("/tmp/gpupool-{}/agent.sock", self.user)),
        }
    }
}

fn check_owner(directory: &Path, user: u32) -> Result<(), SocketPathError> {
    let found = std::fs::symlink_metadata(directory)
        .map_err(|source| SocketPathError::Directory { directory: directory.to_owned(), source })?;
    if !found.is_dir() {
        let source = std::io::Error::from(std::io::ErrorKind::NotADirectory);
        return Err(SocketPathError::Directory { directory: directory.to_owned(), source });
    }
    if found.uid() != user {
        return Err(SocketPathError::ForeignDirectory {
            directory: directory.to_owned(),
            owner: found.uid(),
            user,
        });
    }
    let mode = found.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(SocketPathError::OpenDirectory { directory: directory.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn user(user: u32) -> Surroundings {
        Surroundings { user, ..Surroundings::default() }
    }

    #[test]
    fn the_option_beats_the_variable_and_the_variable_beats_the_default() {
        let mut around = user(0);
        assert_eq!(around.socket().unwrap(), Path::new(SYSTEM_SOCKET));
        around.variable = Some("/a/variable.sock".into());
        assert_eq!(around.socket().unwrap(), Path::new("/a/variable.sock"));
        around.option = Some("/an/option.sock".into());
        assert_eq!(around.socket().unwrap(), Path::new("/an/option.sock"));
    }

    #[test]
    fn others_than_root_get_a_socket_of_their_own() {
        let mut around = user(1000);
        assert_eq!(around.socket().unwrap(), Path::new("/tmp/gpupool-1000/agent.sock"));
        around.runtime_directory = Some("/run/user/1000".into());
        assert_eq!(around.socket().unwrap(), Path::new("/run/user/1000/gpupool/agent.sock"));
    }

    #[test]
    fn a_path_that_no_socket_address_holds_is_refused_with_its_length() {
        let mut around = user(0);
        around.option = Some(format!("/{}", "x".repeat(107)).into());
        assert!(around.socket().unwrap_err().to_string().contains("108 bytes long"));
        around.option = Some(format!("/{}", "x".repeat(106)).into());
        assert!(around.socket().is_ok());
    }

    #[test]
    fn a_default_directory_that_others_can_write_or_own_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let around = Surroundings { user: me, ..Surroundings::default() };
        let directory = place.path().join("gpupool");
        around.prepare_directory(&directory.join("agent.sock")).unwrap();
        assert!(directory.is_dir());

        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = around.prepare_directory(&directory.join("agent.sock")).unwrap_err();
        assert!(matches!(refused, SocketPathError::OpenDirectory { mode: 0o777, .. }), "{refused}");

        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = Surroundings { user: me + 1, ..Surroundings::default() };
        let refused = stranger.prepare_directory(&directory.join("agent.sock")).unwrap_err();
        assert!(matches!(refused, SocketPathError::ForeignDirectory { .. }), "{refused}");
    }
}
