//! Nodes with a kubelet as their users see them. They need root.
//!
//! The programs are built first if the cache has none: minutes, once, said on standard error.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use gpupool_testbed::{Cluster, Image, KubeletNode, Machine};
use serde_json::{Value, json};

/// Nothing here takes more than seconds; a machine may be a hundred times slower.
const LIMIT: &str = "--timeout=180s";

const SHELL: &str = "registry-cn-wulanchabu-vpc.ack.aliyuncs.com/acs/stress:v1.0.4";

fn pod(name: &str, node: &str, command: &[&str]) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": SHELL, "imagePullPolicy": "IfNotPresent", "command": command,
        }]},
    })
    .to_string()
}

fn node(cluster: &Cluster, name: &str) -> Value {
    serde_json::from_str(&cluster.kubectl(["get", "node", name, "-o", "json"]).unwrap()).unwrap()
}

fn wait_for_running(cluster: &Cluster, pod: &str) {
    let pod = format!("pod/{pod}");
    cluster.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", &pod, LIMIT]).unwrap();
}

#[test]
fn pods_really_run_and_the_published_machine_is_reported_as_published() {
    let started = std::time::Instant::now();
    let cluster = Cluster::builder()
        .image(Image::new(SHELL).shell().unwrap())
        .kubelet_node(
            KubeletNode::new("cn-wulanchabu-c.cr-xxx")
                .machine(Machine::PUBLISHED)
                .label("alibabacloud.com/node-type", "reserved"),
        )
        .start()
        .unwrap();
    eprintln!("started in {:?}", started.elapsed());
    for health in cluster.standing().health().unwrap() {
        eprintln!("{:?} {:?} {:?}", health.part.name, health.resident_kib, health.trouble);
    }
    let listed = cluster.kubectl(["get", "node", "-l", "alibabacloud.com/node-type=reserved"]).unwrap();
    assert!(listed.contains("cn-wulanchabu-c.cr-xxx") && listed.contains(" Ready "), "{listed}");
    let status = &node(&cluster, "cn-wulanchabu-c.cr-xxx")["status"];
    for kind in ["capacity", "allocatable"] {
        assert_eq!(status[kind]["cpu"], "176");
        assert_eq!(status[kind]["memory"], "1800Gi");
        assert_eq!(status[kind]["ephemeral-storage"], "6Ti");
    }

    let script = "echo started; read -r line < /proc/1/comm; echo $line; exec sleep 1000h";
    cluster.apply(&pod("demo", "cn-wulanchabu-c.cr-xxx", &["bash", "-c", script])).unwrap();
    wait_for_running(&cluster, "demo");
    eprintln!("pod in {:?}", started.elapsed());
    assert_eq!(cluster.kubectl(["logs", "demo"]).unwrap(), "started\nbash\n");
    assert_eq!(cluster.kubectl(["exec", "demo", "--", "bash", "-c", "echo $((6*7))"]).unwrap(), "42\n");
    cluster.kubectl(["delete", "pod", "demo", LIMIT]).unwrap();
    cluster.stop().unwrap();
}
