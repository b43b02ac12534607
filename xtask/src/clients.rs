//! `cargo xtask clients`: unmodified GPU programs from `PyPI`, and programs in C that do as they do, run twice, on the
//! simulated driver alone and under gpupool.
//!
//! Every program in `clients/` checks what it sees and prints a transcript that is the same at every run, so equal
//! transcripts mean that the client got equal results. Some end badly, in a known way: that must be the same as well.
//! This room starts the programs and compares; what a client does is their business.

mod environment;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::machine::AgentNode;
use crate::step;
use environment::Environment;

/// How long one script may take. The slowest needs about ten seconds on two busy cores.
const PATIENCE: Duration = Duration::from_mins(5);

/// A client as its users know it.
struct Client {
    name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
    ends: End,
}

/// What is started.
#[derive(Clone, Copy)]
enum Program {
    /// A file in `clients`, without its extension, in an environment of `clients/environments`.
    Python { environment: &'static str, script: &'static str },
    /// A C program in `clients`, without its extension.
    C(&'static str),
}

/// How a program ends, as its caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Client {
    /// A script that ends well.
    const fn script(name: &'static str, environment: &'static str, script: &'static str) -> Self {
        Self { name, program: Program::Python { environment, script }, arguments: &[], ends: End::Code(0) }
    }

    /// The same with arguments, and another end.
    const fn ending(self, arguments: &'static [&'static str], ends: End) -> Self {
        Self { arguments, ends, ..self }
    }
}

const CLIENTS: &[Client] = &[
    Client::script("nvidia-ml-py 13.615.71", "tools", "nvidia_ml"),
    Client::script("nvitop 1.7.2", "tools", "nvitop_once"),
    Client::script("gpustat 1.1.1", "tools", "gpustat_all"),
    Client::script("py3nvml 0.2.7 (py3smi)", "py3nvml", "py3smi_once"),
    Client::script("cuda-bindings 12.9.10", "bindings-12", "bindings"),
    Client::script("cuda-bindings 13.4.4", "bindings-13", "bindings"),
    Client::script("numba-cuda 0.30.4, CUDA 12", "numba-cu12", "numba_arrays"),
    Client::script("numba-cuda 0.30.4, CUDA 13", "numba-cu13", "numba_arrays"),
    Client::script("cuda-core 1.2.2, CUDA 12", "numba-cu12", "cuda_core"),
    Client::script("cuda-core 1.2.2, CUDA 13", "numba-cu13", "cuda_core"),
    Client::script("cuda-core's memory, CUDA 12", "numba-cu12", "cuda_core_memory"),
    Client::script("cuda-core's memory, CUDA 13", "numba-cu13", "cuda_core_memory"),
    Client::script("Triton 3.9.0, its driver layer", "triton", "triton_driver"),
    Client {
        name: "the runtime's start, 648 names",
        program: Program::C("runtime_lookups"),
        arguments: &["lookups.tsv"],
        ends: End::Code(0),
    },
    Client {
        name: "the same without arguments",
        program: Program::C("runtime_lookups"),
        arguments: &[],
        ends: End::Code(64),
    },
    Client::script("out of memory, uncaught", "bindings-13", "endings").ending(&["uncaught"], End::Code(1)),
    Client::script("out of memory, its code", "bindings-13", "endings").ending(&["code"], End::Code(2)),
    Client::script("an abort", "bindings-13", "endings").ending(&["abort"], End::Signal(6)),
    Client::script("a card that is not there", "bindings-13", "endings")
        .ending(&["no-such-card"], End::Code(1)),
    Client::script("numba-cuda out of memory", "numba-cu13", "numba_out_of_memory").ending(&[], End::Code(1)),
];

impl End {
    fn of(status: ExitStatus) -> Self {
        status.signal().map_or_else(|| Self::Code(status.code().unwrap_or(-1)), Self::Signal)
    }
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "code {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
        }
    }
}

/// How a client's program is started: the command in front of it, with its environment.
struct Runner<'a> {
    name: &'static str,
    command: Box<dyn Fn(&Path) -> Command + 'a>,
}

/// What one run of a program came to.
struct Run {
    end: End,
    transcript: String,
    complaints: String,
    time: Duration,
}

