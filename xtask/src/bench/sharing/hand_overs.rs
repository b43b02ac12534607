//! How soon the next pod has the only card of a node: after its holder's program has ended, and after its holder was
//! deleted. Processes of pods and of the machine read the same monotonic clock.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use gpupool_testbed::spawn_tied;
use rustix::process::{Signal, pidfd_send_signal};

use super::process;
use super::stage::{NODES, PATIENCE, Pod, Stage};
use crate::bench::turns;

/// Takes one turn on a card after the other, each of which lasts until it is killed.
const SCRIPT: &str =
    "trap 'exit 0' TERM; exec 3< <(exec sleep infinity); while true; do turn <&3 & wait $!; done";
const NODE: &str = NODES[0];

/// From the readiness of the killed program's pidfd to the return of the next program's first call.
pub(super) fn after_exits(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let mut holder = Contender::start(stage, "exit-1")?;
    holder.first_call()?;
    let mut next = Contender::start(stage, "exit-2")?;
    let mut samples = Vec::new();
    for _ in 0..count {
        next.wait_until_queued()?;
        let program = turns::pidfd_of(process::in_pod(&holder.uid, "turn")?)?;
        pidfd_send_signal(&program, Signal::KILL)?;
        let gone = turns::wait_for_exit(&program)?;
        samples.push(next.first_call()? - gone);
        // The pod of the killed program starts another one, which is the next to wait.
        std::mem::swap(&mut holder, &mut next);
    }
    holder.delete()?;
    next.delete()?;
    super::print_percentiles(&format!("hand-over between pods, after kill -9 ({count})"), None, samples);
    Ok(())
}

/// From the start of `kubectl delete pod` to the return of the next program's first call.
pub(super) fn after_deletions(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let mut holder = Contender::start(stage, "deleted-0")?;
    holder.first_call()?;
    let mut samples = Vec::new();
    for number in 1..=count {
        let mut next = Contender::start(stage, &format!("deleted-{number}"))?;
        next.wait_until_queued()?;
        let start = turns::monotonic();
        holder.delete()?;
        samples.push(next.first_call()? - start);
        holder = next;
    }
    holder.delete()?;
    let what = format!("hand-over between pods, from `kubectl delete pod` ({count})");
    super::print_percentiles(&what, None, samples);
    Ok(())
}

/// A pod whose program wants the card, and what it prints.
#[derive(Debug)]
struct Contender<'a> {
    stage: &'a Stage,
    name: String,
    uid: String,
    logs: Child,
    output: BufReader<ChildStdout>,
}

impl<'a> Contender<'a> {
    fn start(stage: &'a Stage, name: &str) -> anyhow::Result<Self> {
        stage.apply(&[Pod::new(name, NODE, SCRIPT)])?;
        stage.run(&["wait", "--for=condition=Ready", "pod", name, "--timeout=240s"])?;
        let uid = stage.object("pod", name)?["metadata"]["uid"].as_str().map(str::to_owned);
        let mut command = stage.kubectl.command(["logs", "--follow", name]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut logs = spawn_tied(command)?;
        let output = BufReader::new(logs.stdout.take().context("standard output was piped")?);
        Ok(Self { stage, name: name.to_owned(), uid: uid.context("a pod has a UID")?, logs, output })
    }

    /// Waits until its program stands in the agent's queue.
    fn wait_until_queued(&self) -> anyhow::Result<()> {
        let queued = format!(
            "DCGM_FI_POOLING_STATUS{{NodeName=\"{NODE}\",pod=\"{}\",namespace=\"default\"}} 1",
            self.name
        );
        let start = Instant::now();
        while !self.stage.metrics(NODE)?.lines().any(|line| line == queued) {
            ensure!(start.elapsed() < PATIENCE, "pod {} does not wait for the card", self.name);
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits for the next first call; gives when it returned, in monotonic nanoseconds.
    fn first_call(&mut self) -> anyhow::Result<f64> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.output.read_line(&mut line)? > 0, "the logs of pod {} ended", self.name);
            // Programs also say that they wait, and the shell that they were killed.
            let numbers = line.trim().split_once(' ').map(|(at, took)| (at.parse(), took.parse::<f64>()));
            if let Some((Ok(at), Ok(_))) = numbers {
                return Ok(at);
            }
        }
    }

    /// Deletes the pod, and does not wait until it has ended.
    fn delete(&self) -> anyhow::Result<()> {
        self.stage.run(&["delete", "pod", &self.name, "--wait=false"]).map(drop)
    }
}

impl Drop for Contender<'_> {
    fn drop(&mut self) {
        let _ = self.logs.kill();
        let _ = self.logs.wait();
    }
}
