//! `share-pool`, from the node's label to a pre-emption, and through restarts of the agent and of the kubelet.

use serde_json::Value;

use crate::forged;
use crate::scene::{NODE, Scene};

const RUNNING: Option<u64> = Some(2);
const READY: Option<u64> = Some(1);
const HIBERNATING: Option<u64> = Some(0);

#[test]
#[ignore = "needs root"]
fn pods_of_a_pool_take_turns_through_restarts_of_agent_and_kubelet_and_are_told_of_a_preemption() {
    let mut scene = Scene::start("share-pool");
    names_its_cards(&scene);
    shared_cards_are_not_advertised_whole(&scene);
    a_pod_starts_hibernating_and_sees_the_cards(&scene);
    a_program_takes_a_card(&scene);
    forged::a_live_pod_keeps_its_first_limits_whatever_is_written_on_it(&scene);
    forged::an_object_under_another_pods_id_changes_and_ends_nothing(&scene);
    forged::a_static_pod_shares_and_no_other_object_passes_for_it(&scene);
    who_finds_no_room_waits_and_reads_its_place(&scene);
    an_agent_that_starts_again_knows_everybody(&mut scene);
    a_pod_whose_time_is_up_makes_room_and_both_are_told(&scene);
    a_pod_may_run_on_another_card_the_next_time(&scene);
    a_lost_card_is_not_given_out_until_it_is_back(&scene);
    a_main_process_that_is_ended_comes_back_as_its_pod_says(&scene);
    a_program_asks_for_a_card_and_for_nothing_else(&scene);
    a_kubelet_that_starts_again_gets_the_plugins_back(&mut scene);
    a_node_changes_its_policy_when_the_last_pod_has_ended(&scene);
    a_deleted_pod_leaves_the_pool(&scene);
    without_a_policy_nothing_is_advertised(&scene);
    scene.stop();
}

fn state(scene: &Scene, pod: &str) -> Option<u64> {
    scene.figure("DCGM_FI_POOLING_STATUS", pod)
}

fn names_its_cards(scene: &Scene) {
    let annotation =
        || scene.object("node", NODE)["metadata"]["annotations"]["gpupool.io/pool-cards"].clone();
    scene.until("the cards on the node", || annotation().is_string());
    let cards: Value = serde_json::from_str(annotation().as_str().unwrap()).unwrap();
    let cards = cards.as_array().unwrap();
    assert_eq!(cards.len(), 2);
    assert!(
        cards
            .iter()
            .all(|card| card["healthy"] == true && card["uuid"].as_str().unwrap().starts_with("GPU-"))
    );
}

fn a_pod_starts_hibernating_and_sees_the_cards(scene: &Scene) {
    for pod in ["one", "two", "three"] {
        scene.create(pod, "share-pool", 10, 100);
    }
    for pod in ["one", "two", "three"] {
        scene.wait_for_running(pod);
        assert_eq!(state(scene, pod), HIBERNATING);
    }
    let shown = scene.shell("one", "nvidia-smi");
    assert!(shown.contains("NVIDIA-SMI"), "{shown}");
    let listed = scene.shell("one", "nvidia-smi -L; cat /etc/ld.so.preload");
    assert!(listed.contains("GPU 0:") && listed.contains("libgpupool.so"), "{listed}");
    assert_eq!(
        scene.shell("one", "ls -A /run/gpupool"),
        "agent.sock\n",
        "a container needs no more, and sees no more"
    );
    let denied = scene
        .shell("one", "touch /run/gpupool/x /etc/ld.so.preload /usr/lib/gpupool/libgpupool.so 2>&1; true");
    assert_eq!(denied.matches("Read-only file system").count(), 3, "{denied}");
    assert!(scene.status().leases.is_empty(), "NVML never takes a lease");
}

fn a_program_takes_a_card(scene: &Scene) {
    scene.start_program("one");
    scene.until("one to run", || state(scene, "one") == RUNNING);
    scene.until("its memory in the metrics", || {
        scene.figure("DCGM_FI_DEV_FB_USED", "one").is_some_and(|mebibytes| mebibytes >= 1024)
    });
    assert_eq!(scene.status().leases[0].pod, "default/one");
}

fn who_finds_no_room_waits_and_reads_its_place(scene: &Scene) {
    scene.start_program("two");
    scene.until("two to run", || state(scene, "two") == RUNNING);
    scene.start_program("three");
    scene.until("three to wait", || state(scene, "three") == READY);
    assert_eq!(scene.figure("DCGM_FI_POOLING_POSITION", "three"), Some(1));
    scene.until("three's waiting line", || {
        let said = scene.shell("three", "cat /tmp/said");
        said.contains("You have been waiting for ") && said.contains(" seconds. Approximate position: 1")
    });
}