/// Makes every environment that is missing or half made.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let environment = |client: &Client| match client.program {
        Program::Python { environment, .. } => Some(environment),
        Program::C(_) => None,
    };
    for name in CLIENTS.iter().filter_map(environment).collect::<BTreeSet<&str>>() {
        Environment::of(name)?.prepare()?;
    }
    Ok(())
}

/// Runs every client on the simulated driver alone and under gpupool; an error when one fails or differs.
pub(crate) fn check(dist: &Path) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::with_prefix("gpupool-clients-")?;
    let node = AgentNode::start(dist, 1)?;
    must_load_the_shim(&under_gpupool(&node))?;
    check_ways(folder.path(), &[bare(dist, folder.path()), under_gpupool(&node)])
}

/// Runs every client on the simulated driver alone: for work on that driver.
pub(crate) fn check_bare(dist: &Path) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::with_prefix("gpupool-clients-")?;
    check_ways(folder.path(), &[bare(dist, folder.path())])
}

/// On one simulated card of its own, which nothing else uses.
fn bare<'a>(dist: &Path, folder: &Path) -> Runner<'a> {
    let (library, state) = (dist.join("simgpu"), folder.join("bare.state"));
    Runner {
        name: "bare",
        command: Box::new(move |program| {
            let mut command = Command::new(program);
            command.env("LD_LIBRARY_PATH", &library).env("SIMGPU_STATE", &state).env("SIMGPU_CARDS", "1");
            command
        }),
    }
}

/// As a program of an agent that has one simulated card and nobody else to give it to.
fn under_gpupool(node: &AgentNode) -> Runner<'_> {
    Runner {
        name: "gpupool",
        command: Box::new(|program| {
            let mut command = node.gpupool("run");
            command.args(["--core", "100", "--memory", "100", "--"]).arg(program);
            command
        }),
    }
}

/// Without the shim in it a program under gpupool would be a second bare one, and equal transcripts mean nothing.
fn must_load_the_shim(runner: &Runner<'_>) -> anyhow::Result<()> {
    let maps = (runner.command)(Path::new("cat"))
        .arg("/proc/self/maps")
        .output()
        .context("cannot start gpupool run")?;
    if !maps.status.success() || !String::from_utf8_lossy(&maps.stdout).contains("/libgpupool.so") {
        let complaint = String::from_utf8_lossy(&maps.stderr).into_owned();
        bail!("a program under gpupool run does not have libgpupool.so loaded: {} {complaint}", maps.status);
    }
    Ok(())
}

fn check_ways(folder: &Path, runners: &[Runner<'_>]) -> anyhow::Result<()> {
    prepare()?;
    let mut table = Vec::new();
    let mut failed = 0;
    for client in CLIENTS {
        let runs = runners
            .iter()
            .map(|runner| {
                start(client, runner, folder).with_context(|| format!("{} ({})", client.name, runner.name))
            })
            .collect::<anyhow::Result<Vec<Run>>>()?;
        let fault = fault(client.ends, runners, &runs);
        failed += usize::from(fault.is_some());
        table.push(row(client, &runs, fault.is_none()));
        if let Some(fault) = fault {
            eprintln!("--- {}: {fault}", client.name);
        }
    }
    let names: Vec<String> = runners.iter().map(|runner| format!("  {:>14}", runner.name)).collect();
    eprintln!("{:<30}{}  verdict", "client", names.concat());
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
            let verdict = match (run.end == client.ends, run.end) {
                (true, End::Code(0)) => "ok".to_owned(),
                (true, end) => end.to_string(),
                (false, _) => "failed".to_owned(),
            };
            format!("  {:>14}", format!("{verdict} {:5.1} s", run.time.as_secs_f64()))
        })
        .collect();
    let verdict = match (passed, runs.len()) {
        (true, 1) => "ok",
        (true, _) => "the same",
        (false, _) => "FAILED",
    };
    format!("{:<30}{}  {verdict}", client.name, cells.concat())
}

