//! How well pods keep to their core limits: mixes of 1 to 8 pods on one card, with kernels of 20 µs to 50 ms.
//!
//! What a pod used is read from the simulated card itself, every second; neither the agent nor the shim is asked.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use simgpu_device::{Machine, MachineSettings};

use super::report;
use crate::machine::{self, AgentNode};

/// Limits of the pods of a mix; the short run has every third one.
const MIXES: &[&[u32]] = &[
    &[50],
    &[5],
    &[75],
    &[50, 50],
    &[25],
    &[95],
    &[10, 30, 60],
    &[20, 30],
    &[10, 90],
    &[25, 25, 25, 25],
    &[33, 33, 33],
    &[5, 10, 15, 70],
    &[5, 5, 10, 10, 20, 50],
    &[20, 20, 20, 20, 20],
    &[14, 14, 14, 14, 14, 14, 14],
    &[12, 12, 12, 12, 12, 12, 12, 12],
    &[1, 2, 3, 4, 10, 20, 60],
    &[5, 5, 5, 5, 10, 10, 10, 50],
];

/// How long one kernel takes, and how many a program launches before it waits for them: some 10 ms of work, so that
/// the wait itself does not keep it from its share.
const KERNELS: &[(&str, u32)] = &[("20us", 512), ("200us", 64), ("2ms", 8), ("10ms", 2), ("50ms", 1)];

/// A grid that leaves most of the card free, and one that fills it many times over. They take the same time here; a
/// limiter that counts blocks would tell them apart.
const GRIDS: &[(&str, u32)] = &[("few", 1), ("many", 10_000)];

/// Seconds before the first one that counts: the limits' corrections look at whole seconds.
const SETTLING: Duration = Duration::from_secs(3);

/// The design's bars, in points.
const MEAN_BAR: f64 = 2.0;
const SECOND_BAR: f64 = 10.0;

/// How long the measurement is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Length {
    /// Core limit: so many seconds for every mix and kernel
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: usize,
    /// Core limit: every third mix, few and many blocks in turn, 6 seconds each unless told otherwise; sharing: fewer
    /// pods, groups and hand-overs
    #[arg(long)]
    pub(super) short: bool,
}

/// One mix with one kernel.
#[derive(Debug)]
struct Case<'a> {
    limits: &'a [u32],
    kernel: (&'a str, u32),
    blocks: (&'a str, u32),
}

impl Length {
    fn seconds(&self) -> usize {
        if self.short && self.seconds == 30 { 6 } else { self.seconds }
    }

    fn cases(&self) -> Vec<Case<'static>> {
        let mut cases = Vec::new();
        for (number, limits) in MIXES.iter().enumerate() {
            for (turn, kernel) in KERNELS.iter().copied().enumerate() {
                for (grid, blocks) in GRIDS.iter().enumerate() {
                    let left_out = !number.is_multiple_of(3) || (number / 3 + turn) % GRIDS.len() != grid;
                    if !(self.short && left_out) {
                        cases.push(Case { limits, kernel, blocks: *blocks });
                    }
                }
            }
        }
        cases
    }
}

/// Runs every case and prints its line, then how many kept the bars.
pub(crate) fn measure(dist: &Path, length: &Length) -> anyhow::Result<()> {
    let (cases, seconds) = (length.cases(), length.seconds());
    report::note(&format!(
        "core limit: {} cases of {seconds} s; points of a card, by the card's own clock (HAMi-core: 2 to 45 off, \
         seconds of 7 to 99 %)",
        cases.len()
    ));
    report::note(&format!(
        "{:<32} {:>7} {:>7} {:>11} {:>13}  {:<28} kept",
        "limits", "kernel", "blocks", "mean error", "worst second", "bar"
    ));
    let mut kept = 0;
    for case in &cases {
        kept += usize::from(case.measure(dist, seconds)?);
    }
    report::note(&format!("core limit: {kept} of {} cases kept both bars", cases.len()));
    Ok(())
}

