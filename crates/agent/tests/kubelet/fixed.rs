//! `static` without the scheduler's extender: the agent finds each pod its card before the container starts. And pods
//! that no admission webhook has seen.

use crate::scene::Scene;

#[test]
#[ignore = "needs root"]
fn a_static_pod_gets_its_card_before_it_starts_and_one_that_finds_none_is_told_so() {
    let scene = Scene::start("static");
    for pod in ["first", "second"] {
        scene.create(pod, "static", 60, 60);
        scene.wait_for_running(pod);
    }
    let card = |pod: &str| scene.object("pod", pod)["metadata"]["annotations"]["gpupool.io/card"].clone();
    assert!(card("first").is_string() && card("second").is_string());
    assert_ne!(card("first"), card("second"));
    scene.create("third", "static", 60, 60);
    let waiting =
        || scene.object("pod", "third")["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    scene.until("third to be kept waiting", || waiting()["reason"] == "CreateContainerConfigError");
    let said = waiting()["message"].as_str().unwrap().to_owned();
    assert!(
        said.contains("none of the 2 healthy card(s) has room for requests of 60 core and 60 memory"),
        "{said}"
    );
    scene.until("third's condition", || {
        scene
            .condition("third", "GPUShareAccepted")
            .is_some_and(|condition| condition["status"] == "False" && condition["reason"] == "NoCardFits")
    });
    let described = scene.cluster.kubectl(["describe", "pod", "third"]).unwrap();
    assert!(described.contains("GPUShareRefused"), "{described}");
    let free = card("first");
    scene.cluster.kubectl(["delete", "pod", "first", "--timeout=240s"]).unwrap();
    scene.wait_for_running("third");
    assert_eq!(card("third"), free);
    scene.until("third's condition to be over", || {
        scene.condition("third", "GPUShareAccepted").is_some_and(|condition| condition["status"] == "True")
    });
    pods_that_no_webhook_has_seen_are_told_what_to_do(&scene);
    while_the_api_server_is_away_nothing_is_forgotten(scene);
}

fn pods_that_no_webhook_has_seen_are_told_what_to_do(scene: &Scene) {
    scene.create("stray", "share-pool", 10, 10);
    scene.until("stray to be told", || {
        scene.condition("stray", "GPUShareAccepted").is_some_and(|condition| {
            condition["reason"] == "OtherPolicy"
                && condition["message"].as_str().is_some_and(|text| text.contains("this node's is static"))
        })
    });
    let waiting =
        || scene.object("pod", "stray")["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    scene.until("stray to be kept waiting", || waiting()["reason"] == "CreateContainerConfigError");
    scene.cluster.kubectl(["delete", "pod", "stray", "--timeout=240s"]).unwrap();
}

fn while_the_api_server_is_away_nothing_is_forgotten(mut scene: Scene) {
    scene.start_program("third");
    scene.until("third to run", || !scene.status().leases.is_empty());
    let lease = scene.status().leases[0].lease;
    scene.cluster.stop_apiserver().unwrap();
    scene.kill_agent();
    scene.start_agent();
    assert_eq!(scene.status().leases[0].lease, lease);
    assert_eq!(scene.status().pods.len(), 2);
    scene.cluster.start_apiserver().unwrap();
    scene.until("the agent to see its pods again", || scene.allocatable() == ["200", "200"]);
    assert_eq!(scene.status().leases[0].lease, lease);
    a_pod_that_nobody_can_say_anything_about_is_refused_with_a_sentence(&mut scene);
    scene.stop();
}

fn a_pod_that_nobody_can_say_anything_about_is_refused_with_a_sentence(scene: &mut Scene) {
    scene.stop_program("third");
    scene.until("third to give its card back", || scene.status().leases.is_empty());
    scene.shell("second", "(while ! [ -e /tmp/enough ]; do gpupool demo-program; sleep 0.2; done) </dev/null >/tmp/said 2>&1 & disown");
    scene.cluster.stop_apiserver().unwrap();
    scene.kill_agent();
    // As after a crash of the disk: neither the journal nor the API server can tell who calls.
    std::fs::remove_file(scene.journal()).unwrap();
    scene.start_agent();
    scene.until("a refusal", || {
        let counted = "gpupool_refusals_total{";
        scene.metrics().lines().any(|line| line.starts_with(counted) && !line.ends_with(" 0"))
    });
    assert!(scene.log().contains("cannot ask the API server for this node's pods"), "{}", scene.log());
    scene.cluster.start_apiserver().unwrap();
    let said = scene.shell("second", "cat /tmp/said");
    assert!(said.contains("is not known here") && said.contains("try again"), "{said}");
    scene.until("its place to be there again", || {
        scene.status().pods.iter().any(|pod| pod.name == "default/second")
    });
    scene.shell("second", "touch /tmp/enough");
}
