//! The subcommands that talk to a cluster, as processes, against a real one.
//!
//! The programs of the cluster are built first if the cache has none: minutes, once.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpupool_testbed::{Cluster, KwokNode, spawn_tied};
use serde_json::{Value, json};

const GPUPOOL: &str = env!("CARGO_BIN_EXE_gpupool");
const LABEL: &str = "nvidia.com/gpu.workload.config";
/// Nothing here takes more than seconds; a machine may be a hundred times slower.
const PATIENCE: Duration = Duration::from_mins(3);

fn gpupool(cluster: &Cluster, arguments: &[&str]) -> Output {
    Command::new(GPUPOOL).args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn pod(name: &str, resource: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "c", "image": "none", "resources": { "limits": { resource: "2" } } }] },
    })
    .to_string()
}

/// A node of each kind, a pod that runs and one that waits.
fn with_pods() -> Cluster {
    let cluster = Cluster::builder()
        .node(KwokNode::new("a").label(LABEL, "container").capacity("nvidia.com/gpu", "4"))
        .node(KwokNode::new("b").label(LABEL, "vm-passthrough").capacity("nvidia.com/GA102GL_A10", "2"))
        .start()
        .unwrap();
    cluster.apply(&pod("runs", "nvidia.com/gpu")).unwrap();
    cluster.apply(&pod("waits", "nvidia.com/TU104GL_T4")).unwrap();
    let limit = "--timeout=180s";
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", "pod/runs", limit]).unwrap();
    cluster.kubectl(["wait", "--for=condition=PodScheduled=false", "pod/waits", limit]).unwrap();
    cluster
}

#[test]
fn the_cluster_tells_the_same_as_its_dumps_also_through_kubectl() {
    let cluster = with_pods();
    let folder = tempfile::tempdir().unwrap();
    let dump = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        fs::write(&path, cluster.kubectl(arguments).unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let nodes = dump("nodes.json", &["get", "nodes", "-o", "json"]);
    let pods = dump("pods.json", &["get", "pods", "-A", "-o", "json"]);
    let dumps = ["--nodes", &nodes, "--pods", &pods];
    for question in
        [&["inventory"][..], &["inventory", "--output", "json"], &["explain", "pod", "default/waits"]]
    {
        let from_cluster = printed(&gpupool(&cluster, question));
        let from_dumps = printed(&gpupool(&cluster, &[question, &dumps].concat()));
        assert_eq!(from_cluster, from_dumps, "{question:?}");
        assert!(from_cluster.contains("TU104GL_T4"), "{from_cluster}");

        let plugin = folder.path().join("kubectl-gpupool");
        let _ = std::os::unix::fs::symlink(GPUPOOL, &plugin);
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut kubectl = cluster.kubectl_handle().command([&["gpupool"], question].concat());
        let output = kubectl.env("PATH", path).output().unwrap();
        assert_eq!(printed(&output), from_cluster, "kubectl gpupool {question:?}");
    }
    let absent = gpupool(&cluster, &["explain", "pod", "default/nobody"]);
    assert_eq!(absent.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&absent.stderr), "gpupool: no pod default/nobody in the cluster\n");
    cluster.stop().unwrap();
}

#[test]
fn usage_says_how_it_was_called() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-gpupool");
    std::os::unix::fs::symlink(GPUPOOL, &plugin).unwrap();
    let usage = |program: &Path| {
        let output = Command::new(program).args(["inventory", "--help"]).output().unwrap();
        printed(&output).lines().find(|line| line.starts_with("Usage")).unwrap().to_owned()
    };
    assert_eq!(usage(&plugin), "Usage: kubectl gpupool inventory [OPTIONS]");
    assert_eq!(usage(Path::new(GPUPOOL)), "Usage: gpupool inventory [OPTIONS]");
}

#[test]
fn one_dump_alone_is_refused_and_an_absent_cluster_says_so() {
    let usage = |arguments: &[&str]| Command::new(GPUPOOL).args(arguments).output().unwrap().status.code();
    assert_eq!(usage(&["inventory", "--nodes", "x"]), Some(2));
    assert_eq!(usage(&["inventory", "--nodes", "x", "--pods", "y", "--kubeconfig", "z"]), Some(2));
    let output = Command::new(GPUPOOL).args(["inventory", "--kubeconfig", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("gpupool: cannot use the kubeconfig /nowhere: "), "{said}");
}

/// A controller process, and its log.
struct Control(Child);

impl Control {
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let mut command = Command::new(GPUPOOL);
        command.arg("control").args(arguments).env("KUBECONFIG", cluster.kubeconfig()).stderr(Stdio::piped());
        Self(spawn_tied(command).unwrap())
    }

    /// Asks it to end, and gives its log.
    fn end(mut self) -> String {
        let told = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.0.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn control_advertises_serves_its_figures_and_ends_when_told() {
    let cards = r#"{"nvidia.com/GA102GL_A10": 2}"#;
    let node = KwokNode::new("n").label(LABEL, "vm-passthrough").annotation("gpupool.io/cards", cards);
    let cluster = Cluster::builder().node(node).start().unwrap();

    let dry = printed(&gpupool(&cluster, &["control", "--sandbox-workloads", "--dry-run"]));
    let line: Value = serde_json::from_str(dry.lines().next().unwrap()).unwrap();
    assert_eq!(line["body"]["status"]["capacity"], json!({ "nvidia.com/GA102GL_A10": "2" }));
    assert_eq!(cluster.kubectl(["get", "leases", "-o", "name"]).unwrap(), "");

    // A port that was free a moment ago: the listener is closed before the controller opens it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let control = Control::start(&cluster, &["--sandbox-workloads", "--metrics-address", &port]);
    cluster.kubectl(["wait", "--for=condition=GPUNodeUseValid", "node/n", "--timeout=180s"]).unwrap();
    let allocatable = ["get", "node", "n", "-o", "jsonpath={.status.allocatable.nvidia\\.com/GA102GL_A10}"];
    assert_eq!(cluster.kubectl(allocatable).unwrap(), "2");

    let address = format!("127.0.0.1:{port}");
    let started = Instant::now();
    let figures = loop {
        let figures = get(&address, "/metrics").unwrap_or_default();
        if figures.contains(r#"gpupool_control_nodes{use="vm-passthrough",reason="Valid"} 1"#) {
            break figures;
        }
        assert!(started.elapsed() < PATIENCE, "{figures}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(figures.contains("gpupool_control_leading 1"), "{figures}");
    assert!(figures.contains(r#"gpupool_control_writes_total{kind="status",outcome="done"} 1"#), "{figures}");
    assert!(get(&address, "/healthz").unwrap().ends_with("ok\n"));

    let log = control.end();
    assert!(log.lines().any(|line| line.contains("leading")), "{log}");
    let holder =
        cluster.kubectl(["get", "lease", "gpupool-control", "-o", "jsonpath={.spec.holderIdentity}"]);
    assert_eq!(holder.unwrap(), "", "the lease is given up at the end");
    cluster.stop().unwrap();
}