/// What is wrong with a client's runs: one that ended otherwise than it should, or the first line that is not the same in
/// all of them.
fn fault(ends: End, runners: &[Runner<'_>], runs: &[Run]) -> Option<String> {
    for (runner, run) in runners.iter().zip(runs) {
        if run.end != ends {
            let (end, transcript, complaints) = (run.end, tail(&run.transcript), tail(&run.complaints));
            return Some(format!("{}: {end}, not {ends}\n{transcript}\n{complaints}", runner.name));
        }
        if run.transcript.is_empty() && ends == End::Code(0) {
            return Some(format!("{}: an empty transcript", runner.name));
        }
    }
    let (first, others) = runs.split_first()?;
    others.iter().zip(runners.iter().skip(1)).find_map(|(other, runner)| {
        let (left, right) = difference(&first.transcript, &other.transcript)?;
        Some(format!("not the same\n  {}: {left}\n  {}: {right}", runners[0].name, runner.name))
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

/// Runs a client to its end.
fn start(client: &Client, runner: &Runner<'_>, folder: &Path) -> anyhow::Result<Run> {
    let (output, errors) = (folder.join("output"), folder.join("errors"));
    let mut command = match client.program {
        Program::Python { environment, script } => {
            let mut command = (runner.command)(&Environment::of(environment)?.python());
            command.arg("-B").arg(scripts().join(script).with_extension("py"));
            command
        }
        Program::C(source) => (runner.command)(&compiled(source, folder)?),
    };
    // What the caller's own shell says about CUDA, preloads and agents must not reach a client.
    for variable in ["LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "SIMGPU_FAULTS", "GPUPOOL_SOCKET", "PYTHONPATH"] {
        command.env_remove(variable);
    }
    let start = Instant::now();
    let child = command
        .args(client.arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(File::create(&output)?)
        .stderr(File::create(&errors)?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let end = End::of(wait(child)?);
    let read = |path: &PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Run { end, transcript: read(&output)?, complaints: read(&errors)?, time: start.elapsed() })
}

/// A C program of the clients' folder, compiled, beside the data that it reads.
fn compiled(source: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let program = folder.join(source);
    if !program.exists() {
        let data = "lookups.tsv";
        fs::copy(scripts().join(data), folder.join(data)).context("cannot copy the clients' data")?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        step::succeed(gcc.arg(scripts().join(source).with_extension("c")).arg("-ldl"))?;
    }
    Ok(program)
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
    use super::*;

    fn verdict(ends: End, runs: &[(End, &str)]) -> Option<String> {
        let runner = |name| Runner { name, command: Box::new(|program: &Path| Command::new(program)) };
        let run = |(end, transcript): &(End, &str)| Run {
            end: *end,
            transcript: (*transcript).to_owned(),
            complaints: "a complaint".to_owned(),
            time: Duration::ZERO,
        };
        fault(ends, &[runner("bare"), runner("gpupool")], &runs.iter().map(run).collect::<Vec<_>>())
    }

    const WELL: End = End::Code(0);

    #[test]
    fn equal_transcripts_of_two_successes_are_right() {
        assert_eq!(verdict(WELL, &[(WELL, "name: A\nyes\n"), (WELL, "name: A\nyes\n")]), None);
    }

    #[test]
    fn the_first_line_that_differs_is_shown() {
        let fault = verdict(WELL, &[(WELL, "one\ntwo\nthree\n"), (WELL, "one\n2\n3\n")]).unwrap();
        assert_eq!(fault, "not the same\n  bare: two\n  gpupool: 2");
        let fault = verdict(WELL, &[(WELL, "one\n"), (WELL, "one\ntwo\n")]).unwrap();
        assert_eq!(fault, "not the same\n  bare: (no line)\n  gpupool: two");
    }

    #[test]
    fn a_failure_or_silence_is_wrong_even_when_both_are_alike() {
        let failed = End::Code(1);
        assert!(verdict(WELL, &[(failed, "one\n"), (failed, "one\n")]).unwrap().contains("a complaint"));
        assert_eq!(verdict(WELL, &[(WELL, ""), (WELL, "")]).unwrap(), "bare: an empty transcript");
    }

    #[test]
    fn a_program_that_should_end_badly_must_end_so_both_times() {
        let (aborted, failed) = (End::Signal(6), End::Code(6));
        assert_eq!(verdict(aborted, &[(aborted, ""), (aborted, "")]), None);
        let fault = verdict(aborted, &[(aborted, ""), (failed, "")]).unwrap();
        assert!(fault.starts_with("gpupool: code 6, not signal 6"), "{fault}");
        assert!(verdict(aborted, &[(WELL, ""), (aborted, "")]).is_some());
    }
}
