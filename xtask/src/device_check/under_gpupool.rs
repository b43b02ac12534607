//! The same driver under gpupool: answers that must not change, and limits that must hold.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::kit::Kit;
use super::probe::Probe;
use super::record::{Record, differences};
use crate::machine::AgentNode;

/// A comparison: what differs, one sentence each.
type Compare = fn(&Kit, &AgentNode, &Record) -> anyhow::Result<Vec<String>>;

/// All comparisons, by what they are called.
pub(super) const CHECKS: [(&str, Compare); 4] = [
    ("error codes", errors),
    ("resolver answers", resolver),
    ("codes and bytes of every family", bytes),
    ("memory limits", limits),
];

/// Families whose memory limit is tried, and what one step takes. Managed memory is not among them: a driver that is
/// asked for more of it than there is may hang its card.
const FAMILIES: [&str; 5] = ["plain", "pitched", "ordered", "array-2d", "physical"];

/// What one step takes, in bytes.
const STEP: u64 = 64 << 20;

/// The pod's share of the memory in that trial, in percent.
const SHARE: u8 = 10;

fn errors(kit: &Kit, node: &AgentNode, record: &Record) -> anyhow::Result<Vec<String>> {
    let found = Probe::pod(kit, node, 100).section("errors")?;
    Ok(differences("", record.section("errors"), &found))
}

/// Names that are found must be found, with the same status; which symbol it is, is the shim's business.
fn resolver(kit: &Kit, node: &AgentNode, record: &Record) -> anyhow::Result<Vec<String>> {
    let found = Probe::pod(kit, node, 100).section("resolver")?;
    Ok(differences("", &without_symbols(record.section("resolver")), &without_symbols(&found)))
}

fn without_symbols(answers: &Value) -> Value {
    let shorter = |answer: &Value| {
        let words: Vec<&str> = answer.as_str().unwrap_or_default().split(' ').collect();
        let found = words.get(3).is_some_and(|symbol| !symbol.is_empty());
        json!(format!(
            "{} {}",
            words.iter().take(3).copied().collect::<Vec<_>>().join(" "),
            if found { "found" } else { "nothing" }
        ))
    };
    let rows = answers.as_object().into_iter().flatten();
    let rows = rows.map(|(name, row)| {
        (name.clone(), row.as_array().into_iter().flatten().map(shorter).collect::<Value>())
    });
    rows.collect::<serde_json::Map<_, _>>().into()
}

fn bytes(kit: &Kit, node: &AgentNode, record: &Record) -> anyhow::Result<Vec<String>> {
    let found = Probe::pod(kit, node, 100).section("bytes")?;
    Ok(differences("", record.section("bytes"), &found))
}

/// A tenth of the card, taken through each family until it is refused.
fn limits(kit: &Kit, node: &AgentNode, record: &Record) -> anyhow::Result<Vec<String>> {
    let limit = record.total_memory() * u64::from(SHARE) / 100;
    let mut faults = Vec::new();
    for family in FAMILIES {
        let held = Held::take(kit, node, family, limit + 16 * STEP)?;
        let (code, got) = (&held.answer["code"], held.answer["got"].as_u64().unwrap_or(0));
        let unaccounted = unaccounted(node)?;
        eprintln!("  {family}: {got} of {limit} bytes, then code {code}; unaccounted {unaccounted} bytes");
        if *code != json!(2) {
            faults.push(format!("{family}: refused with {code}, not with 2 (out of memory)"));
        }
        if got > limit {
            faults.push(format!("{family}: {got} bytes were given, and the limit is {limit}"));
        }
        held.end()?;
        wait_for_no_pod(node)?;
    }
    Ok(faults)
}

/// A pod that has taken what it can and keeps it.
struct Held {
    child: std::process::Child,
    answer: Value,
}

impl Held {
    fn take(kit: &Kit, node: &AgentNode, family: &str, most: u64) -> anyhow::Result<Self> {
        let mut command = Probe::pod(kit, node, SHARE).taker(family, STEP, most);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("standard output was piped")?).read_line(&mut line)?;
        let answer = serde_json::from_str(&line).with_context(|| format!("{family}: it says {line:?}"))?;
        Ok(Self { child, answer })
    }

    fn end(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// What NVML shows of the only pod and its ledger does not count, once the agent has looked at what is held now.
fn unaccounted(node: &AgentNode) -> anyhow::Result<Value> {
    // It looks once a second: the last look but one may have been on its way.
    std::thread::sleep(Duration::from_millis(2500));
    let hold = node.status()?["pods"][0]["hold"].clone();
    if hold["memory"] == "unused" {
        bail!("the agent does not see the pod in NVML");
    }
    Ok(hold["unaccountedBytes"].clone())
}

fn wait_for_no_pod(node: &AgentNode) -> anyhow::Result<()> {
    let start = Instant::now();
    while node.status()?["pods"].as_array().is_some_and(|pods| !pods.is_empty()) {
        if start.elapsed() > Duration::from_secs(20) {
            bail!("the pod does not go");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
