//! Where the lab plays: a cluster, its three nodes, and what must be as before when the lab is over.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use gpupool_testbed::{Cluster, Kubectl, KwokNode, Tool, folder_of, spawn_tied};
use serde_json::{Value, json};

/// The page's nodes.
pub(crate) const NODES: [&str; 3] = ["lab-node-0", "lab-node-1", "lab-node-2"];
/// The page's namespace.
pub(crate) const NAMESPACE: &str = "gpu-vm";
/// The label that says what a node is for.
pub(crate) const LABEL: &str = "nvidia.com/gpu.workload.config";
/// The annotation by which `gpupool control` knows a node's cards.
pub(crate) const CARDS: &str = "gpupool.io/cards";

const PATIENCE: Duration = Duration::from_mins(2);

/// A cluster that the lab may use.
#[derive(Debug)]
pub(crate) struct Scene {
    kubectl: Kubectl,
    kubeconfig: PathBuf,
    dist: PathBuf,
    on_existing_nodes: bool,
    /// Ours, unless the user named one.
    cluster: Option<Cluster>,
    /// Plays our nodes in a cluster of the user's, where nobody else would keep them ready.
    kwok: Option<Child>,
}

impl Scene {
    /// Starts a cluster, or gets ready to use the user's.
    pub(crate) fn open(
        dist: &Path,
        kubeconfig: Option<&Path>,
        on_existing_nodes: bool,
    ) -> anyhow::Result<Self> {
        let Some(kubeconfig) = kubeconfig else {
            eprintln!("==> starting a Kubernetes control plane");
            let cluster = Cluster::builder().start()?;
            return Ok(Self {
                kubectl: cluster.kubectl_handle(),
                kubeconfig: cluster.kubeconfig().to_owned(),
                dist: dist.to_owned(),
                on_existing_nodes,
                cluster: Some(cluster),
                kwok: None,
            });
        };
        let kubeconfig =
            kubeconfig.canonicalize().with_context(|| format!("cannot find {}", kubeconfig.display()))?;
        let kwok = (!on_existing_nodes).then(|| start_kwok(&kubeconfig)).transpose()?;
        Ok(Self {
            kubectl: Kubectl::for_kubeconfig(&kubeconfig)?,
            kubeconfig,
            dist: dist.to_owned(),
            on_existing_nodes,
            cluster: None,
            kwok,
        })
    }

