//! `gpupool demo`: the published example on two simulated cards, live.
//!
//! A and B want half a card each; C and D ask for half and may use a whole one. They become ready in the order A, C, D,
//! B. First A and C run, D waits (it fits beside A by its request, but not by its limit) and B waits behind it; when C
//! ends, D gets its card, and then B joins A. The two lines at the end are what was seen, not what was expected.

mod processes;
mod program;
mod timeline;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use gpupool_agent::admin_api::Status;
use gpupool_core::pool::PodState;
use tokio::time::Instant;

use processes::{DemoEvent, DemoProcesses};
use timeline::Timeline;

pub(crate) use program::{Args as ProgramArgs, run as run_program};

/// What the two moments must look like.
const EXPECTED: [&str; 2] =
    ["T1  card 0: A    card 1: C    queue: D, B", "T2  card 0: A, B    card 1: D    queue: -"];

/// The programs in the order in which they become ready, and what each asks for of core and of memory.
const PROGRAMS: [(&str, &str); 4] = [("A", "50"), ("C", "50:100"), ("D", "50:100"), ("B", "50")];

/// The program that ends after the first moment.
const ENDS_FIRST: &str = "C";

/// How long the whole may take before it is given up.
const TIMEOUT: Duration = Duration::from_secs(25);

/// How long each step stays on a terminal.
const PACE: Duration = Duration::from_millis(900);

/// Options of `gpupool demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Shows the example; ends with 1 when it did not go as published.
pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(show())
}

async fn show() -> anyhow::Result<ExitCode> {
    let mut demo = Demo::begin().await?;
    let seen = demo.moments().await;
    let log = if seen.is_err() { demo.processes.log() } else { String::new() };
    demo.processes.end().await;
    match seen {
        Ok(Some(seen)) => {
            demo.timeline.close(&seen)?;
            Ok(if seen == EXPECTED { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Ok(None) => {
            demo.timeline.close(&["interrupted".to_owned()])?;
            Ok(ExitCode::FAILURE)
        }
        Err(failure) => Err(failure.context(format!("the demo did not come to its end\n{log}"))),
    }
}

struct Demo {
    processes: DemoProcesses,
    timeline: Timeline,
    deadline: Instant,
    pace: Duration,
}

impl Demo {
    async fn begin() -> anyhow::Result<Self> {
        let terminal = std::io::stdout().is_terminal();
        let mut names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let timeline = Timeline::begin(&names, terminal)?;
        let pace = if terminal { PACE } else { Duration::ZERO };
        Ok(Self {
            processes: DemoProcesses::start().await?,
            timeline,
            deadline: Instant::now() + TIMEOUT,
            pace,
        })
    }

    /// Plays the example and gives what was seen at its two moments; nothing when the user broke it off.
    async fn moments(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        let mut seen = Vec::new();
        for (name, share) in PROGRAMS {
            self.timeline.note(&format!("{name} starts, --core {share} --memory {share}"))?;
            self.processes.start_program(name, share)?;
            let Some(status) = self.follow_until(|status| has_asked(status, name)).await? else {
                return Ok(None);
            };
            seen = vec![moment("T1", &status)];
        }
        self.timeline.note(&format!("{ENDS_FIRST} is told to end"))?;
        self.processes.finish_program(ENDS_FIRST);
        let gone = |status: &Status| status.pods.iter().all(|pod| pod.name != ENDS_FIRST);
        let Some(status) = self.follow_until(gone).await? else { return Ok(None) };
        seen.push(moment("T2", &status));
        Ok(Some(seen))
    }

    /// Shows what happens until the status is as wished, and then as long as people want to look at it. Gives that status;
    /// nothing when the user broke the demo off.
    async fn follow_until(&mut self, done: impl Fn(&Status) -> bool) -> anyhow::Result<Option<Status>> {
        let mut reached: Option<(Status, Instant)> = None;
        loop {
            let until = reached.as_ref().map_or(self.deadline, |(_, until)| *until);
            match self.processes.next_event(until).await? {
                DemoEvent::Status(status) => {
                    self.timeline.show(&status)?;
                    if reached.is_none() && done(&status) {
                        reached = Some((*status, Instant::now() + self.pace));
                    }
                }
                DemoEvent::Frame => self.timeline.draw()?,
                DemoEvent::Interrupted => return Ok(None),
                DemoEvent::TimedOut => match reached {
                    Some((status, _)) => return Ok(Some(status)),
                    None => bail!("nothing happened for {} seconds", TIMEOUT.as_secs()),
                },
            }
        }
    }
}

/// Whether the program has asked for a card, whatever it got.
fn has_asked(status: &Status, name: &str) -> bool {
    status.pods.iter().any(|pod| pod.name == name && pod.state != PodState::Hibernating)
}

/// One moment as one line: cards, who runs on them, the queue.
fn moment(name: &str, status: &Status) -> String {
    let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
    let mut parts: Vec<String> =
        status.cards.iter().map(|card| format!("card {}: {}", card.index, list(&card.pods))).collect();
    let queue: Vec<String> = status.queue.iter().map(|waiting| waiting.pod.clone()).collect();
    parts.push(format!("queue: {}", list(&queue)));
    format!("{name}  {}", parts.join("    "))
}