fn an_agent_that_starts_again_knows_everybody(scene: &mut Scene) {
    let before = scene.status();
    scene.kill_agent();
    scene.start_agent();
    let after = scene.status();
    forged::has_its_first_limits(scene);
    let leases = |status: &gpupool_agent::admin_api::Status| -> Vec<(String, u64, String)> {
        status.leases.iter().map(|one| (one.pod.clone(), one.lease, one.card_uuid.clone())).collect()
    };
    assert_eq!(leases(&before), leases(&after));
    assert_eq!(after.queue[0].pod, "default/three");
    scene.until("the percentages to be advertised again", || scene.allocatable() == ["200", "200"]);
    assert_eq!(leases(&scene.status()), leases(&before), "the API server's list changed the leases");
}

fn a_pod_whose_time_is_up_makes_room_and_both_are_told(scene: &Scene) {
    let qos = r#"gpupool.io/share-qos={"preemptEnabled":true,"podMaxDurationMinutes":2}"#;
    scene.cluster.kubectl(["annotate", "node", NODE, qos]).unwrap();
    scene.until("three to run", || state(scene, "three") == RUNNING);
    scene.until("one to hibernate", || state(scene, "one") == HIBERNATING);
    let told = |pod: &str| {
        scene.until(&format!("{pod} to be told"), || {
            scene.condition(pod, "Interruption.GPUShareReclaim").is_some()
        });
        scene.condition(pod, "Interruption.GPUShareReclaim").unwrap()
    };
    let (victim, beneficiary) = (told("one"), told("three"));
    assert_eq!(victim["status"], "True");
    assert_eq!(victim["reason"], "GPUSharePreempted");
    assert_eq!(victim["message"], "GPU is preempted by three.");
    assert_eq!(beneficiary["reason"], "GPUSharePreempt");
    assert_eq!(beneficiary["message"], "GPU is preempted from one.");
    assert_eq!(victim["lastProbeTime"], victim["lastTransitionTime"]);
    for (pod, reason, message) in [
        ("one", "GPUSharePreempted", "GPU is preempted by three."),
        ("three", "GPUSharePreempt", "GPU is preempted from one."),
    ] {
        let described = scene.cluster.kubectl(["describe", "pod", pod]).unwrap();
        let event = described.lines().find(|line| line.contains(message) && line.contains("Warning"));
        let words: Vec<&str> = event.unwrap_or_default().split_whitespace().collect();
        assert!(words.contains(&reason) && words.contains(&"gpushare"), "{described}");
    }
    // Nobody else is to be pre-empted in what follows.
    let calm = r#"gpupool.io/share-qos={"preemptEnabled":false,"podMaxDurationMinutes":120}"#;
    scene.cluster.kubectl(["annotate", "--overwrite", "node", NODE, calm]).unwrap();
    scene.until("pre-emption to be off", || !scene.status().qos.preempt_enabled);
}

fn a_pod_may_run_on_another_card_the_next_time(scene: &Scene) {
    let index = |pod: &str| {
        let page = scene.metrics();
        let line =
            page.lines().find(|line| line.starts_with("DCGM_FI_DEV_GPU_UTIL{") && line.contains(pod))?;
        Some(line.split('"').nth(1)?.to_owned())
    };
    let of_three = index("\"three\"").unwrap();
    scene.stop_program("two");
    scene.until("two to hibernate", || state(scene, "two") == HIBERNATING);
    scene.start_program("one");
    scene.until("one to run again", || state(scene, "one") == RUNNING);
    // Its first card is three's now.
    assert_ne!(index("\"one\"").unwrap(), of_three);
    scene.stop_program("one");
    scene.until("one to hibernate", || state(scene, "one") == HIBERNATING);
}

fn a_lost_card_is_not_given_out_until_it_is_back(scene: &Scene) {
    let used = scene.status().leases[0].card;
    let card = scene.cards().card(usize::try_from(used).unwrap()).unwrap();
    card.lose();
    scene.until("three to lose its card", || state(scene, "three") == HIBERNATING);
    scene.until("100 percent of each", || scene.allocatable() == ["100", "100"]);
    let node = scene.object("node", NODE);
    assert_eq!(node["status"]["capacity"]["alibabacloud.com/gpu-core.percentage"], "200");
    scene.until("the annotation to say so", || {
        let text = scene.object("node", NODE)["metadata"]["annotations"]["gpupool.io/pool-cards"].clone();
        text.as_str().is_some_and(|text| text.contains("\"healthy\":false"))
    });
    card.recover();
    scene.until("200 percent of each", || scene.allocatable() == ["200", "200"]);
}

fn a_main_process_that_is_ended_comes_back_as_its_pod_says(scene: &Scene) {
    let program = ["bash", "-c", "exec gpupool demo-program < <(exec sleep 1000h)"];
    scene.create_with(&program, "main", "share-pool", 10, 100);
    scene.until("main to run", || state(scene, "main") == RUNNING);
    let used = scene.status().leases[0].card;
    let card = scene.cards().card(usize::try_from(used).unwrap()).unwrap();
    card.lose();
    // The agent ends the GPU process; that it was the container's first is the kubelet's affair.
    let restarts = || scene.object("pod", "main")["status"]["containerStatuses"][0]["restartCount"].as_u64();
    scene.until("its container to start again", || restarts() >= Some(1));
    card.recover();
    scene.until("main to run again", || state(scene, "main") == RUNNING);
    scene.cluster.kubectl(["delete", "pod", "main", "--timeout=240s"]).unwrap();
    scene.until("its card to be free", || scene.status().leases.is_empty());
}

