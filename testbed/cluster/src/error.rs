//! What can go wrong in the proving ground, in words that say what to do.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// A failure of the proving ground.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no Go tool to build the programs with.
    #[error(
        "cannot build {what}: there is no `go` in PATH; install Go 1.26 or newer (https://go.dev/dl) and try again"
    )]
    NoGo {
        /// What was to be built.
        what: &'static str,
    },
    /// The Go tool failed.
    #[error("building {what} failed ({status}); the end of what the Go tool said:\n{end}\nAll of it: {log}")]
    Build {
        /// What was to be built.
        what: &'static str,
        /// How the Go tool ended.
        status: ExitStatus,
        /// The last lines of its output.
        end: String,
        /// The file with all of its output.
        log: PathBuf,
    },
    /// Neither variable says where the cache of built programs belongs.
    #[error("cannot tell where to keep the built programs: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoCache,
    /// A file or folder cannot be used.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A cluster's folder belongs to another user: in a shared temporary directory that may be a trap.
    #[error(
        "{path} belongs to somebody else or is open to others; remove it, or set TMPDIR to a directory of your own"
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// A Unix socket's path may have at most 107 bytes.
    #[error(
        "the path {path} is too long for a Unix socket in it; set TMPDIR (for the cluster of `cargo xtask \
             cluster`: XDG_CACHE_HOME) to a shorter directory"
    )]
    PathTooLong {
        /// The cluster's folder.
        path: PathBuf,
    },
    /// A cluster runs in this folder already.
    #[error("a cluster runs in {path} already, started by process {pid}")]
    Occupied {
        /// The folder.
        path: PathBuf,
        /// The process that started it; 0 when that cannot be told.
        pid: u32,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// No port is free on 127.0.0.1, or the kernel refused one.
    #[error("cannot get a free port on 127.0.0.1: {0}")]
    Port(io::Error),
    /// A program cannot be started.
    #[error("cannot start {name}: {source}")]
    Spawn {
        /// The program.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A component ended by itself.
    #[error("{name} ended by itself ({status}); the end of its log:\n{end}")]
    Died {
        /// The component.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        end: String,
    },
    /// Something did not become ready in time.
    #[error("{what} within {seconds} seconds{detail}")]
    NotReady {
        /// What did not happen, as in "etcd did not become healthy".
        what: String,
        /// How long was waited.
        seconds: u64,
        /// What was seen last, with a leading ": ", or nothing.
        detail: String,
    },
    /// Nodes with a kubelet need namespaces, mounts and control groups.
    #[error("a node with a kubelet needs root: run this as root, or use nodes without a kubelet")]
    NotRoot,
    /// A program that a node, or an image, is made with is not on this machine.
    #[error("there is no `{name}` on this machine; on Debian: apt-get install {}", package_of(name))]
    NoProgram {
        /// The program.
        name: String,
    },
    /// A program that goes into an image is linked with a library that is not on this machine.
    #[error("{} cannot go into an image: {line}", program.display())]
    NoLibrary {
        /// The program.
        program: PathBuf,
        /// What is missing, as `ldd` says it.
        line: String,
    },
    /// An image cannot be made.
    #[error("cannot make the image {name}: {source}")]
    Image {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The cluster's own network cannot be set up.
    #[error("cannot {what}: {why}")]
    Network {
        /// What was tried.
        what: String,
        /// What the kernel or the program said.
        why: String,
    },
    /// Control groups of version 2 without the controllers that containers need.
    #[error(
        "containers need more controllers than {} has; switch them on: echo +{missing} > {}", path.display(), path.display()
    )]
    Controllers {
        /// The file that lists the controllers.
        path: PathBuf,
        /// What is missing, joined by ` +`.
        missing: String,
    },
    /// The simulated driver makes no such cards.
    #[error("cannot make the simulated cards `{cards}`: {said}")]
    Cards {
        /// What was asked for.
        cards: String,
        /// What the driver said.
        said: String,
    },
    /// More nodes with a kubelet than a cluster can have.
    #[error("a cluster has at most {most} nodes with a kubelet")]
    TooManyNodes {
        /// How many it can have.
        most: u8,
    },
    /// A node's first process was killed, and everything on the node with it.
    #[error("the node {node} is off and cannot be switched on again; start another cluster")]
    Off {
        /// The node.
        node: String,
    },
    /// There is no such component or node in the cluster.
    #[error("the cluster has no {name}; it has {present}")]
    Absent {
        /// What was asked for.
        name: String,
        /// What is there.
        present: String,
    },
    /// The cluster failed; its logs were kept.
    #[error("{source}\nThe logs are kept in {logs}")]
    Failed {
        /// What failed.
        source: Box<Self>,
        /// The folder with the components' logs.
        logs: PathBuf,
    },
    /// A program for an image does not compile.
    #[error("{file} does not compile:\n{said}")]
    Compile {
        /// Its source.
        file: String,
        /// What the compiler said.
        said: String,
    },
    /// helm ended with a failure.
    #[error("helm {arguments} failed ({status}): {said}")]
    Helm {
        /// Its arguments.
        arguments: String,
        /// How it ended.
        status: ExitStatus,
        /// Its standard error.
        said: String,
    },
    /// kubectl ended with a failure.
    #[error("kubectl {arguments} failed ({status}): {said}")]
    Kubectl {
        /// Its arguments.
        arguments: String,
        /// How it ended.
        status: ExitStatus,
        /// Its standard error.
        said: String,
    },
}

/// The Debian package that brings a program.
fn package_of(program: &str) -> &str {
    match program {
        "bridge" | "host-local" => "containernetworking-plugins",
        "ip" => "iproute2",
        "ldd" => "libc-bin",
        "mount" => "mount",
        "ps" => "procps",
        "find" => "findutils",
        "grep" | "sed" | "runc" | "bash" | "iptables" => program,
        _ => "coreutils",
    }
}

impl Error {
    /// Turns an [`io::Error`] into an [`Error::File`].
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
