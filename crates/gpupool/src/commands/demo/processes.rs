//! The demo's processes: an agent and four programs in a temporary directory, and how they are all ended.
//!
//! Each has a process group of its own, so that a ^C reaches the demo alone, which then ends them in order.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gpupool_agent::admin_api::client::Client;
use gpupool_agent::admin_api::{Reply, Request, Status};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long the processes have to end before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// Time between two frames of a terminal's picture.
const FRAME: Duration = Duration::from_millis(100);

/// How often it is checked whether the agent listens yet, and whether processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What the demo reacts to.
#[derive(Debug)]
pub(super) enum DemoEvent {
    /// The agent's status has changed.
    Status(Box<Status>),
    /// It is time for the next frame of the picture.
    Frame,
    /// The user wants it to end.
    Interrupted,
    /// The time that was given has passed.
    TimedOut,
}

/// What the tasks that listen to the agent and to signals send.
#[derive(Debug)]
enum Message {
    Status(Box<Status>),
    Interrupted,
    Failed(anyhow::Error),
}

/// Agent, programs and their directory.
#[derive(Debug)]
pub(super) struct DemoProcesses {
    agent: Child,
    programs: Vec<(String, Child)>,
    messages: mpsc::UnboundedReceiver<Message>,
    program: PathBuf,
    directory: TempDir,
}

impl DemoProcesses {
    /// Starts the agent and listens to it.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let (sender, messages) = mpsc::unbounded_channel();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind)?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() && sender.send(Message::Interrupted).is_ok() {}
            });
        }
        let directory = TempDir::with_prefix("gpupool-demo-")?;
        let program = std::env::current_exe()?;
        let agent = Command::new(&program)
            .args(["agent", "--simulated-cards", "2", "--socket"])
            .arg(directory.path().join("agent.sock"))
            .arg("--state-dir")
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("agent.log"))?)
            .process_group(0)
            .spawn()
            .context("cannot start the agent")?;
        let mut processes = Self { agent, programs: Vec::new(), messages, program, directory };
        match processes.listen(sender).await {
            Ok(()) => Ok(processes),
            Err(failure) => {
                let failure = failure.context(processes.log());
                processes.end().await;
                Err(failure)
            }
        }
    }

    /// Starts a program that shares the cards.
    pub(super) fn start_program(&mut self, name: &str, share: &str) -> anyhow::Result<()> {
        let child = Command::new(&self.program)
            .args(["run", "--name", name, "--core", share, "--memory", share, "--socket"])
            .arg(self.directory.path().join("agent.sock"))
            .arg("--")
            .arg(&self.program)
            .arg("demo-program")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(self.directory.path().join(format!("{name}.log")))?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.programs.push((name.to_owned(), child));
        Ok(())
    }

    /// Lets a program come to its end: its standard input closes.
    pub(super) fn finish_program(&mut self, name: &str) {
        for (_, child) in self.programs.iter_mut().filter(|(program, _)| program == name) {
            child.stdin = None;
        }
    }

    /// Waits for the next event, at the latest until `until`.
    pub(super) async fn next_event(&mut self, until: Instant) -> anyhow::Result<DemoEvent> {
        let frame = Instant::now() + FRAME;
        tokio::select! {
            biased;
            message = self.messages.recv() => match message {
                Some(Message::Status(status)) => Ok(DemoEvent::Status(status)),
                Some(Message::Interrupted) => Ok(DemoEvent::Interrupted),
                Some(Message::Failed(failure)) => Err(failure),
                None => bail!("the agent is gone"),
            },
            () = tokio::time::sleep_until(until) => Ok(DemoEvent::TimedOut),
            () = tokio::time::sleep_until(frame) => Ok(DemoEvent::Frame),
        }
    }

    /// What agent and programs said on their standard error.
    pub(super) fn log(&self) -> String {
        let mut text = String::new();
        let names = self.programs.iter().map(|(name, _)| name.as_str());
        for name in std::iter::once("agent").chain(names) {
            let said = std::fs::read_to_string(self.directory.path().join(format!("{name}.log")));
            for line in said.unwrap_or_default().lines() {
                text.extend([name, ": ", line, "\n"]);
            }
        }
        text
    }

    /// Ends everybody, programs first, and waits for it; the directory goes with this value.
    pub(super) async fn end(&mut self) {
        for (_, child) in &mut self.programs {
            child.stdin = None;
            signal_group(child, Signal::TERM);
        }
        let mut children: Vec<Child> = self.programs.drain(..).map(|(_, child)| child).collect();
        wait_for_all(&mut children).await;
        signal_group(&self.agent, Signal::TERM);
        wait_for_all(std::slice::from_mut(&mut self.agent)).await;
    }

    /// Waits until the agent listens, and then passes on every status that it sends.
    async fn listen(&mut self, sender: mpsc::UnboundedSender<Message>) -> anyhow::Result<()> {
        let socket = self.directory.path().join("agent.sock");
        let deadline = Instant::now() + GRACE * 2;
        let mut client = loop {
            if let Ok(client) = Client::connect(&socket) {
                break client;
            }
            if self.agent.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the agent does not come up");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        client.send(&Request::Watch {})?;
        std::thread::spawn(move || {
            loop {
                let message = match client.receive() {
                    Ok(Reply::Status(status)) => Message::Status(status),
                    Ok(other) => {
                        Message::Failed(anyhow::anyhow!("the agent answers something else: {other:?}"))
                    }
                    Err(failure) => Message::Failed(failure.into()),
                };
                let last = matches!(message, Message::Failed(_));
                if sender.send(message).is_err() || last {
                    return;
                }
            }
        });
        Ok(())
    }
}

/// Waits until all have ended; those that take too long are killed with their whole group.
async fn wait_for_all(children: &mut [Child]) {
    let deadline = Instant::now() + GRACE;
    let mut killed = false;
    while children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
        if Instant::now() > deadline && !std::mem::replace(&mut killed, true) {
            for child in children.iter() {
                signal_group(child, Signal::KILL);
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn signal_group(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // All of it may have ended already.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