fn a_program_asks_for_a_card_and_for_nothing_else(scene: &Scene) {
    let answer = scene.shell("one", "gpupool status 2>&1; gpupool run --core 1 --memory 1 true 2>&1; true");
    assert!(answer.contains("answers questions from the node itself"), "{answer}");
    assert!(scene.status().pods.iter().all(|pod| pod.name.starts_with("default/")), "{answer}");
    scene.start_program("one");
    scene.until("one to run", || state(scene, "one") == RUNNING);
    assert_eq!(scene.status().leases[0].pod, "default/one");
    scene.stop_program("one");
    scene.until("one to hibernate", || state(scene, "one") == HIBERNATING);
    scene.start_program("three");
    scene.until("three to run", || state(scene, "three") == RUNNING);
}

fn a_kubelet_that_starts_again_gets_the_plugins_back(scene: &mut Scene) {
    let kubelet = format!("kubelet@{NODE}");
    let registered = |scene: &Scene| scene.log().matches("is registered with the kubelet").count();
    let before = registered(scene);
    let leases = scene.status().leases.len();
    scene.cluster.kill(&kubelet).unwrap();
    scene.cluster.start_again(&kubelet).unwrap();
    scene.until("both plugins to register again", || registered(scene) >= before + 2);
    scene.until("the percentages to be advertised again", || scene.allocatable() == ["200", "200"]);
    scene.create("late", "share-pool", 10, 50);
    scene.wait_for_running("late");
    assert_eq!(scene.status().leases.len(), leases);
}

fn a_node_changes_its_policy_when_the_last_pod_has_ended(scene: &Scene) {
    let policy = |value: &str| format!("gpupool.io/share-policy={value}");
    scene.cluster.kubectl(["label", "--overwrite", "node", NODE, &policy("static")]).unwrap();
    scene.create("settled", "static", 10, 10);
    let condition = || scene.condition("settled", "GPUShareAccepted");
    scene.until("settled to be told", || condition().is_some_and(|now| now["reason"] == "PolicyChanging"));
    assert_eq!(state(scene, "three"), RUNNING, "a change of policy takes nothing from anybody");
    for pod in ["one", "two", "late", forged::SMALL] {
        scene.cluster.kubectl(["delete", "pod", pod, "--timeout=240s"]).unwrap();
    }
    assert_eq!(condition().unwrap()["status"], "False");
    scene.cluster.kubectl(["delete", "pod", "three", "--timeout=240s"]).unwrap();
    scene.wait_for_running("settled");
    assert_eq!(state(scene, "settled"), HIBERNATING);
    scene.cluster.kubectl(["label", "--overwrite", "node", NODE, &policy("share-pool")]).unwrap();
    scene.cluster.kubectl(["delete", "pod", "settled", "--timeout=240s"]).unwrap();
    scene.create("last", "share-pool", 10, 100);
    scene.wait_for_running("last");
}

fn a_deleted_pod_leaves_the_pool(scene: &Scene) {
    scene.start_program("last");
    scene.until("last to run", || state(scene, "last") == RUNNING);
    scene.cluster.kubectl(["delete", "pod", "last", "--timeout=240s"]).unwrap();
    scene
        .until("the pool to be empty", || scene.status().pods.is_empty() && scene.status().leases.is_empty());
    assert_eq!(state(scene, "last"), None, "a pod that is gone leaves no series");
}

fn without_a_policy_nothing_is_advertised(scene: &Scene) {
    scene.cluster.kubectl(["label", "node", NODE, "gpupool.io/share-policy-"]).unwrap();
    scene.until("nothing to be advertised", || scene.allocatable() == ["0", "0"]);
    // Now the cards can be had whole,
    scene.until("whole cards to be advertised", || scene.whole_cards() == "2");
    scene.create_exclusive("whole");
    scene.wait_for_running("whole");
    scene.cluster.kubectl(["delete", "pod", "whole", "--timeout=240s"]).unwrap();
    // and no longer once they are shared again.
    scene.cluster.kubectl(["label", "node", NODE, "gpupool.io/share-policy=share-pool"]).unwrap();
    scene.until("the percentages to be advertised again", || scene.allocatable() == ["200", "200"]);
    scene.until("no whole card to be advertised", || scene.whole_cards() == "0");
}

fn shared_cards_are_not_advertised_whole(scene: &Scene) {
    assert_eq!(scene.allocatable(), ["200", "200"]);
    assert_eq!(scene.whole_cards(), "none", "the agent is told --whole-cards, and the node shares its cards");
}
