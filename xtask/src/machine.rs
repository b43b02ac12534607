//! The machine that is measured: what it is, an agent on simulated cards, and programs that take turns on them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::step;

/// How long anything may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// Processor, cores and kernel, without which no figure means anything.
pub(crate) fn describe() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("\t: unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "machine: {}, {cores} cores, Linux {}; simulated driver",
        model.trim_start_matches(['\t', ' ', ':']),
        kernel.trim()
    )
}

/// An agent on simulated cards, in a folder of its own; ends with this value.
#[derive(Debug)]
pub(crate) struct AgentNode {
    agent: Child,
    folder: TempDir,
    dist: PathBuf,
}

impl AgentNode {
    /// Starts an agent and waits until it answers.
    pub(crate) fn start(dist: &Path, cards: usize) -> anyhow::Result<Self> {
        Self::start_with(dist, &["--simulated-cards", &cards.to_string()])
    }

    /// The same with these options; without any it serves the machine's own cards.
    pub(crate) fn start_with(dist: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("gpupool-bench-")?;
        let agent = Command::new(dist.join("bin/gpupool"))
            .arg("agent")
            .args(options)
            .arg("--socket")
            .arg(folder.path().join("agent.sock"))
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the agent")?;
        let mut node = Self { agent, folder, dist: dist.to_owned() };
        let start = Instant::now();
        while node.status().is_err() {
            if let Some(status) = node.agent.try_wait()? {
                bail!("the agent ended with {status}");
            }
            if start.elapsed() > PATIENCE {
                bail!("the agent did not answer within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(node)
    }

    /// `gpupool` with a subcommand, told where this agent is.
    pub(crate) fn gpupool(&self, subcommand: &str) -> Command {
        let mut command = Command::new(self.dist.join("bin/gpupool"));
        command.arg(subcommand).arg("--socket").arg(self.folder.path().join("agent.sock"));
        command
    }

    /// `gpupool run` with a whole card as the limit and a request that lets many in.
    pub(crate) fn run(&self, program: &Path) -> Command {
        let mut command = self.gpupool("run");
        command.args(["--core", "1:100", "--memory", "1:100", "--"]).arg(program);
        command
    }

    /// `gpupool run` with a part of a card as request and limit, in percent.
    pub(crate) fn run_with_core(&self, program: &Path, core: u32) -> Command {
        let mut command = self.gpupool("run");
        command.args(["--core", &core.to_string(), "--memory", "10", "--"]).arg(program);
        command
    }

    /// The agent's process.
    pub(crate) fn process(&self) -> u32 {
        self.agent.id()
    }

    /// The file in which the cards' state is shared.
    pub(crate) fn cards_state(&self) -> PathBuf {
        self.folder.path().join("simgpu.state")
    }

    /// What `gpupool status --output json` says.
    pub(crate) fn status(&self) -> anyhow::Result<serde_json::Value> {
        let output = self.gpupool("status").args(["--output", "json"]).output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until so many programs stand in the queue.
    pub(crate) fn wait_for_queue(&self, length: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let queue = self.status()?["queue"].as_array().map_or(0, Vec::len);
            if queue == length {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("the queue has {queue} programs, not {length}, after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A folder for what the measurement needs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for AgentNode {
    fn drop(&mut self) {
        // It may have ended by itself; nothing is left to do then.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// Compiles one of the measurement's C programs into a folder.
pub(crate) fn compile(name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let program = folder.join(name);
    let source = step::root().join(format!("xtask/bench/{name}.c"));
    step::succeed(
        Command::new("gcc").arg("-O2").arg("-o").arg(&program).arg(source).args(["-ldl", "-pthread"]),
    )?;
    Ok(program)
}

/// The program that `gpupool run` started: its only child.
pub(crate) fn program_under(run: &Child) -> anyhow::Result<u32> {
    let run = run.id();
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children"))?;
    Ok(children.split_whitespace().next().context("`gpupool run` has no child")?.parse()?)
}

/// A program that took, or waits for, a turn on a card (`turn.c`).
#[derive(Debug)]
pub(crate) struct Turn {
    /// The started command: the program itself, or the `gpupool run` around it.
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Turn {
    /// Starts the command, which runs `turn.c`.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("standard output was piped")?);
        Ok(Self { child, input, output })
    }

    /// Waits for its first call: when it returned (monotonic nanoseconds), and how long it took.
    pub(crate) fn first_call(&mut self) -> anyhow::Result<(f64, f64)> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let (at, took) = line.trim().split_once(' ').context("the program ended before its first call")?;
        Ok((at.parse()?, took.parse()?))
    }

    /// Lets it exit.
    pub(crate) fn finish(&mut self) {
        self.input = None;
    }

    /// Lets it exit and waits for that.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.finish();
        self.child.wait()?;
        Ok(())
    }
}
