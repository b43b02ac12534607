//! `cargo xtask clients`: unmodified GPU programs from `PyPI`, run twice, on the simulated driver alone and under gpupool.
//!
//! Every script in `clients/` checks what it sees and prints a transcript that is the same at every run, so equal
//! transcripts mean that the client got equal results. This room starts the scripts and compares; what a client does
//! is the scripts' business.

mod environment;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::bench::machine::Node;
use crate::step;
use environment::Environment;

/// How long one script may take. The slowest needs about ten seconds on two busy cores.
const PATIENCE: Duration = Duration::from_mins(5);

/// A client as its users know it.
struct Client {
    name: &'static str,
    /// A file in `clients/environments`, without its extension.
    environment: &'static str,
    /// A file in `clients`, without its extension.
    script: &'static str,
}

const CLIENTS: &[Client] = &[
    Client { name: "nvidia-ml-py 13.615.71", environment: "tools", script: "nvidia_ml" },
    Client { name: "nvitop 1.7.2", environment: "tools", script: "nvitop_once" },
    Client { name: "gpustat 1.1.1", environment: "tools", script: "gpustat_all" },
    Client { name: "py3nvml 0.2.7 (py3smi)", environment: "py3nvml", script: "py3smi_once" },
    Client { name: "cuda-bindings 12.9.10", environment: "bindings-12", script: "bindings" },
    Client { name: "cuda-bindings 13.4.4", environment: "bindings-13", script: "bindings" },
    Client { name: "numba-cuda 0.30.4, CUDA 12", environment: "numba-cu12", script: "numba_arrays" },
    Client { name: "numba-cuda 0.30.4, CUDA 13", environment: "numba-cu13", script: "numba_arrays" },
    Client { name: "cuda-core 1.2.2, CUDA 12", environment: "numba-cu12", script: "cuda_core" },
    Client { name: "cuda-core 1.2.2, CUDA 13", environment: "numba-cu13", script: "cuda_core" },
];

/// How a client's Python is started: the command in front of the interpreter, with its environment.
struct Way<'a> {
    name: &'static str,
    python: Box<dyn Fn(&Path) -> Command + 'a>,
}

/// What one run of a script came to.
struct Run {
    status: ExitStatus,
    transcript: String,
    complaints: String,
    time: Duration,
}

/// Makes every environment that is missing or half made.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let names: BTreeSet<&str> = CLIENTS.iter().map(|client| client.environment).collect();
    for name in names {
        Environment::of(name)?.prepare()?;
    }
    Ok(())
}

/// Runs every client on the simulated driver alone and under gpupool; an error when one fails or differs.
pub(crate) fn check(dist: &Path) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::with_prefix("gpupool-clients-")?;
    let node = Node::start(dist, 1)?;
    must_load_the_shim(&under_gpupool(&node))?;
    check_ways(folder.path(), &[bare(dist, folder.path()), under_gpupool(&node)])
}

/// Runs every client on the simulated driver alone: for work on that driver.
pub(crate) fn check_bare(dist: &Path) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::with_prefix("gpupool-clients-")?;
    check_ways(folder.path(), &[bare(dist, folder.path())])
}

/// On one simulated card of its own, which nothing else uses.
fn bare<'a>(dist: &Path, folder: &Path) -> Way<'a> {
    let (library, state) = (dist.join("simgpu"), folder.join("bare.state"));
    Way {
        name: "bare",
        python: Box::new(move |python| {
            let mut command = Command::new(python);
            command.env("LD_LIBRARY_PATH", &library).env("SIMGPU_STATE", &state).env("SIMGPU_CARDS", "1");
            command
        }),
    }
}

/// As a program of an agent that has one simulated card and nobody else to give it to.
fn under_gpupool(node: &Node) -> Way<'_> {
    Way {
        name: "gpupool",
        python: Box::new(|python| {
            let mut command = node.gpupool("run");
            command.args(["--core", "100", "--memory", "100", "--"]).arg(python);
            command
        }),
    }
}

/// Without the shim in it a program under gpupool would be a second bare one, and equal transcripts mean nothing.
fn must_load_the_shim(way: &Way<'_>) -> anyhow::Result<()> {
    let maps =
        (way.python)(Path::new("cat")).arg("/proc/self/maps").output().context("cannot start gpupool run")?;
    if !maps.status.success() || !String::from_utf8_lossy(&maps.stdout).contains("/libgpupool.so") {
        let complaint = String::from_utf8_lossy(&maps.stderr).into_owned();
        bail!("a program under gpupool run does not have libgpupool.so loaded: {} {complaint}", maps.status);
    }
    Ok(())
}

