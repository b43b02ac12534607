//! What the agent of a node takes while nothing happens: without pods that share, and with many.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process;
use super::stage::{NODES, PATIENCE, Pod, Stage};
use crate::bench::report::{self, Figure, Line};

const NODE: &str = NODES[1];
const QUIET: Duration = Duration::from_secs(30);

pub(super) fn measure(stage: &Stage, pods: usize) -> anyhow::Result<()> {
    let bare = taken(stage)?;
    let idle: Vec<_> =
        (1..=pods).map(|number| Pod::new(format!("idle-{number}"), NODE, "exec sleep infinity")).collect();
    stage.apply(&idle)?;
    let (running, took) = wait_for_pods(stage, pods)?;
    report::note(&format!("agent on a node: {running} of {pods} pods run after {} s", took.as_secs()));
    // They have just started; what that made the agent do is over soon.
    thread::sleep(Duration::from_secs(5));
    let ours = taken(stage)?;
    let line = |what: &str, bare, ours| {
        report::print(&Line {
            what: format!("agent on a node, 0 and {running} idle pods: {what}"),
            bare,
            ours,
            bar: None,
        });
    };
    line("resident memory", Figure::Bytes(bare.0), Figure::Bytes(ours.0));
    let spent = format!("processor time in {} s", QUIET.as_secs());
    line(&spent, Figure::Nanoseconds(bare.1), Figure::Nanoseconds(ours.1));
    Ok(())
}

/// Waits until all pods run, or for as long as is sensible; how many run then, and how long that took.
fn wait_for_pods(stage: &Stage, pods: usize) -> anyhow::Result<(usize, Duration)> {
    let start = Instant::now();
    loop {
        let on_node = format!("spec.nodeName={NODE},status.phase=Running");
        let list = stage.run(&["get", "pods", "--field-selector", &on_node, "--output", "json"])?;
        let list: Value = serde_json::from_str(&list)?;
        let running = list["items"].as_array().map_or(0, Vec::len);
        let took = start.elapsed();
        if running == pods || took > PATIENCE {
            return Ok((running, took));
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// Resident memory in bytes, and nanoseconds on the processors while it is [`QUIET`].
fn taken(stage: &Stage) -> anyhow::Result<(f64, f64)> {
    let agent = stage.agent(NODE)?;
    let before = process::processor_time(agent)?;
    thread::sleep(QUIET);
    let time = process::processor_time(agent)? - before;
    Ok((process::resident_memory(agent)?, time))
}
