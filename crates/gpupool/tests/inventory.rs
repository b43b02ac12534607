//! `gpupool inventory` and `gpupool explain` from the outside, from dumps.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

const LABEL: &str = "nvidia.com/gpu.workload.config";

fn node(name: &str, label: &str, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": { LABEL: label } },
        "spec": { "taints": [{ "key": "soft", "effect": "PreferNoSchedule" }] },
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{ "type": "MemoryPressure", "status": "False" }, { "type": "Ready", "status": "True" }],
        },
    })
}

fn pod(name: &str, node: Option<&str>, container: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "gpu-vm" },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "cuda", "resources": container }],
            "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }],
        },
        "status": { "phase": if node.is_some() { "Running" } else { "Pending" } },
    })
}

fn one(resource: &str) -> Value {
    json!({ "limits": { resource: "1" }, "requests": { resource: "1" } })
}

/// The pod of the lab that asks a passthrough node for the container resource.
fn cross() -> Value {
    let mut cross = pod("job-cross", None, &json!({ "limits": { "nvidia.com/gpu": 1 } }));
    cross["spec"]["nodeSelector"] = json!({ LABEL: "vm-passthrough" });
    cross["status"]["conditions"] = json!([{
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector.",
    }]);
    cross
}

fn list(items: &[Value]) -> String {
    json!({ "apiVersion": "v1", "items": items, "kind": "List", "metadata": {} }).to_string()
}

struct Dumps {
    _directory: TempDir,
    nodes: PathBuf,
    pods: PathBuf,
}

impl Dumps {
    fn of(nodes: &str, pods: &str) -> Self {
        let directory = TempDir::new().expect("temporary directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("writes");
            path
        };
        let (nodes, pods) = (write("nodes", nodes), write("pods", pods));
        Self { _directory: directory, nodes, pods }
    }

    fn lab() -> Self {
        let nodes = [
            node("lab-node-0", "container", &json!({ "cpu": "8", "nvidia.com/gpu": "4" })),
            node("lab-node-1", "vm-passthrough", &json!({ "cpu": "8", "nvidia.com/GA102GL_A10": "2" })),
            node("lab-node-2", "vm-vgpu", &json!({ "cpu": "8", "nvidia.com/NVIDIA_A10-12Q": "4" })),
        ];
        let pods = [
            pod("job-container", Some("lab-node-0"), &one("nvidia.com/gpu")),
            pod("vmi-passthrough", Some("lab-node-1"), &one("nvidia.com/GA102GL_A10")),
            pod("vmi-vgpu", Some("lab-node-2"), &one("nvidia.com/NVIDIA_A10-12Q")),
            cross(),
        ];
        Self::of(&list(&nodes), &list(&pods))
    }

