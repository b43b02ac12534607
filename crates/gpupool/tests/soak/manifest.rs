//! The pods of the run: how one that shares is written, and how one is made whose limit the watch knows before it can run.

use gpupool_testbed::Kubectl;
use serde_json::{Value, json};

use crate::cards::{Bounds, Limits};
use crate::insist;

/// A pod of the pool with one container, by its requests and limits in percent.
pub(crate) fn sharing_pod(request: u32, limit: u32, image: &str, command: &[&str]) -> Value {
    let percentages = |value: u32| {
        json!({
            "alibabacloud.com/gpu-core.percentage": value.to_string(),
            "alibabacloud.com/gpu-memory.percentage": value.to_string(),
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "labels": {
                "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
            },
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": image, "command": command,
                "resources": {"requests": percentages(request), "limits": percentages(limit)},
            }],
        },
    })
}

/// Makes the pod and gives its UID. It has a gate until the watch knows its bounds.
pub(crate) fn make(kubectl: &Kubectl, limits: &Limits, mut pod: Value, bounds: Bounds) -> String {
    let name = bounds.name.clone();
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["schedulingGates"] = json!([{"name": "test/counted"}]);
    insist(kubectl, &["apply", "-f", "-"], &pod.to_string());
    let uid = insist(kubectl, &["get", "pod", &name, "-o", "jsonpath={.metadata.uid}"], "");
    limits.lock().unwrap().insert(uid.clone(), bounds);
    let ungated = ["patch", "pod", &name, "--type=merge", "-p", r#"{"spec":{"schedulingGates":[]}}"#];
    insist(kubectl, &ungated, "");
    uid
}
