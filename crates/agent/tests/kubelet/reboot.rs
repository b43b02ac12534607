//! A node that starts again, and an agent that starts while others are away.

use serde_json::{Value, json};

use crate::scene::{NODE, Scene, manifest};

/// A set of one pod with these percentages.
fn replica_set(name: &str) -> Value {
    let pod = manifest(&["sleep", "1000h"], name, "share-pool", 10, 10);
    let mut metadata = pod["metadata"].clone();
    metadata["labels"]["app"] = json!(name);
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": metadata, "spec": pod["spec"]},
        },
    })
}

/// The names of a set's pods that run.
fn running(scene: &Scene, set: &str) -> Vec<String> {
    let selector = format!("app={set}");
    let pods = scene.cluster.kubectl(["get", "pods", "--selector", &selector, "-o", "json"]).unwrap();
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let runs = |pod: &&Value| pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
    let pods = pods["items"].as_array().unwrap().iter().filter(runs);
    pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// A pod that asks for no card.
fn plain(name: &str) -> Value {
    let mut pod = manifest(&["sleep", "1000h"], name, "share-pool", 10, 10);
    for list in ["requests", "limits"] {
        pod["spec"]["containers"][0]["resources"][list] = json!({"cpu": "1"});
    }
    pod["metadata"]["labels"] = json!({});
    pod["metadata"]["annotations"] = json!({});
    pod
}

#[test]
#[ignore = "needs root"]
fn pods_that_are_lost_at_a_reboot_are_told_what_to_do_and_the_others_are_back() {
    let mut scene = Scene::start("share-pool");
    scene.create("bare", "share-pool", 10, 10);
    scene.cluster.apply(&replica_set("owned").to_string()).unwrap();
    scene.cluster.apply(&plain("plain").to_string()).unwrap();
    for pod in ["bare", "plain"] {
        scene.wait_for_running(pod);
    }
    scene.until("the set's pod to run", || running(&scene, "owned").len() == 1);
    let owned = running(&scene, "owned").remove(0);
    scene.start_program("bare");
    scene.until("a lease", || scene.status().leases.len() == 1);

    scene.reboot();
    scene.start_kubelet();
    // As with a DaemonSet: the kubelet has looked at its pods before it starts the agent's.
    scene.until("bare to be turned away", || scene.object("pod", "bare")["status"]["phase"] == "Failed");
    let status = scene.object("pod", "bare")["status"].clone();
    assert_eq!(status["reason"], "UnexpectedAdmissionError", "{status}");
    scene.start_agent();
    assert!(scene.status().leases.is_empty(), "nobody has outlived the boot");
    let told = scene.told("bare", "GPUShareNotAdmitted");
    assert!(told.contains("kubectl delete pod bare -n default, and create it again"), "{told}");
    let told = scene.told(&owned, "GPUShareNotAdmitted");
    assert!(told.contains("ReplicaSet owned makes another"), "{told}");
    scene.until("another of the set to run", || running(&scene, "owned").iter().any(|pod| *pod != owned));
    scene.wait_for_running("plain");
    // An agent that sees them again tells nothing twice.
    scene.kill_agent();
    scene.start_agent();
    scene.until("200 percent of each", || scene.allocatable() == ["200", "200"]);
    scene.told("bare", "GPUShareNotAdmitted");
    // What the Event says works.
    scene.cluster.kubectl(["delete", "pod", "bare", "-n", "default"]).unwrap();
    scene.create("bare", "share-pool", 10, 10);
    scene.wait_for_running("bare");
    scene.start_program("bare");
    scene.until("a lease", || scene.status().leases.len() == 1);
    scene.stop();
}

#[test]
#[ignore = "needs root"]
fn an_agent_registers_before_api_server_and_driver_say_anything() {
    let mut scene = Scene::start("share-pool");
    scene.create("early", "share-pool", 10, 10);
    scene.wait_for_running("early");
    let before = scene.registrations();
    scene.kill_agent();
    scene.cluster.stop_apiserver().unwrap();
    let driver = scene.cluster.path_on(NODE, "/var/lib/simgpu/lib").unwrap();
    // The folder stays: a loader does not look again for one that was not there.
    let away = driver.with_file_name("away");
    std::fs::create_dir(&away).unwrap();
    let move_all = |from: &std::path::Path, to: &std::path::Path| {
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            std::fs::rename(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    move_all(&driver, &away);
    scene.launch_agent();
    scene.until_without_cluster("both percentages to be registered", || scene.registrations() == before + 2);
    move_all(&away, &driver);
    scene.cluster.start_apiserver().unwrap();
    scene.until("the agent to answer", || scene.try_status().is_some());
    scene.until("200 percent of each", || scene.allocatable() == ["200", "200"]);
    scene.start_program("early");
    scene.until("a lease", || scene.status().leases.len() == 1);
    assert_eq!(scene.status().leases[0].pod, "default/early");
    scene.stop();
}
