//! The page's eight steps, in its order. What goes into a file is what the cluster answered.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::Advertiser;
use super::scene::{CARDS, LABEL, NAMESPACE, NODES, Scene};

/// What each node is for, and what it offers then.
const PLAN: [(&str, &str, &str); 3] = [
    ("container", "nvidia.com/gpu", "4"),
    ("vm-passthrough", "nvidia.com/GA102GL_A10", "2"),
    ("vm-vgpu", "nvidia.com/NVIDIA_A10-12Q", "4"),
];

/// The page's manifests.
const MANIFESTS: [(&str, &str); 4] = [
    ("pod-container.yaml", include_str!("../../../examples/sandbox-workloads/k8s/pod-container.yaml")),
    ("pod-passthrough.yaml", include_str!("../../../examples/sandbox-workloads/k8s/pod-passthrough.yaml")),
    ("pod-vgpu.yaml", include_str!("../../../examples/sandbox-workloads/k8s/pod-vgpu.yaml")),
    ("pod-cross.yaml", include_str!("../../../examples/sandbox-workloads/k8s/pod-cross.yaml")),
];

/// Runs all steps on the scene, with files below `root`, and leaves the cluster as it was.
pub(crate) fn run(scene: &Scene, root: &Path, advertiser: Advertiser) -> anyhow::Result<()> {
    let how = match advertiser {
        Advertiser::Hand => "kubectl patch",
        Advertiser::Control => "gpupool control",
    };
    eprintln!("==> the lab, with {how} advertising");
    let before = scene.set_up()?;
    let outcome = Pass { scene, root }.steps(advertiser);
    let cleaned = scene.tear_down(&before);
    outcome.and(cleaned)
}

struct Pass<'a> {
    scene: &'a Scene,
    root: &'a Path,
}

