//! An agent on simulated cards, and commands beside it. Several test targets have it, each uses its own part.

#![allow(dead_code, reason = "each target uses its own part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpupool_agent::control::client::Client;
use gpupool_agent::control::{Reply, Request, Status};
use tempfile::TempDir;

/// How long anything may take before a test gives up. Generous: nothing here measures speed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Where gpupool is laid out.
pub(crate) fn dist() -> PathBuf {
    PathBuf::from(std::env::var_os("GPUPOOL_DIST").expect("run through cargo xtask test"))
}

/// The laid-out gpupool.
pub(crate) fn gpupool() -> Command {
    let mut command = Command::new(dist().join("bin/gpupool"));
    command.env_remove("GPUPOOL_SOCKET").stdin(Stdio::null());
    command
}

pub(crate) struct Node {
    agent: Child,
    cards: usize,
    folder: TempDir,
}

impl Node {
    /// On two cards.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::with_cards(2, options)
    }

    pub(crate) fn with_cards(cards: usize, options: &[&str]) -> Self {
        let folder = TempDir::with_prefix("gpupool-test-").unwrap();
        Self { agent: start_agent(folder.path(), cards, options), cards, folder }
    }

    /// Ends the agent as hard as can be.
    pub(crate) fn kill(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }

    /// Starts the agent again on what the last one left.
    pub(crate) fn start_again(&mut self) {
        self.agent = start_agent(self.folder.path(), self.cards, &[]);
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    pub(crate) fn agent(&mut self) -> &mut Child {
        &mut self.agent
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("agent.log")).unwrap()
    }

    /// A command that talks to this agent.
    pub(crate) fn gpupool(&self, subcommand: &str) -> Command {
        let mut command = gpupool();
        command.arg(subcommand).arg("--socket").arg(self.socket());
        command
    }

    /// `gpupool run` of a shell script.
    pub(crate) fn script(&self, share: &str, script: &str) -> Command {
        let mut command = self.gpupool("run");
        command.args(["--core", share, "--memory", share, "--", "sh", "-c", script]);
        command
    }

    /// A pod whose program uses a card until its standard input closes.
    pub(crate) fn program(&self, name: &str, share: &str) -> Child {
        let mut command = self.gpupool("run");
        command.args(["--core", share, "--memory", share, "--name", name, "--"]);
        command.arg(gpupool().get_program()).arg("demo-program").stdin(Stdio::piped());
        command.spawn().unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        match Client::connect(&self.socket()).unwrap().ask(&Request::Status {}).unwrap() {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the status is as wished, and gives it.
    pub(crate) fn wait_until(&self, what: &str, wished: impl Fn(&Status) -> bool) -> Status {
        wait_for(what, || Some(self.status()).filter(|status| wished(status)))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already where a test ended it.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn start_agent(folder: &Path, cards: usize, options: &[&str]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("agent.log")).unwrap();
    let socket = folder.join("agent.sock");
    let mut agent = gpupool();
    agent.args(["agent", "--simulated-cards", &cards.to_string(), "--socket"]).arg(&socket);
    let mut agent = agent.args(options).stderr(log).spawn().unwrap();
    wait_for("the agent", || {
        assert!(agent.try_wait().unwrap().is_none(), "the agent ended");
        Client::connect(&socket).ok()?.ask(&Request::Status {}).ok()
    });
    agent
}

/// Waits until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
