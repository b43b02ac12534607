//! The agent under test and its simulated cards.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use gpupool_agent::control::client::Client;
use gpupool_agent::control::{Reply, Request, Status};
use simgpu_device::{Machine, Settings};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Node {
    agent: Child,
    cards: usize,
    folder: TempDir,
    dist: PathBuf,
    machine: Machine,
    restarts: usize,
}

impl Node {
    pub(crate) fn start(cards: usize) -> Self {
        let dist = PathBuf::from(std::env::var_os("GPUPOOL_DIST").expect("run through cargo xtask test"));
        let folder = TempDir::with_prefix("gpupool-chaos-").unwrap();
        let agent = start_agent(&dist, folder.path(), cards);
        wait_for("the agent to answer", || ask(folder.path()).is_some());
        let state = folder.path().join("simgpu.state");
        assert!(state.exists(), "the agent keeps its simulated cards in {}", state.display());
        let machine = Machine::open(&Settings::new(state, &cards.to_string()).unwrap()).unwrap();
        Self { agent, cards, folder, dist, machine, restarts: 0 }
    }

    /// Ends the agent as hard as can be.
    pub(crate) fn kill(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
        self.restarts += 1;
    }

    /// Starts it again on what the killed one left.
    pub(crate) fn restart(&mut self) {
        self.agent = start_agent(&self.dist, self.folder.path(), self.cards);
        wait_for("the restarted agent to answer", || {
            assert!(self.agent.try_wait().unwrap().is_none(), "the restarted agent ended");
            ask(self.folder.path()).is_some()
        });
    }

    pub(crate) const fn restarts(&self) -> usize {
        self.restarts
    }

    pub(crate) fn status(&self) -> Status {
        ask(self.folder.path()).expect("the agent answers")
    }

    pub(crate) const fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    pub(crate) fn gpupool(&self) -> Command {
        let mut command = Command::new(self.dist.join("bin/gpupool"));
        command.env("GPUPOOL_SOCKET", self.socket());
        command
    }

    /// Everything about the state, for the message of a failure.
    pub(crate) fn describe(&self) -> String {
        format!("{:#?}\nseen on the cards: {:#?}", self.status(), crate::cards::holders(&self.machine))
    }

    /// Waits until no pod, no lease and no memory is left.
    pub(crate) fn wait_until_empty(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let used: u64 = self.machine.cards().map(|card| card.used_memory()).sum();
            if status.pods.is_empty() && status.leases.is_empty() && status.queue.is_empty() && used == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{used} bytes and this are left: {}", self.describe());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ended already where the test failed between a kill and a restart.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn start_agent(dist: &Path, folder: &Path, cards: usize) -> Child {
    Command::new(dist.join("bin/gpupool"))
        .args(["agent", "--simulated-cards", &cards.to_string(), "--socket"])
        .arg(folder.join("agent.sock"))
        .arg("--state-dir")
        .arg(folder)
        .stderr(std::fs::File::options().create(true).append(true).open(folder.join("agent.log")).unwrap())
        .spawn()
        .unwrap()
}

fn ask(folder: &Path) -> Option<Status> {
    match Client::connect(&folder.join("agent.sock")).ok()?.ask(&Request::Status {}).ok()? {
        Reply::Status(status) => Some(*status),
        other => panic!("asked for the status, the agent answered {other:?}"),
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
