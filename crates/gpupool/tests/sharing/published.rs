//! The page, step by step.

use serde_json::{Value, json};

use crate::scene::{POLICY, PUBLISHED, Scene, condition, shared};

/// The page's second step: what the node says once sharing is in force.
fn as_published(node: &Value) {
    let status = &node["status"];
    let both = [
        ("alibabacloud.com/gpu-core.percentage", "1600", "1600"),
        ("alibabacloud.com/gpu-memory.percentage", "1600", "1600"),
        ("cpu", "144", "176"),
        ("memory", "1640Gi", "1800Gi"),
        ("nvidia.com/gpu", "16", "16"),
        ("ephemeral-storage", "4608Gi", "6Ti"),
    ];
    for (resource, allocatable, capacity) in both {
        assert_eq!(status["allocatable"][resource], allocatable, "{resource}");
        assert_eq!(status["capacity"][resource], capacity, "{resource}");
    }
    must_say(node, "GPUSharePolicyValid", "True", "Valid", "gpu share policy is valid.");
    must_say(node, "GPUSharePolicy", "True", "share-pool", "gpu share policy is share-pool.");
}

fn must_say(node: &Value, kind: &str, status: &str, reason: &str, message: &str) {
    let condition = condition(node, kind).unwrap_or_else(|| panic!("no condition {kind}: {node}"));
    let found = ["status", "reason", "message"].map(|key| condition[key].clone());
    assert_eq!(found, [json!(status), json!(reason), json!(message)]);
}

#[test]
#[ignore = "needs root"]
fn the_published_page_from_label_to_label() {
    let shared = shared();
    let scene = Scene::on(&shared);
    // Whole cards are NVIDIA's plugin's to advertise there, which goes on doing so whatever the policy.
    let whole = r#"{"status":{"capacity":{"nvidia.com/gpu":"16"}}}"#;
    scene.run(&["patch", "node", PUBLISHED, "--subresource=status", "--type=merge", "-p", whole]);
    scene.until("whole cards are advertised", || {
        scene.object("node", PUBLISHED)["status"]["allocatable"]["nvidia.com/gpu"] == "16"
    });
    // Step 1.
    let listed = scene.run(&["get", "node", "-l", "alibabacloud.com/node-type=reserved"]);
    assert!(listed.lines().count() == 2 && listed.contains(PUBLISHED), "{listed}");
    scene.run(&["label", "node", PUBLISHED, &format!("{POLICY}=share-pool")]);
    // Step 2.
    let valid = |wanted: &str| format!("--for=condition=GPUSharePolicyValid={wanted}");
    scene.run(&["wait", &valid("True"), &format!("node/{PUBLISHED}"), "--timeout=240s"]);
    scene.until("the node is as published", || {
        let status = &scene.object("node", PUBLISHED)["status"];
        status["allocatable"]["ephemeral-storage"] == "4608Gi"
            && status["allocatable"]["alibabacloud.com/gpu-memory.percentage"] == "1600"
            && status["allocatable"]["alibabacloud.com/gpu-core.percentage"] == "1600"
            && status["allocatable"]["cpu"] == "144"
    });
    as_published(&scene.object("node", PUBLISHED));
    // Step 3.
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gpu-sharing/gpu-share-demo.yaml");
    scene.run(&["apply", "-f", manifest]);
    scene.wait_for_running("gpu-share-demo");
    // Applying it again changes nothing.
    let again = scene.try_run(&["apply", "-f", manifest], "");
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(scene.try_run(&["diff", "-f", manifest], "").status.success());
    // Step 4.
    let shown = scene.run(&["exec", "gpu-share-demo", "--", "nvidia-smi"]);
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert!(words.windows(3).any(|words| words == ["0MiB", "/", "81920MiB"]), "{shown}");
    assert_eq!(scene.figure(PUBLISHED, "DCGM_FI_POOLING_STATUS", "gpu-share-demo").as_deref(), Some("0"));
    // Disabling is refused while the pod lives.
    scene.run(&["label", "--overwrite", "node", PUBLISHED, &format!("{POLICY}=none")]);
    scene.run(&["wait", &valid("False"), &format!("node/{PUBLISHED}"), "--timeout=240s"]);
    let node = scene.object("node", PUBLISHED);
    must_say(&node, "GPUSharePolicy", "True", "share-pool", "gpu share policy is share-pool.");
    let told = condition(&node, "GPUSharePolicyValid").unwrap()["message"].as_str().unwrap();
    assert!(told.contains("default/gpu-share-demo"), "{told}");
    // Step 5.
    scene.run(&["delete", "pod", "gpu-share-demo", "--timeout=240s"]);
    scene.until("sharing is off", || {
        let status = &scene.object("node", PUBLISHED)["status"];
        scene.policy_in_force(PUBLISHED).is_none()
            && status["allocatable"]["ephemeral-storage"] == "6Ti"
            && status["capacity"]["alibabacloud.com/gpu-core.percentage"].is_null()
            && status["capacity"]["alibabacloud.com/gpu-memory.percentage"].is_null()
    });
    let node = scene.object("node", PUBLISHED);
    let first =
        [("cpu", "176"), ("memory", "1800Gi"), ("nvidia.com/gpu", "16"), ("ephemeral-storage", "6Ti")];
    for (resource, amount) in first {
        assert_eq!(node["status"]["allocatable"][resource], amount);
        assert_eq!(node["status"]["capacity"][resource], amount);
    }
    must_say(&node, "GPUSharePolicyValid", "True", "Valid", "gpu share policy config is valid.");
    must_say(&node, "GPUSharePolicy", "False", "none", "gpu share policy is none.");
}