    fn run(&self, command: &[&str], options: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_gpupool"))
            .args(command)
            .arg("--nodes")
            .arg(&self.nodes)
            .arg("--pods")
            .arg(&self.pods)
            .args(options)
            .output()
            .expect("runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn the_lab_is_a_table_and_its_idle_stock_is_called_out() {
    let (code, stdout, stderr) = Dumps::lab().run(&["inventory"], &[]);
    let expected = "\
USE             RESOURCE                   NODES  CAPACITY  ALLOCATABLE  REQUESTED  FREE  WAITING
container       nvidia.com/gpu             1      4         4            1          3     0
vm-passthrough  nvidia.com/GA102GL_A10     1      2         2            1          1     0
vm-passthrough  nvidia.com/gpu             0      0         0            0          0     1
vm-vgpu         nvidia.com/NVIDIA_A10-12Q  1      4         4            1          3     0
IDLE=nvidia.com/gpu 3 free on container nodes while 1 pod waits for nvidia.com/gpu on vm-passthrough nodes
IDLE=nvidia.com/GA102GL_A10 1 free on vm-passthrough nodes while 1 pod waits for nvidia.com/gpu on vm-passthrough nodes
IDLE=nvidia.com/NVIDIA_A10-12Q 3 free on vm-vgpu nodes while 1 pod waits for nvidia.com/gpu on vm-passthrough nodes
";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected, ""));
}

#[test]
fn programs_get_the_inventory_as_json() {
    let (code, stdout, _) = Dumps::lab().run(&["inventory"], &["--output", "json"]);
    assert_eq!(code, Some(0));
    let inventory: Value = serde_json::from_str(&stdout).expect("JSON");
    let first = json!({
        "use": "container", "resource": "nvidia.com/gpu", "nodes": 1, "capacity": "4", "allocatable": "4",
        "requested": "1", "free": "3", "waiting": 0,
    });
    assert_eq!(inventory["rows"][0], first);
    assert_eq!(inventory["idle"][1]["resource"], "nvidia.com/GA102GL_A10");
}

#[test]
fn sidecars_init_containers_and_finished_pods_count_as_the_scheduler_counts_them() {
    let nodes = list(&[node("n", "container", &json!({ "nvidia.com/gpu": "16" }))]);
    let mut sidecar = pod("sidecar", Some("n"), &one("nvidia.com/gpu"));
    sidecar["spec"]["initContainers"] = json!([
        { "restartPolicy": "Always", "resources": one("nvidia.com/gpu") },
        { "resources": { "limits": { "nvidia.com/gpu": "4" } } },
    ]);
    let mut finished = pod("finished", Some("n"), &one("nvidia.com/gpu"));
    finished["status"]["phase"] = json!("Succeeded");
    let plain = pod("plain", Some("n"), &json!({}));
    let (_, stdout, _) =
        Dumps::of(&nodes, &list(&[sidecar, finished, plain])).run(&["inventory"], &["--output", "json"]);
    let inventory: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(inventory["rows"][0]["requested"], "5", "the sidecar and the init container's four");
}

#[test]
fn the_pod_across_is_explained_with_what_would_help() {
    let (code, stdout, stderr) = Dumps::lab().run(&["explain", "pod", "gpu-vm/job-cross"], &[]);
    let expected = "\
gpu-vm/job-cross waits: none of 3 nodes takes it.
  2 nodes excluded by the pod's node selector nvidia.com/gpu.workload.config=vm-passthrough: lab-node-0, lab-node-2
  1 node does not have so much nvidia.com/gpu: lab-node-1
Why: nvidia.com/gpu is advertised only by container nodes (lab-node-0), which the pod's node selector nvidia.com/gpu.workload.config=vm-passthrough excludes.
Helps: ask for what the selected nodes advertise: nvidia.com/GA102GL_A10 (1 free).
Helps: or take nvidia.com/gpu.workload.config out of the node selector: the resource name alone finds the node.
Scheduler: 0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector.
";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected, ""));
    let (_, json, _) = Dumps::lab().run(&["explain", "pod", "gpu-vm/job-cross"], &["--output", "json"]);
    let told: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (told["outlook"].as_str(), told["excluded"][1]["nodes"][0].as_str()),
        (Some("stuck"), Some("lab-node-1"))
    );
}

#[test]
fn affinity_tolerations_and_gates_are_read_from_the_pod() {
    let mut closed = node("n", "container", &json!({ "nvidia.com/gpu": "4" }));
    closed["spec"]["taints"] = json!([{ "key": "dedicated", "value": "vm", "effect": "NoSchedule" }]);
    let first_line = |change: &dyn Fn(&mut Value)| {
        let mut asked = pod("asked", None, &one("nvidia.com/gpu"));
        change(&mut asked["spec"]);
        let dumps = Dumps::of(&list(&[closed.clone()]), &asked.to_string());
        let (code, stdout, stderr) = dumps.run(&["explain", "pod", "gpu-vm/asked"], &[]);
        assert_eq!(code, Some(0), "{stderr}");
        stdout.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(first_line(&|_| {}), "gpu-vm/asked waits: none of 1 nodes takes it.");
    for toleration in [
        json!({ "operator": "Exists" }),
        json!({ "key": "dedicated", "operator": "Exists", "effect": "NoSchedule" }),
        json!({ "key": "dedicated", "value": "vm" }),
    ] {
        let line = first_line(&|spec| spec["tolerations"] = json!([toleration]));
        assert_eq!(line, "gpu-vm/asked waits, but would fit on n.", "{toleration}");
    }
    for (field, expressions, fits) in [
        ("matchExpressions", json!([{ "key": LABEL, "operator": "In", "values": ["container"] }]), true),
        ("matchExpressions", json!([{ "key": LABEL, "operator": "NotIn", "values": ["container"] }]), false),
        ("matchFields", json!([{ "key": "metadata.name", "operator": "In", "values": ["n"] }]), true),
        ("matchFields", json!([{ "key": "metadata.name", "operator": "In", "values": ["m"] }]), false),
    ] {
        let line = first_line(&|spec| {
            spec["tolerations"] = json!([{ "operator": "Exists" }]);
            spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ (field): expressions }],
            } } });
        });
        assert_eq!(line.contains("would fit"), fits, "{expressions}: {line}");
    }
    let gated = first_line(&|spec| spec["schedulingGates"] = json!([{ "name": "example.com/quota" }]));
    assert_eq!(gated, "gpu-vm/asked waits for its scheduling gates: example.com/quota.");
    let bound = first_line(&|spec| spec["nodeName"] = json!("n"));
    assert_eq!(bound, "gpu-vm/asked is not waiting: it is bound to node n.");
}

#[test]
fn yaml_is_read_and_what_cannot_be_read_is_named() {
    let yaml = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {capacity: {nvidia.com/gpu: 4}}\n";
    let (code, stdout, _) = Dumps::of(yaml, &list(&[])).run(&["inventory"], &[]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("unlabelled  nvidia.com/gpu  1      4         4            0          4     0"),
        "{stdout}"
    );
    for (nodes, pods, word) in [
        ("{", list(&[]), "ends too early"),
        (yaml, "{\"items\": [{\"kind\": \"Node\"}]}".to_owned(), "item 1 is a Node"),
        (
            yaml,
            list(&[pod("p", None, &json!({ "limits": { "nvidia.com/gpu": "one" } }))]),
            "pod p: nvidia.com/gpu",
        ),
        (yaml, list(&[json!({ "kind": "Pod" })]), "a pod without a name"),
    ] {
        let (code, stdout, stderr) = Dumps::of(nodes, &pods).run(&["inventory"], &[]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.contains(word) && stderr.lines().count() == 1, "{word}: {stderr}");
    }
    let (code, _, stderr) = Dumps::lab().run(&["explain", "pod", "default/none"], &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no pod default/none"), "{stderr}");
    assert_eq!(Dumps::lab().run(&["explain", "pod", "none"], &[]).0, Some(2));
}