impl Case<'_> {
    /// Runs the pods beside each other and prints how far they were off; whether both bars were kept.
    fn measure(&self, dist: &Path, seconds: usize) -> anyhow::Result<bool> {
        let node = AgentNode::start(dist, 1)?;
        let program = machine::compile("kernels", node.folder())?;
        let pods = self.limits.iter().map(|limit| Pod::start(&node, &program, *limit, self));
        let mut pods = pods.collect::<anyhow::Result<Vec<_>>>()?;
        for pod in &mut pods {
            pod.wait_for_launch()?;
        }
        std::thread::sleep(SETTLING);
        let before = lateness(&pods);
        watch(&mut pods, &node.cards_state(), seconds)?;
        let late = lateness(&pods) - before;
        for pod in &mut pods {
            pod.end()?;
        }
        Ok(self.print(&pods, late / seconds_f64(seconds)))
    }

    fn print(&self, pods: &[Pod], late: f64) -> bool {
        let mean = pods.iter().map(Pod::mean_error).fold(0.0, f64::max);
        let worst = pods.iter().map(Pod::worst_second).fold(0.0, f64::max);
        let kept = mean <= MEAN_BAR && worst <= SECOND_BAR;
        let limits: Vec<_> = self.limits.iter().map(u32::to_string).collect();
        // The pods' threads share the processors with the card's model: a pod that is not run cannot launch.
        let why =
            if kept { String::new() } else { format!(" (ready to run, not run: {:.0} %)", late * 100.0) };
        report::note(&format!(
            "{:<32} {:>7} {:>7} {mean:>11.1} {worst:>13.1}  {:<28} {}{why}",
            limits.join("+"),
            self.kernel.0,
            self.blocks.0,
            format!("≤ {MEAN_BAR:.0}, no second over {SECOND_BAR:.0}"),
            if kept { "yes" } else { "NO" },
        ));
        kept
    }
}

/// A pod that launches kernels without end.
#[derive(Debug)]
struct Pod {
    limit: u32,
    run: Child,
    input: Option<ChildStdin>,
    process: u32,
    /// Percent of the card in every second.
    seconds: Vec<f64>,
}

impl Pod {
    fn start(node: &AgentNode, program: &Path, limit: u32, case: &Case<'_>) -> anyhow::Result<Self> {
        let mut command = node.run_with_core(program, limit);
        command.args([case.blocks.1, case.kernel.1].map(|number| number.to_string()));
        command.env("SIMGPU_KERNEL_TIME", case.kernel.0);
        let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = run.stdin.take();
        Ok(Self { limit, run, input, process: 0, seconds: Vec::new() })
    }

    fn wait_for_launch(&mut self) -> anyhow::Result<()> {
        let output = self.run.stdout.take().context("standard output was piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.trim() == "launching", "a pod ended before its first launch");
        self.process = machine::program_under(&self.run)?;
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.input = None;
        self.run.wait()?;
        Ok(())
    }

    /// How far the mean of all seconds is off, in points.
    fn mean_error(&self) -> f64 {
        let mean = self.seconds.iter().sum::<f64>() / seconds_f64(self.seconds.len());
        (mean - f64::from(self.limit)).abs()
    }

    /// How far the worst second is off, in points.
    fn worst_second(&self) -> f64 {
        self.seconds.iter().map(|second| (second - f64::from(self.limit)).abs()).fold(0.0, f64::max)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // The measurement was given up: it may have ended by itself, and nothing is left to do then.
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

/// Notes what every pod used of the card, second by second.
fn watch(pods: &mut [Pod], state: &Path, seconds: usize) -> anyhow::Result<()> {
    let machine = Machine::open(&MachineSettings::new(state, "1")?)?;
    let card = machine.card(0).context("the machine has a card")?;
    let start = Instant::now();
    for second in 1..=seconds {
        let end = start + Duration::from_secs(u64::try_from(second)?);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let processes = card.processes();
        for pod in pods.iter_mut() {
            let used = processes.iter().find(|one| one.pid == Some(pod.process));
            pod.seconds.push(f64::from(used.context("a pod ended while it was measured")?.utilisation));
        }
    }
    Ok(())
}

/// For how long the pods' threads were ready to run and not run, in seconds of the process that fared worst. A simulated
/// card's longer kernels are booked by a thread of the program's.
fn lateness(pods: &[Pod]) -> f64 {
    let of_thread = |folder: std::fs::DirEntry| {
        let text = std::fs::read_to_string(folder.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().nth(1).and_then(|delay| delay.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
    };
    let of = |pod: &Pod| {
        let threads = std::fs::read_dir(format!("/proc/{}/task", pod.process)).into_iter().flatten();
        threads.flatten().map(of_thread).sum::<f64>()
    };
    pods.iter().map(of).fold(0.0, f64::max)
}

#[allow(clippy::cast_precision_loss, reason = "a few dozen")]
const fn seconds_f64(seconds: usize) -> f64 {
    seconds as f64
}
