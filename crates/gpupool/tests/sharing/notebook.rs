//! The page's notebook example, pre-emption, and `static`, as pods.

use crate::scene::{QOS, SMALL, Scene, condition, shared, waiting_pod};

const STATUS: &str = "DCGM_FI_POOLING_STATUS";
const POSITION: &str = "DCGM_FI_POOLING_POSITION";

pub(crate) fn go(scene: &Scene<'_>, pod: &str) {
    scene.run(&["exec", pod, "--", "touch", "/tmp/go"]);
}

pub(crate) fn until_state(scene: &Scene<'_>, pod: &str, state: &str) {
    scene.until(&format!("{pod} is in state {state}"), || {
        scene.figure(SMALL, STATUS, pod).as_deref() == Some(state)
    });
}

/// The UUID of the card that a pod's program said it holds, as bare digits.
pub(crate) fn card_of(scene: &Scene<'_>, pod: &str) -> String {
    let said = || {
        let logs = scene.run(&["logs", pod]);
        logs.lines().rev().find_map(|line| line.strip_prefix("uuid=0 ")).map(str::to_owned)
    };
    scene.until(&format!("{pod} says which card it holds"), || said().is_some());
    said().unwrap()
}

/// Ends the program that holds a card in a pod, not the pod.
pub(crate) fn end_program(scene: &Scene<'_>, pod: &str) {
    scene.run(&["exec", pod, "--", "bash", "-c", "rm -f /tmp/go; kill $(ps -C gpu -o pid=)"]);
}

#[test]
#[ignore = "needs root"]
fn the_notebook_example_at_t1_and_t2() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.share(SMALL, "share-pool");
    for (pod, limit) in [("a", 50), ("b", 50), ("c", 100), ("d", 100)] {
        scene.apply(&waiting_pod(pod, "share-pool", 50, limit, 100));
    }
    for pod in ["a", "b", "c", "d"] {
        scene.wait_for_running(pod);
        until_state(&scene, pod, "0");
    }
    for (pod, state) in [("a", "2"), ("c", "2"), ("d", "1"), ("b", "1")] {
        go(&scene, pod);
        until_state(&scene, pod, state);
    }
    // T1: A on one card, C on the other, queue D, B.
    assert_eq!(scene.figure(SMALL, POSITION, "d").as_deref(), Some("1"));
    assert_eq!(scene.figure(SMALL, POSITION, "b").as_deref(), Some("2"));
    assert_eq!(scene.figure(SMALL, POSITION, "a"), None);
    let (of_a, of_c) = (card_of(&scene, "a"), card_of(&scene, "c"));
    assert_ne!(of_a, of_c);
    scene.until("the waiting line is in the logs", || {
        let logs = scene.run(&["logs", "b"]);
        logs.lines().any(|line| {
            line.starts_with("You have been waiting for ")
                && line.ends_with(" seconds. Approximate position: 2")
        })
    });
    // T2: C ends; D takes its card, then B joins A.
    end_program(&scene, "c");
    for pod in ["d", "b", "a"] {
        until_state(&scene, pod, "2");
    }
    until_state(&scene, "c", "0");
    assert_eq!(card_of(&scene, "d"), of_c);
    assert_eq!(card_of(&scene, "b"), of_a);
}

#[test]
#[ignore = "needs root"]
fn a_pod_that_waits_gets_the_card_of_one_whose_time_is_up_and_both_are_told() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.run(&["annotate", "node", SMALL, &format!(r#"{QOS}={{"podMaxDurationMinutes": 5}}"#)]);
    scene.share(SMALL, "share-pool");
    for pod in ["old-1", "old-2", "new"] {
        scene.apply(&waiting_pod(pod, "share-pool", 50, 100, 100));
        scene.wait_for_running(pod);
    }
    for pod in ["old-1", "old-2"] {
        go(&scene, pod);
        until_state(&scene, pod, "2");
    }
    go(&scene, "new");
    until_state(&scene, "new", "2");
    until_state(&scene, "old-1", "0");
    until_state(&scene, "old-2", "2");
    for (pod, reason, message) in [
        ("old-1", "GPUSharePreempted", "GPU is preempted by new."),
        ("new", "GPUSharePreempt", "GPU is preempted from old-1."),
    ] {
        scene.until(&format!("{pod} is told by a condition and an Event"), || {
            let object = scene.object("pod", pod);
            let condition = condition(&object, "Interruption.GPUShareReclaim");
            let events =
                scene.run(&["get", "events", "--field-selector", &format!("involvedObject.name={pod}")]);
            condition.is_some_and(|one| {
                one["status"] == "True"
                    && one["reason"] == reason
                    && one["message"] == message
                    && one["lastProbeTime"].is_string()
                    && one["lastTransitionTime"].is_string()
            }) && events
                .lines()
                .any(|line| line.contains("Warning") && line.contains(reason) && line.ends_with(message))
        });
    }
}

#[test]
#[ignore = "needs root"]
fn static_pods_keep_their_card_and_a_third_of_60_waits_for_room() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.share(SMALL, "static");
    let card = |pod: &str| {
        let annotation = scene.object("pod", pod)["metadata"]["annotations"]["gpupool.io/card"].clone();
        annotation.as_str().unwrap_or_default().trim_start_matches("GPU-").replace('-', "")
    };
    for pod in ["one", "two"] {
        scene.apply(&waiting_pod(pod, "static", 60, 60, 100));
        scene.wait_for_running(pod);
    }
    assert_ne!(card("one"), card("two"));
    scene.apply(&waiting_pod("three", "static", 60, 60, 100));
    scene.until("the third is told why it waits", || {
        let object = scene.object("pod", "three");
        let scheduled = condition(&object, "PodScheduled");
        scheduled.is_some_and(|one| {
            one["status"] == "False"
                && one["message"].as_str().unwrap_or_default().contains("no single card has room")
        })
    });
    for pod in ["one", "two"] {
        for _ in 0..2 {
            go(&scene, pod);
            assert_eq!(card(pod), card_of(&scene, pod), "{pod}");
            end_program(&scene, pod);
            until_state(&scene, pod, "0");
        }
    }
    scene.run(&["delete", "pod", "one", "--timeout=240s"]);
    scene.wait_for_running("three");
}
