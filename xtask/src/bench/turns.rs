//! Grants when a card is free, and hand-overs when it is not.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use super::report::{self, Bar, Figure, Line};
use crate::machine::{self, AgentNode, Turn};

const TURNS: usize = 100;

pub(crate) fn measure(dist: &Path) -> anyhow::Result<()> {
    let node = AgentNode::start(dist, 1)?;
    let program = machine::compile("turn", node.folder())?;
    first_calls(&node, &program, dist, "first call on a free card", &[])?;
    first_calls(&node, &program, dist, "grant on a free card, to a program that had one before", &["again"])?;
    hand_overs(&node, &program, "after an exit", Turn::finish)?;
    hand_overs(&node, &program, "after kill -9", |turn| {
        // The child is `gpupool run`; what holds the card is the program below it.
        if let Ok(holder) = gpu_process(turn) {
            let _ = pidfd_send_signal(&holder, Signal::KILL);
        }
    })
}

/// The call of a program that needs a card, while one is free: bare, and with the shim. The first time that is to
/// connect, to be identified, to map the pages, the grant, and the call itself; the next time the grant and the call.
fn first_calls(
    node: &AgentNode,
    program: &Path,
    dist: &Path,
    what: &str,
    words: &[&str],
) -> anyhow::Result<()> {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", dist.join("simgpu"));
        command.env("SIMGPU_STATE", node.folder().join("bare.state"));
        for (samples, mut command) in [(&mut bare, command), (&mut ours, node.run(program))] {
            command.args(words);
            let mut turn = Turn::start(command)?;
            samples.push(turn.first_call()?.1);
            turn.end()?;
        }
    }
    for (name, percent, most) in [("p50", 50, 100e3), ("p99", 99, 1e6)] {
        report::print(&Line {
            what: format!("{what}, {name}"),
            bare: Figure::Nanoseconds(report::percentile(&mut bare, percent)),
            ours: Figure::Nanoseconds(report::percentile(&mut ours, percent)),
            bar: Some(Bar::Over(most)),
        });
    }
    Ok(())
}

/// From the holder's pidfd becoming readable to the return of the next program's first call.
fn hand_overs(node: &AgentNode, program: &Path, how: &str, end: impl Fn(&mut Turn)) -> anyhow::Result<()> {
    let mut samples = Vec::new();
    let mut holder = Turn::start(node.run(program))?;
    holder.first_call()?;
    for _ in 0..TURNS {
        let mut next = Turn::start(node.run(program))?;
        node.wait_for_queue(1)?;
        let pidfd = gpu_process(&holder)?;
        end(&mut holder);
        let gone = wait_for_exit(&pidfd)?;
        samples.push(next.first_call()?.0 - gone);
        holder.end()?;
        holder = next;
    }
    holder.end()?;
    for (name, percent, most) in [("p50", 50, 130e3), ("p99", 99, 1e6)] {
        report::print(&Line {
            what: format!("hand-over {how}, {name}"),
            bare: Figure::None,
            ours: Figure::Nanoseconds(report::percentile(&mut samples, percent)),
            bar: Some(Bar::Within(most)),
        });
    }
    Ok(())
}

/// The program that `gpupool run` started: its only child.
fn gpu_process(turn: &Turn) -> anyhow::Result<OwnedFd> {
    pidfd_of(machine::program_under(&turn.child)?)
}

/// A process as something that can be waited for and signalled, whoever's child it is.
pub(super) fn pidfd_of(process: u32) -> anyhow::Result<OwnedFd> {
    let pid = i32::try_from(process).context("a process id is 31 bits long")?;
    let pid = Pid::from_raw(pid).context("a process id is positive")?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits for the process to end; gives the monotonic time in nanoseconds at which this was seen.
pub(super) fn wait_for_exit(pidfd: &OwnedFd) -> anyhow::Result<f64> {
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None)?;
    Ok(monotonic())
}

/// The monotonic time in nanoseconds, as programs in pods have it too.
pub(super) fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    #[allow(
        clippy::cast_precision_loss,
        reason = "nanoseconds since boot lose nothing that matters in 53 bits"
    )]
    let nanoseconds = now.tv_sec as f64 * 1e9 + now.tv_nsec as f64;
    nanoseconds
}
