//! The real kubectl, told which cluster to talk to.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::{Error, Tool, cache, folder_of, tied};

/// A kubectl for one cluster. Copies may be used from other threads, also while the cluster is changed.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// The program, the kubeconfig it uses, and a folder for what it caches.
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf, cache: PathBuf) -> Self {
        Self { program, kubeconfig, cache }
    }

    /// The same kubectl for a cluster that this crate did not start; builds it first if need be.
    pub fn for_kubeconfig(kubeconfig: &Path) -> Result<Self, Error> {
        let program = folder_of(Tool::Kube)?.join("kubectl");
        Ok(Self::new(program, kubeconfig.to_owned(), cache()?.join("discovery")))
    }

    /// A command to run as one pleases; where it must not outlive this process, start it with
    /// [`spawn_tied`](crate::spawn_tied).
    pub fn command<I>(&self, arguments: I) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            // kubectl remembers what a server offers by address and port, and ports are used again.
            .env("KUBECACHEDIR", &self.cache)
            // The user's own aliases and defaults are not part of a test.
            .env("KUBECTL_KUBERC", "false");
        command
    }

    /// Runs kubectl with `input` on its standard input, and gives what it printed and how it ended.
    pub fn output<I>(&self, arguments: I, input: &str) -> io::Result<Output>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tied::spawn(command)?;
        let stdin = child.stdin.take();
        thread::scope(|scope| {
            // In a thread of its own: kubectl may print before it has read everything.
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // It may end without reading; what it prints then says why.
                    let _ = stdin.write_all(input.as_bytes());
                }
            });
            child.wait_with_output()
        })
    }

    /// Runs kubectl; gives its standard output, or its standard error when it failed.
    pub fn run<I>(&self, arguments: I, input: &str) -> Result<String, Error>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let output = self
            .output(&arguments, input)
            .map_err(|source| Error::Spawn { name: "kubectl".to_owned(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        Err(Error::Kubectl {
            arguments: words.join(" "),
            status: output.status,
            said: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        })
    }
}
