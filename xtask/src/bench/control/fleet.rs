//! A cluster with many nodes that kwok plays, and what is done to all of them at once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use gpupool_testbed::{Cluster, KwokNode, spawn_tied};
use serde::Deserialize;

use super::requests::Requests;
use crate::step;

const LABEL: &str = "nvidia.com/gpu.workload.config";
const CARDS: (&str, &str) = ("gpupool.io/cards", r#"{"nvidia.com/gpu": 2, "nvidia.com/GA102GL_A10": 2}"#);
const CONDITION: &str = "GPUNodeUseValid";
const NAMESPACE: &str = "gpupool-system";
const ACCOUNT: &str = "gpupool-control";
/// Which kubectl takes care of a node.
const SHARD: &str = "bench-shard";
/// So many kubectl work at once: each sends 50 requests a second at most, after a burst of 300.
const SHARDS: usize = 16;
/// How long the nodes may take to become ready.
const PATIENCE: Duration = Duration::from_mins(10);

/// What all nodes are for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Use {
    Container,
    Passthrough,
}

impl Use {
    /// The label's value.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Passthrough => "vm-passthrough",
        }
    }

    /// The only name that a node may advertise.
    fn resource(self) -> &'static str {
        match self {
            Self::Container => "nvidia.com/gpu",
            Self::Passthrough => "nvidia.com/GA102GL_A10",
        }
    }
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Fleet {
    cluster: Cluster,
    kubeconfig: PathBuf,
    count: usize,
}

/// When labels were seen to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) first: Instant,
    pub(crate) last: Instant,
}

impl Fleet {
    /// Starts a cluster with so many nodes, all for containers, and waits until they are ready.
    pub(crate) fn start(count: usize) -> anyhow::Result<Self> {
        let cluster =
            Cluster::builder().audited(format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")).start()?;
        let rights = step::root().join("deploy/control/rbac.yaml");
        cluster.kubectl(["create", "--filename", &rights.to_string_lossy()])?;
        let kubeconfig = cluster.kubeconfig_of(NAMESPACE, ACCOUNT)?;
        let fleet = Self { cluster, kubeconfig, count };
        let kubectl = fleet.cluster.kubectl_handle();
        in_shards(|shard| {
            let nodes: Vec<String> =
                (shard..count).step_by(SHARDS).map(|number| node(number).manifest()).collect();
            let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#, nodes.join(","));
            // An empty list is an error to kubectl.
            if !nodes.is_empty() {
                kubectl.run(["create", "--filename", "-"], &list)?;
            }
            Ok(())
        })?;
        fleet.wait_until_ready()?;
        Ok(fleet)
    }

    /// How many nodes there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The controller's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A folder that goes with the cluster.
    pub(crate) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// What the controller has asked of the API server so far.
    pub(crate) fn requests(&self) -> anyhow::Result<Requests> {
        Requests::read(&self.cluster.audit_log())
    }

    /// Labels all nodes anew, with kubectl; returns when all are labelled.
    pub(crate) fn relabel(&self, node_use: Use) -> anyhow::Result<Written> {
        let kubectl = self.cluster.kubectl_handle();
        let label = format!("{LABEL}={}", node_use.label());
        let written = in_shards(|shard| {
            let selector = format!("--selector={SHARD}={shard}");
            let words = ["label", "nodes", &selector, "--overwrite", &label];
            times_of_lines(kubectl.command(words))
        })?;
        let times = written.iter().flatten();
        let (first, last) = (times.clone().min(), times.clone().max());
        ensure!(times.count() == self.count, "kubectl did not label {} nodes", self.count);
        let (first, last) = first.zip(last).context("there are no nodes")?;
        Ok(Written { first: *first, last: *last })
    }

    /// Reads all nodes back: each must be right for the use, and advertise its name and no other.
    pub(crate) fn check(&self, node_use: Use) -> anyhow::Result<()> {
        let nodes = self.nodes()?;
        ensure!(nodes.len() == self.count, "there are {} nodes, not {}", nodes.len(), self.count);
        let wrong: Vec<&Seen> = nodes.iter().filter(|node| !node.is_right(node_use)).collect();
        if let [first, ..] = wrong[..] {
            bail!("{} nodes are not right for {}, such as {first:?}", wrong.len(), node_use.label());
        }
        Ok(())
    }

    pub(crate) fn end(self) -> anyhow::Result<()> {
        Ok(self.cluster.stop()?)
    }

    fn nodes(&self) -> anyhow::Result<Vec<Seen>> {
        let text = self.cluster.kubectl(["get", "--raw=/api/v1/nodes"])?;
        Ok(serde_json::from_str::<List>(&text)?.items)
    }

    fn wait_until_ready(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let ready = self.nodes()?.iter().filter(|node| node.is_ready()).count();
            if ready == self.count {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "{ready} nodes are ready after {} s", PATIENCE.as_secs());
            thread::sleep(Duration::from_secs(1));
        }
    }
}

fn node(number: usize) -> KwokNode {
    KwokNode::new(format!("bench-{number}"))
        .label(LABEL, Use::Container.label())
        .label(SHARD, (number % SHARDS).to_string())
        .annotation(CARDS.0, CARDS.1)
}

/// Does something for every shard, all at once.
fn in_shards<T: Send>(work: impl Fn(usize) -> anyhow::Result<T> + Sync) -> anyhow::Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..SHARDS).map(|shard| scope.spawn(move || work(shard))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread has panicked")).flatten())
            .collect()
    })
}

/// Runs a kubectl that prints a line for each write; gives the moments at which the lines came.
fn times_of_lines(mut command: Command) -> anyhow::Result<Vec<Instant>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn_tied(command).context("cannot start kubectl")?;
    let output = child.stdout.take().context("standard output was piped")?;
    let times = BufReader::new(output).lines().map(|line| line.map(|_| Instant::now()));
    let times = times.collect::<Result<_, _>>();
    let status = child.wait()?;
    ensure!(status.success(), "kubectl label ended with {status}");
    Ok(times?)
}

#[derive(Debug, Deserialize)]
struct List {
    items: Vec<Seen>,
}

/// A node, as far as the measurement looks at it.
#[derive(Debug, Deserialize)]
struct Seen {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    taints: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Status {
    capacity: BTreeMap<String, String>,
    allocatable: BTreeMap<String, String>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
    #[serde(default)]
    reason: String,
}

impl Seen {
    fn condition(&self, name: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.r#type == name)
    }

    fn is_ready(&self) -> bool {
        self.spec.taints.is_empty()
            && self.condition("Ready").is_some_and(|condition| condition.status == "True")
    }

    fn is_right(&self, node_use: Use) -> bool {
        let condition = self.condition(CONDITION);
        self.metadata.labels.get(LABEL).is_some_and(|label| label == node_use.label())
            && condition.is_some_and(|condition| condition.status == "True" && condition.reason == "Valid")
            && [&self.status.capacity, &self.status.allocatable].into_iter().all(|amounts| {
                let mut names = amounts.keys().filter(|name| name.starts_with("nvidia.com/"));
                names.next().is_some_and(|name| name == node_use.resource()) && names.next().is_none()
            })
    }
}
