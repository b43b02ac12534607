//! Somebody who may write pods, where no admission stands in his way: what he writes on a live pod, and what on one of his
//! own about another's.

use serde_json::json;

use crate::scene::{NODE, Scene};

/// A pod with limits below the whole card.
pub(crate) const SMALL: &str = "small";

/// Whether the agent still goes by what that pod asked for when it was created.
pub(crate) fn has_its_first_limits(scene: &Scene) {
    let status = scene.status();
    let small = status.pods.iter().find(|pod| pod.name == format!("default/{SMALL}")).expect("the pod");
    let first = "10:20".parse().unwrap();
    assert_eq!((small.core, small.memory), (first, first), "{small:?}");
}

pub(crate) fn a_live_pod_keeps_its_first_limits_whatever_is_written_on_it(scene: &Scene) {
    scene.create(SMALL, "share-pool", 10, 20);
    scene.wait_for_running(SMALL);
    has_its_first_limits(scene);
    for raised in ["gpupool.io/gpu-core.limit=100", "gpupool.io/gpu-memory.limit=100"] {
        scene.cluster.kubectl(["annotate", "--overwrite", "pod", SMALL, raised]).unwrap();
    }
    until_the_agent_has_seen_all(scene, "after-it");
    has_its_first_limits(scene);
}

pub(crate) fn an_object_under_another_pods_id_changes_and_ends_nothing(scene: &Scene) {
    let lease = |scene: &Scene| {
        let status = scene.status();
        let lease = status.leases.iter().find(|lease| lease.pod == "default/one");
        lease.map(|lease| (lease.lease, lease.memory_limit_percent, lease.ending.is_none()))
    };
    let held = lease(scene).expect("one holds a card");
    assert!(held.2);
    let owner = scene.object("node", NODE)["metadata"]["uid"].clone();
    for (name, victim) in [("forged-one", "one"), ("forged-small", SMALL)] {
        let victim = scene.object("pod", victim)["metadata"]["uid"].clone();
        let amounts = json!({
            "alibabacloud.com/gpu-core.percentage": 1, "alibabacloud.com/gpu-memory.percentage": 1,
        });
        let forged = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    "alibabacloud.com/gpu-share-policy": "share-pool",
                    "alibabacloud.com/compute-class": "gpu-hpn",
                },
                "annotations": {
                    "kubernetes.io/config.mirror": victim,
                    "gpupool.io/gpu-core.limit": "100", "gpupool.io/gpu-memory.limit": "1",
                },
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": NODE, "uid": owner, "controller": true },
                ],
            },
            "spec": { "nodeName": NODE, "containers": [{
                "name": "c", "image": "none", "resources": { "requests": amounts, "limits": amounts },
            }] },
        });
        scene.cluster.apply(&forged.to_string()).unwrap();
        // The kubelet knows no such static pod, and deletes the object.
        scene.until("the forged object to be deleted", || {
            scene.cluster.kubectl(["get", "pod", name]).is_err()
        });
    }
    until_the_agent_has_seen_all(scene, "after-them");
    assert_eq!(lease(scene), Some(held));
    has_its_first_limits(scene);
}

/// Pods are told of in the order in which they are written: whoever knows a later one has seen all before it.
fn until_the_agent_has_seen_all(scene: &Scene, name: &str) {
    scene.create(name, "share-pool", 1, 1);
    let known = || scene.status().pods.iter().any(|pod| pod.name == format!("default/{name}"));
    scene.until("the agent to know the last pod", known);
    scene.cluster.kubectl(["delete", "pod", name, "--timeout=240s"]).unwrap();
}
