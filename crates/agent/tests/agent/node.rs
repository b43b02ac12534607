//! An agent under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::client::Client;
use gpupool_agent::admin_api::{Register, Reply, Request, Status};
use tempfile::TempDir;

/// How long anything may take before a test gives up. Generous: nothing here measures speed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Node {
    agent: Child,
    options: Vec<String>,
    folder: TempDir,
}

impl Node {
    /// An agent on two small simulated cards.
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = TempDir::with_prefix("gpupool-agent-test-").unwrap();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let mut node = Self { agent: start(folder.path(), &options), options, folder };
        node.wait_for_answer();
        node
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    /// The shared file of the simulated cards.
    pub(crate) fn cards_state(&self) -> PathBuf {
        self.folder.path().join("simgpu.state")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("agent.journal")
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }

    /// Starts it again on what the killed one left.
    pub(crate) fn start_again(&mut self) {
        self.agent = start(self.folder.path(), &self.options);
        self.wait_for_answer();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("agent.log")).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        match self.client().ask(&Request::Status {}).unwrap() {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Makes this process a pod of the agent. The answer's connection may be closed: the process is known by itself.
    pub(crate) fn register(&self, name: &str, share: &str) -> Reply {
        let share = share.parse().unwrap();
        let register = Register { name: name.to_owned(), core: share, memory: share, priority: 0 };
        self.client().ask(&Request::Register(register)).unwrap()
    }

    /// Waits until the status is as wished, and gives it.
    pub(crate) fn wait_until(&self, what: &str, wished: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if wished(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}: {status:#?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn wait_for_answer(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Client::connect(&self.socket()).is_err() {
            let ended = self.agent.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "no agent: {ended:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already where a test killed it.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn start(folder: &Path, options: &[String]) -> Child {
    let dist = gpupool_dist::given_or_built().unwrap();
    let log = File::options().create(true).append(true).open(folder.join("agent.log")).unwrap();
    Command::new(dist.join("bin/gpupool"))
        .args(["agent", "--simulated-cards", "2", "--socket"])
        .arg(folder.join("agent.sock"))
        .args(options)
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
