//! Many groups on one agent without a cluster, none of which does anything.

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use super::process;
use crate::bench::report::{self, Figure, Line};
use crate::machine::AgentNode;

/// Every group asks for a hundredth of a card, and all of that must fit.
const GROUPS_PER_CARD: usize = 100;
const QUIET: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_mins(4);
const QUESTIONS: usize = 21;

/// Programs that end with this value.
#[derive(Debug, Default)]
struct Programs(Vec<Child>);

impl Drop for Programs {
    fn drop(&mut self) {
        // `cat` ends with its input, and `gpupool run` with `cat`.
        for program in &mut self.0 {
            program.stdin = None;
        }
        for program in &mut self.0 {
            let _ = program.wait();
        }
    }
}

/// What an agent takes and how fast it answers, with no group and with so many.
pub(super) fn measure(dist: &Path, groups: usize) -> anyhow::Result<()> {
    // The published machine has 16 cards.
    let node = AgentNode::start(dist, groups.div_ceil(GROUPS_PER_CARD).clamp(1, 16))?;
    let bare = Taken::of(&node)?;
    let mut programs = Programs::default();
    for _ in 0..groups {
        let mut command = node.run(Path::new("cat"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        programs.0.push(command.spawn()?);
    }
    wait_for_groups(&node, &mut programs)?;
    let ours = Taken::of(&node)?;
    let line = |what: &str, bare, ours| {
        report::print(&Line {
            what: format!("agent alone, 0 and {groups} groups: {what}"),
            bare,
            ours,
            bar: None,
        });
    };
    line("resident memory", Figure::Bytes(bare.memory), Figure::Bytes(ours.memory));
    let spent = format!("processor time in {} s", QUIET.as_secs());
    line(&spent, Figure::Nanoseconds(bare.time), Figure::Nanoseconds(ours.time));
    line("`gpupool status` (median)", Figure::Nanoseconds(bare.answer), Figure::Nanoseconds(ours.answer));
    Ok(())
}

fn wait_for_groups(node: &AgentNode, programs: &mut Programs) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let groups = node.status()?["pods"].as_array().map_or(0, Vec::len);
        if groups == programs.0.len() {
            return Ok(());
        }
        for program in &mut programs.0 {
            if let Some(status) = program.try_wait()? {
                bail!("a program ended with {status} before it was measured");
            }
        }
        let wanted = programs.0.len();
        ensure!(start.elapsed() < PATIENCE, "{groups} of {wanted} groups after {} s", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(200));
    }
}

/// What an agent takes while nothing happens.
#[derive(Debug)]
struct Taken {
    /// Bytes.
    memory: f64,
    /// Nanoseconds on the processors in [`QUIET`].
    time: f64,
    /// How long `gpupool status` takes, in nanoseconds.
    answer: f64,
}

impl Taken {
    fn of(node: &AgentNode) -> anyhow::Result<Self> {
        let agent = node.process();
        let before = process::processor_time(agent)?;
        thread::sleep(QUIET);
        let time = process::processor_time(agent)? - before;
        let mut answers = Vec::new();
        for _ in 0..QUESTIONS {
            let start = Instant::now();
            node.gpupool("status").output()?;
            answers.push(start.elapsed().as_secs_f64() * 1e9);
        }
        let answer = report::percentile(&mut answers, 50);
        Ok(Self { memory: process::resident_memory(agent)?, time, answer })
    }
}
