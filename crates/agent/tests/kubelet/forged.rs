//! Somebody who may write pods, where no admission stands in his way: what he writes on a live pod, and what on one of his
//! own about another's.

use serde_json::{Value, json};

use crate::scene::{NODE, Scene, manifest};

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
    let held = lease(scene, "one");
    assert!(held.is_some_and(|(_, _, is_ending)| !is_ending), "one holds a card");
    for (name, victim) in [("forged-one", "one"), ("forged-small", SMALL)] {
        forge(scene, name, &scene.object("pod", victim)["metadata"]["uid"]);
    }
    until_the_agent_has_seen_all(scene, "after-them");
    assert_eq!(lease(scene, "one"), held);
    has_its_first_limits(scene);
}

pub(crate) fn a_static_pod_shares_and_no_other_object_passes_for_it(scene: &Scene) {
    let mirror = format!("static-{NODE}");
    let mut pod = manifest(&["sleep", "1000h"], "static", "share-pool", 10, 20);
    pod["metadata"]["namespace"] = json!("default");
    let file = scene.cluster.path_on(NODE, "/var/lib/kubelet/static-pods").unwrap().join("static.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, pod.to_string()).unwrap();
    scene.until("the static pod to be mirrored", || scene.cluster.kubectl(["get", "pod", &mirror]).is_ok());
    scene.wait_for_running(&mirror);
    scene.start_program(&mirror);
    scene.until("the static pod to hold a card", || lease(scene, &mirror).is_some());
    let held = lease(scene, &mirror);
    assert!(held.is_some_and(|(_, limit, is_ending)| limit == 20 && !is_ending), "{held:?}");
    let hash = scene.object("pod", &mirror)["metadata"]["annotations"]["kubernetes.io/config.mirror"].clone();
    forge(scene, "forged-static", &hash);
    until_the_agent_has_seen_all(scene, "after-the-static");
    assert_eq!(lease(scene, &mirror), held);
    std::fs::remove_file(&file).unwrap();
    let name = format!("default/{mirror}");
    scene.until("the static pod to leave", || scene.status().pods.iter().all(|pod| pod.name != name));
}

/// A pod's lease, its limit on memory in percent, and whether it was told to go.
fn lease(scene: &Scene, pod: &str) -> Option<(u64, u32, bool)> {
    let (status, name) = (scene.status(), format!("default/{pod}"));
    let lease = status.leases.iter().find(|lease| lease.pod == name)?;
    Some((lease.lease, lease.memory_limit_percent, lease.ending.is_some()))
}

/// Makes an object that says that it mirrors this pod of the node. The kubelet, which knows better, deletes it.
fn forge(scene: &Scene, name: &str, mirrors: &Value) {
    let owner = scene.object("node", NODE)["metadata"]["uid"].clone();
    let amounts =
        json!({ "alibabacloud.com/gpu-core.percentage": 1, "alibabacloud.com/gpu-memory.percentage": 1 });
    let forged = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
            },
            "annotations": {
                "kubernetes.io/config.mirror": mirrors,
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
    scene.until("the forged object to be deleted", || scene.cluster.kubectl(["get", "pod", name]).is_err());
}

/// Pods are told of in the order in which they are written: whoever knows a later one has seen all before it.
fn until_the_agent_has_seen_all(scene: &Scene, name: &str) {
    scene.create(name, "share-pool", 1, 1);
    let known = || scene.status().pods.iter().any(|pod| pod.name == format!("default/{name}"));
    scene.until("the agent to know the last pod", known);
    scene.cluster.kubectl(["delete", "pod", name, "--timeout=240s"]).unwrap();
}