    /// Ends what [`Self::open`] started.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        match self.cluster.take() {
            Some(cluster) => Ok(cluster.stop()?),
            None => Ok(()),
        }
    }

    /// The installed programs.
    pub(crate) fn dist(&self) -> &Path {
        &self.dist
    }

    /// Runs kubectl; gives what it printed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(self.kubectl.run(arguments, "")?)
    }

    /// Runs kubectl with something on its standard input.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        Ok(self.kubectl.run(arguments, input)?)
    }

    /// Reads one object.
    pub(crate) fn get(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let arguments = [&["get", "-o", "json"], arguments].concat();
        Ok(serde_json::from_str(&self.kubectl(&arguments)?)?)
    }

    /// Reads one object until it is as wanted.
    pub(crate) fn wait(
        &self,
        what: &str,
        arguments: &[&str],
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let start = Instant::now();
        loop {
            let object = self.get(arguments)?;
            if wanted(&object) {
                return Ok(object);
            }
            if start.elapsed() > PATIENCE {
                bail!("waited {} s in vain until {what}; last seen:\n{object:#}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Makes namespace and nodes; gives what is there of before and has to come back.
    pub(crate) fn set_up(&self) -> anyhow::Result<Before> {
        let names = self.kubectl(&["get", "nodes", "-o", "name"])?;
        let there: Vec<&str> = NODES
            .into_iter()
            .filter(|node| names.lines().any(|line| line == format!("node/{node}")))
            .collect();
        if !self.on_existing_nodes && !there.is_empty() {
            bail!(
                "this cluster has {} already: give --on-existing-nodes to use such nodes, or another cluster",
                there.join(", ")
            );
        }
        let namespaces = self.kubectl(&["get", "namespaces", "-o", "name"])?;
        if namespaces.lines().any(|line| line == format!("namespace/{NAMESPACE}")) {
            bail!(
                "this cluster has a namespace {NAMESPACE} already: delete it first, the lab makes and removes its own"
            );
        }
        let mut before = Before::default();
        for node in there {
            before.nodes.push(self.get(&["node", node])?);
        }
        for node in NODES.into_iter().filter(|node| !before.has(node)) {
            self.kubectl_with(&["create", "-f", "-"], &KwokNode::new(node).manifest())?;
        }
        self.kubectl(&["create", "namespace", NAMESPACE])?;
        for node in NODES {
            self.wait(&format!("{node} is ready"), &["node", node], is_ready)?;
        }
        Ok(before)
    }

    /// Removes what [`Self::set_up`] made and puts back what it found.
    pub(crate) fn tear_down(&self, before: &Before) -> anyhow::Result<()> {
        self.kubectl(&["delete", "namespace", NAMESPACE, "--wait=true"])?;
        for node in NODES.into_iter().filter(|node| !before.has(node)) {
            self.kubectl(&["delete", "node", node])?;
        }
        for node in &before.nodes {
            self.restore(node)?;
        }
        Ok(())
    }

    /// Gives a node that was there before its label, annotation and resources back; `null` removes a key.
    fn restore(&self, node: &Value) -> anyhow::Result<()> {
        let name = node["metadata"]["name"].as_str().context("a node has a name")?;
        let metadata = json!({"metadata": {
            "labels": {LABEL: node["metadata"]["labels"][LABEL]},
            "annotations": {CARDS: node["metadata"]["annotations"][CARDS]},
        }});
        self.kubectl(&["patch", "node", name, "--type=merge", "--patch", &metadata.to_string()])?;
        let now = self.get(&["node", name])?;
        let mut status = json!({"status": {"capacity": {}, "allocatable": {}}});
        for list in ["capacity", "allocatable"] {
            for key in now["status"][list].as_object().into_iter().flatten().map(|(key, _)| key) {
                if key.starts_with("nvidia.com/") {
                    status["status"][list][key] = node["status"][list][key].clone();
                }
            }
        }
        self.kubectl(&[
            "patch",
            "node",
            name,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status.to_string(),
        ])?;
        Ok(())
    }

    /// Starts `gpupool control` on this cluster.
    pub(crate) fn control(&self) -> anyhow::Result<Control> {
        let mut command = Command::new(self.dist.join("bin/gpupool"));
        command.args(["control", "--sandbox-workloads", "--kubeconfig"]).arg(&self.kubeconfig);
        command.stderr(Stdio::null());
        Ok(Control(spawn_tied(command).context("cannot start gpupool control")?))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(kwok) = &mut self.kwok {
            // It may have ended by itself; nothing is left to do then.
            let _ = kwok.kill();
            let _ = kwok.wait();
        }
    }
}

/// The nodes that were there before, as they were.
#[derive(Debug, Default)]
pub(crate) struct Before {
    nodes: Vec<Value>,
}

impl Before {
    fn has(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node["metadata"]["name"] == name)
    }
}

/// A running controller; ends with this value.
#[derive(Debug)]
pub(crate) struct Control(Child);

impl Drop for Control {
    fn drop(&mut self) {
        // It may have ended by itself; nothing is left to do then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
    !tainted && conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// kwok for the nodes that carry its annotation, and for no others.
fn start_kwok(kubeconfig: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(folder_of(Tool::Kwok)?.join("kwok"));
    command.arg("--kubeconfig").arg(kubeconfig);
    command.arg("--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    spawn_tied(command).context("cannot start kwok")
}