fn check_ways(folder: &Path, ways: &[Way<'_>]) -> anyhow::Result<()> {
    prepare()?;
    let mut table = Vec::new();
    let mut failed = 0;
    for client in CLIENTS {
        let runs = ways
            .iter()
            .map(|way| start(client, way, folder).with_context(|| format!("{} ({})", client.name, way.name)))
            .collect::<anyhow::Result<Vec<Run>>>()?;
        let fault = fault(ways, &runs);
        failed += usize::from(fault.is_some());
        table.push(row(client, &runs, fault.is_none()));
        if let Some(fault) = fault {
            eprintln!("--- {}: {fault}", client.name);
        }
    }
    let names: Vec<String> = ways.iter().map(|way| format!("  {:>14}", way.name)).collect();
    eprintln!("{:<28}{}  verdict", "client", names.concat());
    for row in table {
        eprintln!("{row}");
    }
    eprintln!("clients: {} passed, {failed} failed", CLIENTS.len() - failed);
    if failed > 0 {
        bail!("{failed} clients failed");
    }
    Ok(())
}

/// One line of the table.
fn row(client: &Client, runs: &[Run], passed: bool) -> String {
    let cells: Vec<String> = runs
        .iter()
        .map(|run| {
            let verdict = if run.status.success() { "ok" } else { "failed" };
            format!("  {:>14}", format!("{verdict} {:5.1} s", run.time.as_secs_f64()))
        })
        .collect();
    let verdict = match (passed, runs.len()) {
        (true, 1) => "ok",
        (true, _) => "the same",
        (false, _) => "FAILED",
    };
    format!("{:<28}{}  {verdict}", client.name, cells.concat())
}

/// What is wrong with a client's runs: one that failed, or the first line that is not the same in all of them.
fn fault(ways: &[Way<'_>], runs: &[Run]) -> Option<String> {
    for (way, run) in ways.iter().zip(runs) {
        if !run.status.success() {
            let (status, transcript, complaints) = (run.status, tail(&run.transcript), tail(&run.complaints));
            return Some(format!("{}: {status}\n{transcript}\n{complaints}", way.name));
        }
        if run.transcript.is_empty() {
            return Some(format!("{}: an empty transcript", way.name));
        }
    }
    let (first, others) = runs.split_first()?;
    others.iter().zip(ways.iter().skip(1)).find_map(|(other, way)| {
        let (left, right) = difference(&first.transcript, &other.transcript)?;
        Some(format!("not the same\n  {}: {left}\n  {}: {right}", ways[0].name, way.name))
    })
}

/// The first line that is not the same in two transcripts, in the words of either.
fn difference<'a>(left: &'a str, right: &'a str) -> Option<(&'a str, &'a str)> {
    let (mut left, mut right) = (left.lines(), right.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (one, other) if one == other => {}
            (one, other) => return Some((one.unwrap_or("(no line)"), other.unwrap_or("(no line)"))),
        }
    }
}

/// The last lines of an output: enough to see what went wrong.
fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Runs a client's script to its end.
fn start(client: &Client, way: &Way<'_>, folder: &Path) -> anyhow::Result<Run> {
    let (output, errors) = (folder.join("output"), folder.join("errors"));
    let start = Instant::now();
    let mut command = (way.python)(&Environment::of(client.environment)?.python());
    // What the caller's own shell says about CUDA, preloads and agents must not reach a client.
    for variable in ["LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "SIMGPU_FAULTS", "GPUPOOL_SOCKET", "PYTHONPATH"] {
        command.env_remove(variable);
    }
    let script = scripts().join(client.script).with_extension("py");
    let child = command
        .arg("-B")
        .arg(script)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(File::create(&output)?)
        .stderr(File::create(&errors)?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let status = wait(child)?;
    let read = |path: &PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Run { status, transcript: read(&output)?, complaints: read(&errors)?, time: start.elapsed() })
}

/// Waits for a process group's leader; a group that takes too long is killed.
fn wait(mut child: std::process::Child) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let patience = Timespec::try_from(PATIENCE)?;
    if poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience))? == 0 {
        kill_process_group(pid, Signal::KILL)?;
        child.wait()?;
        bail!("took longer than {} s and was killed", PATIENCE.as_secs());
    }
    Ok(child.wait()?)
}

/// The folder with the scripts.
fn scripts() -> PathBuf {
    step::root().join("clients")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn verdict(runs: &[(i32, &str)]) -> Option<String> {
        let way = |name| Way { name, python: Box::new(|python: &Path| Command::new(python)) };
        let run = |(code, transcript): &(i32, &str)| Run {
            status: ExitStatus::from_raw(code << 8),
            transcript: (*transcript).to_owned(),
            complaints: "a complaint".to_owned(),
            time: Duration::ZERO,
        };
        fault(&[way("bare"), way("gpupool")], &runs.iter().map(run).collect::<Vec<_>>())
    }

    #[test]
    fn equal_transcripts_of_two_successes_are_right() {
        assert_eq!(verdict(&[(0, "name: A\nyes\n"), (0, "name: A\nyes\n")]), None);
    }

    #[test]
    fn the_first_line_that_differs_is_shown() {
        let fault = verdict(&[(0, "one\ntwo\nthree\n"), (0, "one\n2\n3\n")]).unwrap();
        assert_eq!(fault, "not the same\n  bare: two\n  gpupool: 2");
        let fault = verdict(&[(0, "one\n"), (0, "one\ntwo\n")]).unwrap();
        assert_eq!(fault, "not the same\n  bare: (no line)\n  gpupool: two");
    }

    #[test]
    fn a_failure_or_silence_is_wrong_even_when_both_are_alike() {
        assert!(verdict(&[(1, "one\n"), (1, "one\n")]).unwrap().contains("a complaint"));
        assert_eq!(verdict(&[(0, ""), (0, "")]).unwrap(), "bare: an empty transcript");
    }
}
