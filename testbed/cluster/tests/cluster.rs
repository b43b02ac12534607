//! Clusters as their users see them: they start, schedule, survive faults and leave nothing behind.
//!
//! The programs are built first if the cache has none: minutes, once, said on standard error.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpupool_testbed::{Cluster, Error, Node, Standing};
use serde_json::json;

/// Nothing here takes more than seconds; a machine may be a hundred times slower.
const LIMIT: &str = "--timeout=180s";

fn pod(name: &str, gpus: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }]},
    })
    .to_string()
}

/// Whether the process exists and has not ended: one that nobody has waited for yet counts as ended.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn pids(standing: &Standing) -> Vec<u32> {
    standing.parts.iter().filter_map(|part| part.pid).collect()
}

/// Waits for something that must come; fails with `what` when it does not.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(180), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_scheduler_places_pods_where_the_resource_is_and_says_why_it_cannot() {
    let mut cluster = Cluster::builder()
        .node(Node::new("with-gpus").capacity("nvidia.com/gpu", "4").label("pool", "a"))
        .node(Node::new("without"))
        .start()
        .unwrap();
    cluster.apply(&pod("fits", "4")).unwrap();
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", "pod/fits", LIMIT]).unwrap();
    let node = cluster.kubectl(["get", "pod", "fits", "-o", "jsonpath={.spec.nodeName}"]).unwrap();
    assert_eq!(node, "with-gpus");

    cluster.apply(&pod("waits", "1")).unwrap();
    cluster.kubectl(["wait", "--for=condition=PodScheduled=false", "pod/waits", LIMIT]).unwrap();
    let why =
        ["get", "pod", "waits", "-o", "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}"];
    let why = cluster.kubectl(why).unwrap();
    assert!(why.starts_with("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."), "{why}");

    cluster.add_node(&Node::new("more").capacity("nvidia.com/gpu", "1")).unwrap();
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", "pod/waits", LIMIT]).unwrap();
    let labelled = cluster.kubectl(["get", "nodes", "-l", "pool=a", "-o", "name"]).unwrap();
    assert_eq!(labelled, "node/with-gpus\n");
    cluster.stop().unwrap();
}
