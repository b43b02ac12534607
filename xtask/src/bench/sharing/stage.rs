//! The cluster that is measured, and pods on it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use gpupool_testbed::{Cluster, Image, Kubectl, KubeletNode, NAMESPACE, Product};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::process;
use crate::machine;
use crate::step;

/// How long anything may take before the measurement is given up.
pub(super) const PATIENCE: Duration = Duration::from_mins(4);
/// One with a single card, over which pods contend, and one with two, on which they are idle.
pub(super) const NODES: [&str; 2] = ["node-1", "node-2"];
const CARDS: [&str; 2] = ["1", "2"];
/// A shell and `turn.c`.
const IMAGE: &str = "gpupool.io/bench:1";
const POLICY: &str = "alibabacloud.com/gpu-share-policy";
const RESOURCES: [&str; 2] =
    ["alibabacloud.com/gpu-core.percentage", "alibabacloud.com/gpu-memory.percentage"];

/// A cluster of two nodes that share, with gpupool installed from its chart.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) kubectl: Kubectl,
    cluster: Cluster,
}

impl Stage {
    pub(super) fn start(dist: &Path) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("gpupool-bench-")?;
        let turn = machine::compile("turn", folder.path())?;
        let product = Product::new(step::root(), dist);
        let image = Image::new(IMAGE).shell()?.program("usr/bin/turn", turn)?;
        let mut builder = Cluster::builder().image(product.image()?).image(image);
        for (node, cards) in NODES.into_iter().zip(CARDS) {
            builder = builder.kubelet_node(KubeletNode::new(node).cards(product.cards(cards)));
        }
        let mut cluster = builder.start()?;
        product.install(&mut cluster, &json!({}))?;
        let stage = Self { kubectl: cluster.kubectl_handle(), cluster };
        NODES.into_iter().try_for_each(|node| stage.share(node))?;
        Ok(stage)
    }

    /// Ends the cluster; an error when a part of it had ended by itself meanwhile.
    pub(super) fn end(self) -> anyhow::Result<()> {
        Ok(self.cluster.stop()?)
    }

    /// Labels a node and waits until it offers percentages.
    fn share(&self, node: &str) -> anyhow::Result<()> {
        self.run(&["label", "node", node, &format!("{POLICY}=share-pool")])?;
        let start = Instant::now();
        loop {
            let offered = self.object("node", node)?["status"]["allocatable"][RESOURCES[0]].clone();
            if offered.as_str().is_some_and(|offered| offered != "0") {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "{node} offers no percentages");
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs kubectl, which must succeed; gives what it printed.
    pub(super) fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(self.kubectl.run(arguments, "")?)
    }

    pub(super) fn apply(&self, pods: &[Pod]) -> anyhow::Result<()> {
        let items: Vec<_> = pods.iter().map(Pod::object).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        self.kubectl.run(["create", "--filename", "-"], &list)?;
        Ok(())
    }

    pub(super) fn object(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.run(&["get", kind, name, "--output", "json"])?)?)
    }

    /// The process of the agent on a node.
    pub(super) fn agent(&self, node: &str) -> anyhow::Result<u32> {
        let uid = self.agent_pod(node)?["metadata"]["uid"].as_str().map(str::to_owned);
        process::in_pod(&uid.context("a pod has a UID")?, "gpupool")
    }

    /// The figures that the agent on a node serves.
    pub(super) fn metrics(&self, node: &str) -> anyhow::Result<String> {
        let pod = self.agent_pod(node)?;
        let name = pod["metadata"]["name"].as_str().context("a pod has a name")?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:9400/proxy/metrics");
        self.run(&["get", "--raw", &path])
    }

    fn agent_pod(&self, node: &str) -> anyhow::Result<Value> {
        let on_node = format!("spec.nodeName={node}");
        let selected = ["--selector", "app=gpupool-agent", "--field-selector", &on_node, "--output", "json"];
        let pods = self.run(&[["get", "pods", "--namespace", NAMESPACE].as_slice(), &selected].concat())?;
        let mut pods: Value = serde_json::from_str(&pods)?;
        let pod = pods["items"].as_array_mut().and_then(Vec::pop);
        pod.with_context(|| format!("{node} has no agent"))
    }
}

/// A pod that shares: it asks for a hundredth of a card and may use all of it.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    node: &'static str,
    script: String,
}

impl Pod {
    pub(super) fn new(name: impl Into<String>, node: &'static str, script: impl Into<String>) -> Self {
        Self { name: name.into(), node, script: script.into() }
    }

    pub(super) fn object(&self) -> Value {
        let percentages = |value: &str| json!({RESOURCES[0]: value, RESOURCES[1]: value});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": "default",
                "labels": {POLICY: "share-pool", "alibabacloud.com/compute-class": "gpu-hpn"},
            },
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": self.node},
                "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["bash", "-c", self.script],
                    "resources": {"requests": percentages("1"), "limits": percentages("100")},
                }],
            },
        })
    }
}
