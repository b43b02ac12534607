//! An agent under test.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::client::Client;
use gpupool_agent::admin_api::{Register, Reply, Request, Status};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// How long anything may take before a test gives up. Generous: nothing here measures speed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Node {
    agent: Child,
    /// What it is started by, such as `nsenter` with its options.
    launcher: Vec<String>,
    options: Vec<String>,
    folder: TempDir,
}

impl Node {
    /// An agent on two small simulated cards.
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut node = Self::begin(options);
        node.wait_for_answer();
        node
    }

    /// The same, without waiting until it listens.
    pub(crate) fn begin(options: &[&str]) -> Self {
        Self::begin_by(&[], options)
    }

    /// The same, by another program.
    pub(crate) fn begin_by(launcher: &[String], options: &[&str]) -> Self {
        let folder = TempDir::with_prefix("gpupool-agent-test-").unwrap();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let launcher = launcher.to_vec();
        Self { agent: start(folder.path(), &launcher, &options), launcher, options, folder }
    }

    /// The same, with a log that the test itself reads.
    pub(crate) fn begin_with_log(options: &[&str], log: Stdio) -> Self {
        let folder = TempDir::with_prefix("gpupool-agent-test-").unwrap();
        std::fs::write(folder.path().join("agent.log"), "(the test reads it)").unwrap();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let agent = start_with_log(folder.path(), &[], &options, log);
        Self { agent, launcher: Vec::new(), options, folder }
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
        self.agent = self.start_as_before();
        self.wait_for_answer();
    }

    /// Starts it again, and waits until it has ended.
    pub(crate) fn start_in_vain(&mut self) -> ExitStatus {
        self.agent = self.start_as_before();
        self.wait_for_end()
    }

    fn start_as_before(&self) -> Child {
        start(self.folder.path(), &self.launcher, &self.options)
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.agent.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops the whole agent where it is.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        // Every thread has stopped once the process shows it.
        self.wait_for("the agent to stop", || {
            let threads = std::fs::read_dir(self.proc("task")).unwrap().map(|thread| thread.unwrap().path());
            threads.map(|thread| std::fs::read_to_string(thread.join("stat")).unwrap_or_default()).all(
                |stat| {
                    stat.rsplit(')')
                        .next()
                        .is_none_or(|rest| rest.trim_start().starts_with('T') || rest.is_empty())
                },
            )
        });
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.agent.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the agent does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.agent.id()))
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// The memory that it takes.
    pub(crate) fn resident_bytes(&self) -> usize {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    /// Where its metrics are, with `--metrics-address`.
    pub(crate) fn metrics_address(&self) -> SocketAddr {
        let log = self.log();
        let (_, rest) = log.split_once("metrics on http://").unwrap();
        rest.split_once("/metrics").unwrap().0.parse().unwrap()
    }

    /// Asks for the status so many times; the longest that an answer took.
    pub(crate) fn slowest_answer(&self, times: usize) -> Duration {
        let (answered, answers) = channel();
        let socket = self.socket();
        std::thread::spawn(move || {
            for _ in 0..times {
                let begin = Instant::now();
                // Others may have taken all of this user's connections: that is an answer as well.
                let reply = Client::connect(&socket).and_then(|mut agent| agent.ask(&Request::Status {}));
                let _ = answered.send((begin.elapsed(), reply.map(drop)));
            }
        });
        let answer = || answers.recv_timeout(PATIENCE).expect("the agent does not answer any more");
        (0..times).map(|_| answer().0).max().unwrap_or_default()
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

    /// Waits until something holds that its status does not say.
    pub(crate) fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain for {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it listens.
    pub(crate) fn wait_for_answer(&mut self) {
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

fn start(folder: &Path, launcher: &[String], options: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("agent.log")).unwrap();
    start_with_log(folder, launcher, options, log.into())
}

fn start_with_log(folder: &Path, launcher: &[String], options: &[String], log: Stdio) -> Child {
    let dist = gpupool_dist::given_or_built().unwrap();
    let gpupool = dist.join("bin/gpupool").into_os_string();
    let mut words = launcher.iter().map(Into::into).chain([gpupool]);
    Command::new(words.next().unwrap())
        .args(words)
        .args(["agent", "--simulated-cards", "2", "--socket"])
        .arg(folder.join("agent.sock"))
        .args(options)
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
