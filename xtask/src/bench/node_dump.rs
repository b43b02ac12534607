//! Dumps of nodes as `kubectl get nodes -o json` writes them, of any length.
//!
//! A node in them is as large as a real one under the GPU Operator: fifty images, the labels of feature discovery,
//! conditions, addresses. A few nodes are rendered once and written again and again under other names.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use fastrand::Rng;
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

/// Where a node's own number goes.
const NUMBER: &str = "%NUMBER%";
/// One node in so many advertises what its label does not say.
const ONE_WRONG_IN: usize = 1000;

/// The labels' values and what such nodes advertise. The last one does not fit.
const USES: &[(Option<&str>, &str)] = &[
    (Some("container"), "nvidia.com/gpu"),
    (Some("vm-passthrough"), "nvidia.com/GA102GL_A10"),
    (Some("vm-vgpu"), "nvidia.com/NVIDIA_A10-12Q"),
    (None, "nvidia.com/gpu"),
    (Some("container"), "nvidia.com/GA102GL_A10"),
];

/// Writes a List of at least so many bytes, the same at every call; gives how many nodes it has.
pub(crate) fn write(path: &Path, bytes: u64) -> anyhow::Result<usize> {
    let mut random = Rng::with_seed(1);
    let nodes =
        USES.iter().map(|use_of| node(*use_of, &mut random)).collect::<anyhow::Result<Vec<Vec<String>>>>()?;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut written: u64 = 0;
    let mut count = 0;
    file.write_all(b"{\n    \"apiVersion\": \"v1\",\n    \"items\": [")?;
    while written < bytes {
        let wrong = count % ONE_WRONG_IN == ONE_WRONG_IN - 1;
        let pieces = &nodes[if wrong { USES.len() - 1 } else { count % (USES.len() - 1) }];
        let number = format!("{count:06}");
        file.write_all(if count == 0 { b"\n" } else { b",\n" })?;
        for (place, piece) in pieces.iter().enumerate() {
            if place > 0 {
                file.write_all(number.as_bytes())?;
            }
            file.write_all(piece.as_bytes())?;
            written += piece.len() as u64;
        }
        count += 1;
    }
    let end = b"\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n";
    file.write_all(end)?;
    file.into_inner()?.sync_data()?;
    Ok(count)
}

/// A node as text, cut where its number goes.
fn node((label, resource): (Option<&str>, &str), random: &mut Rng) -> anyhow::Result<Vec<String>> {
    let amounts = json!({
        "cpu": "128", "ephemeral-storage": "3685994Mi", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "1056270852Ki", "pods": "110", "nvidia.com/mig-1g.10gb": "0", (resource): "8",
    });
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": annotations(),
            "creationTimestamp": "2026-01-05T09:30:00Z",
            "labels": labels(label, random),
            "name": format!("gpu-node-{NUMBER}"),
            "resourceVersion": format!("77{NUMBER}"),
            "uid": format!("6f1c2a34-90ab-4cde-8f01-000000{NUMBER}"),
        },
        "spec": {
            "podCIDR": "10.64.0.0/24",
            "podCIDRs": ["10.64.0.0/24"],
            "providerID": format!("example:///zone-a/gpu-node-{NUMBER}"),
            "taints": [{ "effect": "NoSchedule", "key": "nvidia.com/gpu", "value": "present" }],
        },
        "status": {
            "addresses": [
                { "address": "10.0.0.1", "type": "InternalIP" },
                { "address": format!("gpu-node-{NUMBER}"), "type": "Hostname" },
            ],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": conditions(),
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "images": images(random),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": hex(32, random),
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.43-generic",
                "kubeletVersion": "v1.36.3",
                "machineID": hex(32, random),
                "operatingSystem": "linux",
                "osImage": "Debian GNU/Linux 13 (trixie)",
                "systemUUID": hex(32, random),
            },
        },
    });
    let mut text = Vec::new();
    node.serialize(&mut Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    ")))?;
    // Inside the list, everything stands two steps further to the right.
    let text = String::from_utf8(text)?.replace('\n', "\n        ");
    Ok(format!("        {text}").split(NUMBER).map(str::to_owned).collect())
}

/// What feature discovery and the operator write on a node, with the use of the node where it has one.
fn labels(label: Option<&str>, random: &mut Rng) -> Value {
    let mut labels = Map::new();
    for feature in 0..60 {
        let name = format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{feature}");
        labels.insert(name, "true".into());
    }
    for part in ["device-plugin", "driver", "operator-validator", "vgpu-manager", "sandbox-device-plugin"] {
        labels.insert(format!("nvidia.com/gpu.deploy.{part}"), "true".into());
    }
    labels.insert("kubernetes.io/hostname".to_owned(), format!("gpu-node-{NUMBER}").into());
    labels.insert("nvidia.com/gpu.product".to_owned(), "NVIDIA-A10".into());
    labels.insert("nvidia.com/gpu.machine".to_owned(), hex(12, random).into());
    if let Some(label) = label {
        labels.insert("nvidia.com/gpu.workload.config".to_owned(), label.into());
    }
    labels.into()
}

fn annotations() -> Value {
    let features: Vec<String> = (0..60).map(|feature| format!("cpu-cpuid.FEATURE{feature}")).collect();
    json!({
        "nfd.node.kubernetes.io/feature-labels": features.join(","),
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    })
}

fn conditions() -> Value {
    ["NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|condition| {
            json!({
                "lastHeartbeatTime": "2026-03-02T11:22:33Z",
                "lastTransitionTime": "2026-01-05T09:31:02Z",
                "message": format!("kubelet says of this node that its {condition} is as the status has it"),
                "reason": "KubeletReports",
                "status": if condition == "Ready" { "True" } else { "False" },
                "type": condition,
            })
        })
        .to_vec()
        .into()
}

/// As many images as a kubelet reports by default.
fn images(random: &mut Rng) -> Value {
    let image = |number: usize| {
        let name = format!("registry.example.com/team-{}/service-{number}", number % 7);
        json!({
            "names": [format!("{name}@sha256:{}", hex(64, random)), format!("{name}:v1.{number}.0")],
            "sizeBytes": 123_456_789 + number,
        })
    };
    (0..50).map(image).collect::<Vec<_>>().into()
}

fn hex(digits: usize, random: &mut Rng) -> String {
    (0..digits).map(|_| random.digit(16)).collect()
}
