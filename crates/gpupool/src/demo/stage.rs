//! The demo's processes: an agent and four programs in a temporary directory, and how they are all cleared away.
//!
//! Each has a process group of its own, so that a ^C reaches the demo alone, which then ends them in order.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gpupool_agent::control::client::Client;
use gpupool_agent::control::{Reply, Request, Status};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long the processes have to end before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// How often a terminal's picture moves on.
const FRAME: Duration = Duration::from_millis(100);

/// How often is looked whether the agent listens yet, and whether processes have ended.
const LOOK: Duration = Duration::from_millis(5);

/// Something that the demo reacts to.
#[derive(Debug)]
pub(super) enum Happening {
    /// Things stand differently now.
    Status(Box<Status>),
    /// A frame's time has passed.
    Tick,
    /// The user wants it to end.
    Interrupted,
    /// It is as late as was said.
    Late,
}

/// What the other tasks tell.
#[derive(Debug)]
enum Word {
    Status(Box<Status>),
    Interrupted,
    Failed(anyhow::Error),
}

/// Agent, programs and their directory.
#[derive(Debug)]
pub(super) struct Stage {
    agent: Child,
    programs: Vec<(String, Child)>,
    words: mpsc::UnboundedReceiver<Word>,
    program: PathBuf,
    directory: TempDir,
}

impl Stage {
    /// Starts the agent and listens to it.
    pub(super) async fn set() -> anyhow::Result<Self> {
        let (tell, words) = mpsc::unbounded_channel();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind)?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() && tell.send(Word::Interrupted).is_ok() {}
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
        let mut stage = Self { agent, programs: Vec::new(), words, program, directory };
        match stage.listen(tell).await {
            Ok(()) => Ok(stage),
            Err(failure) => {
                let failure = failure.context(stage.log());
                stage.clear().await;
                Err(failure)
            }
        }
    }

    /// Starts a program that shares the cards.
    pub(super) fn start(&mut self, name: &str, share: &str) -> anyhow::Result<()> {
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
    pub(super) fn finish(&mut self, name: &str) {
        for (_, child) in self.programs.iter_mut().filter(|(program, _)| program == name) {
            child.stdin = None;
        }
    }

    /// What happens next, at the latest at `until`.
    pub(super) async fn next(&mut self, until: Instant) -> anyhow::Result<Happening> {
        let frame = Instant::now() + FRAME;
        tokio::select! {
            biased;
            word = self.words.recv() => match word {
                Some(Word::Status(status)) => Ok(Happening::Status(status)),
                Some(Word::Interrupted) => Ok(Happening::Interrupted),
                Some(Word::Failed(failure)) => Err(failure),
                None => bail!("the agent is gone"),
            },
            () = tokio::time::sleep_until(until) => Ok(Happening::Late),
            () = tokio::time::sleep_until(frame) => Ok(Happening::Tick),
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
    pub(super) async fn clear(&mut self) {
        for (_, child) in &mut self.programs {
            child.stdin = None;
            signal_group(child, Signal::TERM);
        }
        let mut children: Vec<Child> = self.programs.drain(..).map(|(_, child)| child).collect();
        wait_for_all(&mut children).await;
        signal_group(&self.agent, Signal::TERM);
        wait_for_all(std::slice::from_mut(&mut self.agent)).await;
    }

    /// Waits until the agent listens, and then hears everything that it has to say.
    async fn listen(&mut self, tell: mpsc::UnboundedSender<Word>) -> anyhow::Result<()> {
        let socket = self.directory.path().join("agent.sock");
        let deadline = Instant::now() + GRACE * 2;
        let mut client = loop {
            if let Ok(client) = Client::connect(&socket) {
                break client;
            }
            if self.agent.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the agent does not come up");
            }
            tokio::time::sleep(LOOK).await;
        };
        client.send(&Request::Watch {})?;
        std::thread::spawn(move || {
            loop {
                let word = match client.receive() {
                    Ok(Reply::Status(status)) => Word::Status(status),
                    Ok(other) => Word::Failed(anyhow::anyhow!("the agent answers something else: {other:?}")),
                    Err(failure) => Word::Failed(failure.into()),
                };
                let last = matches!(word, Word::Failed(_));
                if tell.send(word).is_err() || last {
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
        tokio::time::sleep(LOOK).await;
    }
}

fn signal_group(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // All of it may have ended already.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
