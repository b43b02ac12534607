//! What it costs to start: a program that never touches a GPU, one under `gpupool run`, and 32 that make contexts at once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::report::{self, Bar, Figure, Line};
use crate::machine::{self, AgentNode, Turn};

/// Both sides alternate, so that a busy moment of the machine meets both.
const PAIRS: usize = 400;

pub(crate) fn measure(dist: &Path) -> anyhow::Result<()> {
    of_a_program_without_a_gpu(dist)?;
    let node = AgentNode::start(dist, 4)?;
    let bare = || Command::new("/bin/true");
    let under_run = || node.run(Path::new("/bin/true"));
    compare("`gpupool run -- true` against `true` (median)", &bare, &under_run, None)?;
    contexts_at_once(&node, dist)
}

/// A program that never uses CUDA, with the shim preloaded and without.
pub(crate) fn of_a_program_without_a_gpu(dist: &Path) -> anyhow::Result<()> {
    let shim = dist.join("lib/libgpupool.so");
    let bare = || Command::new("/bin/true");
    let preloaded = || {
        let mut command = Command::new("/bin/true");
        command.env("LD_PRELOAD", &shim);
        command
    };
    compare("start of `true`, the shim preloaded (median)", &bare, &preloaded, Some(Bar::Over(100_000.0)))
}

/// Times two commands in turn and prints the medians.
fn compare(
    what: &str,
    bare: &dyn Fn() -> Command,
    ours: &dyn Fn() -> Command,
    bar: Option<Bar>,
) -> anyhow::Result<()> {
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        for (samples, command) in samples.iter_mut().zip([bare(), ours()]) {
            samples.push(wall_time(command)?);
        }
    }
    let [mut bare, mut ours] = samples;
    report::print(&Line {
        what: what.to_owned(),
        bare: Figure::Nanoseconds(report::percentile(&mut bare, 50)),
        ours: Figure::Nanoseconds(report::percentile(&mut ours, 50)),
        bar,
    });
    Ok(())
}

/// How long a command runs, in nanoseconds; it must succeed.
fn wall_time(mut command: Command) -> anyhow::Result<f64> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(start.elapsed().as_secs_f64() * 1e9)
}

/// 32 programs at once, from the first start to the last one's first context; simulated contexts take 100 ms.
fn contexts_at_once(node: &AgentNode, dist: &Path) -> anyhow::Result<()> {
    let program = machine::compile("turn", node.folder())?;
    let slow = |command: &mut Command| {
        command.env("SIMGPU_FAULTS", "cuDevicePrimaryCtxRetain=slow:100ms");
    };
    let bare = || {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", dist.join("simgpu"));
        command.env("SIMGPU_STATE", node.folder().join("bare.state")).env("SIMGPU_CARDS", "4");
        slow(&mut command);
        command
    };
    let ours = || {
        let mut command = node.gpupool("run");
        command.args(["--core", "1:10", "--memory", "1:10", "--"]).arg(&program);
        slow(&mut command);
        command
    };
    let (mut bare_times, mut our_times) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        bare_times.push(all_at_once(&bare)?);
        our_times.push(all_at_once(&ours)?);
    }
    report::print(&Line {
        what: "32 processes making 100 ms contexts at once (median of 5)".to_owned(),
        bare: Figure::Nanoseconds(report::percentile(&mut bare_times, 50)),
        ours: Figure::Nanoseconds(report::percentile(&mut our_times, 50)),
        bar: Some(Bar::Times(2.0)),
    });
    Ok(())
}

fn all_at_once(command: &dyn Fn() -> Command) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut turns = (0..32).map(|_| Turn::start(command())).collect::<anyhow::Result<Vec<_>>>()?;
    for turn in &mut turns {
        turn.first_call()?;
    }
    let took = start.elapsed().as_secs_f64() * 1e9;
    for turn in turns {
        turn.end()?;
    }
    Ok(took)
}