impl Pass<'_> {
    fn steps(&self, advertiser: Advertiser) -> anyhow::Result<()> {
        self.label_nodes()?;
        self.operands()?;
        let control = self.advertise(advertiser)?;
        self.pod_container()?;
        self.pod_passthrough()?;
        self.pod_vgpu()?;
        self.pod_cross()?;
        self.check()?;
        drop(control);
        Ok(())
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.root.join("out").join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Step 1: folders, namespace (made with the scene), one label a node.
    fn label_nodes(&self) -> anyhow::Result<()> {
        for folder in ["out", "bin", "k8s"] {
            fs::create_dir_all(self.root.join(folder))?;
        }
        for (node, (node_use, _, _)) in NODES.into_iter().zip(PLAN) {
            self.scene.kubectl(&["label", "node", "--overwrite", node, &format!("{LABEL}={node_use}")])?;
        }
        let mut lines = Vec::new();
        for node in self.nodes()? {
            let label = node["metadata"]["labels"][LABEL].as_str().unwrap_or_default();
            lines.push(format!("{} {label}\n", name(&node)?));
        }
        self.write("01-nodes.txt", &lines.concat())
    }

    /// The lab's nodes in the order of their names.
    fn nodes(&self) -> anyhow::Result<Vec<Value>> {
        let mut nodes = NODES
            .into_iter()
            .map(|node| self.scene.get(&["node", node]))
            .collect::<anyhow::Result<Vec<_>>>()?;
        nodes.sort_by_key(|node| node["metadata"]["name"].to_string());
        Ok(nodes)
    }

    /// Step 2: which operands each use brings.
    fn operands(&self) -> anyhow::Result<()> {
        let output = Command::new(self.scene.dist().join("bin/gpupool")).arg("operands").output()?;
        if !output.status.success() {
            bail!("gpupool operands: {}", String::from_utf8_lossy(&output.stderr));
        }
        self.write("operands.txt", &String::from_utf8_lossy(&output.stdout))
    }

    /// Step 3: capacity and allocatable, by hand or by the controller, which stays until the pass is over.
    fn advertise(&self, advertiser: Advertiser) -> anyhow::Result<Option<super::scene::Control>> {
        let control = match advertiser {
            Advertiser::Hand => {
                for (node, (_, resource, quantity)) in NODES.into_iter().zip(PLAN) {
                    let offer = json!({resource: quantity});
                    let patch = json!({"status": {"capacity": offer, "allocatable": offer}}).to_string();
                    self.scene.kubectl(&[
                        "patch",
                        "node",
                        node,
                        "--subresource=status",
                        "--type=merge",
                        "-p",
                        &patch,
                    ])?;
                }
                None
            }
            Advertiser::Control => {
                for (node, (_, resource, quantity)) in NODES.into_iter().zip(PLAN) {
                    let cards = format!("{CARDS}={{\"{resource}\":{quantity}}}");
                    self.scene.kubectl(&["annotate", "node", "--overwrite", node, &cards])?;
                }
                Some(self.scene.control()?)
            }
        };
        let mut lines = Vec::new();
        for node in NODES {
            let has_offers = |node: &Value| !offers(node).is_empty();
            let node = self.scene.wait(&format!("{node} advertises a GPU"), &["node", node], has_offers)?;
            for (resource, quantity) in offers(&node) {
                lines.push(format!("{} {resource} {quantity}\n", name(&node)?));
            }
        }
        self.write("03-resources.txt", &lines.concat())?;
        Ok(control)
    }

    /// Applies one of the page's manifests, from its file.
    fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let (_, text) =
            MANIFESTS.iter().find(|(file, _)| *file == manifest).context("a manifest of the page")?;
        let path = self.root.join("k8s").join(manifest);
        fs::write(&path, text)?;
        self.scene.kubectl(&["apply", "-f", &path.to_string_lossy()])?;
        Ok(())
    }

    fn pod(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.scene.wait(&format!("pod {name} {what}"), &["pod", "-n", NAMESPACE, name], wanted)
    }

    /// Waits until a pod runs; gives it.
    fn running(&self, name: &str) -> anyhow::Result<Value> {
        self.pod(name, "runs", |pod| pod["status"]["phase"] == "Running")
    }

    /// Step 4.
    fn pod_container(&self) -> anyhow::Result<()> {
        self.apply("pod-container.yaml")?;
        self.write("04-container.txt", &format!("NODE={}\n", node_of(&self.running("job-container")?)))
    }

    /// Step 5.
    fn pod_passthrough(&self) -> anyhow::Result<()> {
        self.apply("pod-passthrough.yaml")?;
        let pod = self.running("vmi-passthrough")?;
        let limits = pod["spec"]["containers"][0]["resources"]["limits"].as_object();
        let resource = limits.and_then(|limits| limits.keys().next()).map_or("", String::as_str);
        self.write("05-passthrough.txt", &format!("NODE={}\nRESOURCE={resource}\n", node_of(&pod)))
    }

    /// Step 6.
    fn pod_vgpu(&self) -> anyhow::Result<()> {
        self.apply("pod-vgpu.yaml")?;
        self.running("vmi-vgpu")?;
        let pods = self.scene.get(&["pods", "-n", NAMESPACE])?;
        let mut lines = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|pod| Ok(format!("{} {}\n", name(pod)?, node_of(pod))))
            .collect::<anyhow::Result<Vec<_>>>()?;
        lines.sort();
        self.write("06-placement.txt", &lines.concat())
    }

    /// Step 7: the passthrough node has cards and room, but not by that name.
    fn pod_cross(&self) -> anyhow::Result<()> {
        self.apply("pod-cross.yaml")?;
        let pod = self.pod("job-cross", "was looked at by the scheduler", |pod| scheduled(pod).is_some())?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let message = scheduled(&pod).and_then(|condition| condition["message"].as_str()).unwrap_or_default();
        self.write("07-cross.txt", &format!("PHASE={phase}\nNODE={}\nMESSAGE={message}\n", node_of(&pod)))
    }

    /// Step 8: the dump, the checker, its verdict.
    fn check(&self) -> anyhow::Result<()> {
        self.write("nodes.json", &self.scene.kubectl(&["get", "nodes", "-o", "json"])?)?;
        let script = self.root.join("bin/check-config.sh");
        fs::write(&script, wrapper(&self.scene.dist().join("bin/gpupool")))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let output = Command::new(&script).arg(self.root.join("out/nodes.json")).current_dir("/").output()?;
        let verdict = String::from_utf8_lossy(&output.stdout).into_owned();
        if verdict.is_empty() {
            bail!("check-config.sh gave no verdict: {}", String::from_utf8_lossy(&output.stderr));
        }
        self.write("consistency.txt", &verdict)
    }
}

/// A thin wrapper that works from any directory.
fn wrapper(gpupool: &Path) -> String {
    let quoted = gpupool.display().to_string().replace('\'', "'\\''");
    format!(
        "#!/bin/sh\n\
         # Judges a node dump: does every labelled node advertise what its label says?\n\
         # GPUPOOL names another gpupool than the one that wrote this file.\n\
         gpupool='{quoted}'\n\
         exec \"${{GPUPOOL:-$gpupool}}\" check-config \"$@\"\n"
    )
}

fn name(object: &Value) -> anyhow::Result<&str> {
    object["metadata"]["name"].as_str().context("the object has no name")
}

/// Where a pod is, `none` for nowhere.
fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).unwrap_or("none")
}

/// The pod's `PodScheduled` condition.
fn scheduled(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "PodScheduled")
}

/// What a node advertises below `nvidia.com/`, in allocatable, where it is not "0".
fn offers(node: &Value) -> Vec<(&str, &str)> {
    let resources = node["status"]["allocatable"].as_object();
    let pairs =
        resources.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    pairs.filter(|(key, value)| key.starts_with("nvidia.com/") && *value != "0").collect()
}
