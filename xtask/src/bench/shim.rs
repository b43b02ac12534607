//! What the shim adds to a call of the driver: `calls.c` bare and under `gpupool run`, in turn.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::report::{self, Bar, Figure, Line};
use crate::machine::{self, AgentNode};

/// How often both sides take turns. Odd, so that the median is a measured turn.
const TURNS: usize = 7;

/// What is printed: the name that `calls.c` gives the measurement, what it is, and what may be added at most.
const LINES: &[(&str, &str, Option<Bar>)] = &[
    ("launch", "launch at limit 100", Some(Bar::Over(10.0))),
    ("launch-8-threads", "launch at limit 100, 8 threads", Some(Bar::Over(10.0))),
    ("alloc+free-8-threads", "allocation and free, 8 threads", None),
    ("getprocaddress-memalloc-8-threads", "cuGetProcAddress of cuMemAlloc, 8 threads", None),
    ("alloc+free", "allocation and free, none live", Some(Bar::Over(200.0))),
    ("alloc+free-100000-live", "allocation and free, 100,000 live", Some(Bar::Over(200.0))),
    ("allocasync+freeasync", "stream-ordered allocation and free", Some(Bar::Over(200.0))),
    ("memgetinfo", "cuMemGetInfo", None),
    ("ctxgetcurrent", "cuCtxGetCurrent", None),
    ("getprocaddress-memalloc", "cuGetProcAddress of cuMemAlloc", Some(Bar::Over(100.0))),
    ("getprocaddress-launch", "cuGetProcAddress of cuLaunchKernel", Some(Bar::Over(100.0))),
    ("getprocaddress-unhooked", "cuGetProcAddress of what has no hook", Some(Bar::Over(100.0))),
];

/// The same below a limit of 100, where a launch is paid for.
const LIMITED_LINES: &[(&str, &str, Option<Bar>)] =
    &[("launch", "launch at limit 50", None), ("launch-8-threads", "launch at limit 50, 8 threads", None)];

/// The medians in nanoseconds of every turn, by measurement.
type Figures = HashMap<String, Vec<f64>>;

pub(crate) fn measure(dist: &Path) -> anyhow::Result<()> {
    let node = AgentNode::start(dist, 1)?;
    let program = machine::compile("calls", node.folder())?;
    let (mut bare, mut ours, mut limited) = (Figures::new(), Figures::new(), Figures::new());
    for _ in 0..TURNS {
        let mut alone = Command::new(&program);
        alone.env("LD_LIBRARY_PATH", dist.join("simgpu"));
        alone.env("SIMGPU_STATE", node.folder().join("bare.state"));
        take_turn(alone, &mut bare)?;
        take_turn(node.run(&program), &mut ours)?;
        let mut half = node.run_with_core(&program, 50);
        half.args(["41", "launch"]);
        take_turn(half, &mut limited)?;
    }
    print_lines(LINES, &mut bare, &mut ours)?;
    print_lines(LIMITED_LINES, &mut bare, &mut limited)?;
    super::start::of_a_program_without_a_gpu(dist)
}

fn print_lines(
    lines: &[(&str, &str, Option<Bar>)],
    bare: &mut Figures,
    ours: &mut Figures,
) -> anyhow::Result<()> {
    for (name, what, bar) in lines {
        report::print(&Line {
            what: format!("{what} (median)"),
            bare: median(bare, name)?,
            ours: median(ours, name)?,
            bar: *bar,
        });
    }
    Ok(())
}

/// Runs the program once and keeps what it printed. Simulated kernels take no time, so that only calls do.
fn take_turn(mut command: Command, figures: &mut Figures) -> anyhow::Result<()> {
    let output = command.env("SIMGPU_KERNEL_TIME", "1ns").output()?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.split(' ');
        let (name, median) = words.next().zip(words.next()).context("calls.c prints a name and a median")?;
        figures.entry(name.to_owned()).or_default().push(median.parse()?);
    }
    Ok(())
}

fn median(figures: &mut Figures, name: &str) -> anyhow::Result<Figure> {
    let samples = figures.get_mut(name).with_context(|| format!("calls.c did not measure {name}"))?;
    Ok(Figure::Nanoseconds(report::percentile(samples, 50)))
}
