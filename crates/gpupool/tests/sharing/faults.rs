//! What users do wrong, and what goes away under a running pod.

use serde_json::{Value, json};

use crate::notebook::{card_of, end_program, go, until_state};
use crate::scene::{QOS, SMALL, Scene, condition, install, shared, waiting_pod};
use gpupool_testbed::{NAMESPACE, PUBLISHED_IMAGE};

#[test]
#[ignore = "needs root"]
fn what_a_manifest_gets_wrong_is_said_by_kubectl() {
    let shared = shared();
    let scene = Scene::on(&shared);
    let refused = |change: &dyn Fn(&mut Value), said: &str| {
        let mut pod: Value = serde_json::from_str(&waiting_pod("wrong", "share-pool", 10, 100, 1)).unwrap();
        change(&mut pod);
        let output = scene.try_run(&["apply", "-f", "-"], &pod.to_string());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{said:?} is not in: {text}");
    };
    let resources = "/spec/containers/0/resources";
    refused(&|pod| pod["metadata"]["labels"] = json!({}), "alibabacloud.com/gpu-share-policy");
    refused(
        &|pod| {
            let core =
                &mut pod.pointer_mut(resources).unwrap()["limits"]["alibabacloud.com/gpu-core.percentage"];
            *core = json!("5");
        },
        "over its limit of 5",
    );
    refused(
        &|pod| {
            for list in ["requests", "limits"] {
                let list = &mut pod.pointer_mut(resources).unwrap()[list];
                list.as_object_mut().unwrap().remove("alibabacloud.com/gpu-memory.percentage");
            }
        },
        "alibabacloud.com/gpu-memory.percentage",
    );
    refused(
        &|pod| {
            let second = pod["spec"]["containers"][0].clone();
            pod["spec"]["containers"].as_array_mut().unwrap().push(second);
            pod["spec"]["containers"][1]["name"] = json!("second");
        },
        "second",
    );
    refused(
        &|pod| pod.pointer_mut(resources).unwrap()["limits"]["nvidia.com/gpu"] = json!("1"),
        "nvidia.com/gpu",
    );
}

#[test]
#[ignore = "needs root"]
fn a_killed_main_process_is_a_restart_of_its_container() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.run(&["annotate", "node", SMALL, &format!(r#"{QOS}={{"podMaxDurationMinutes": 3}}"#)]);
    scene.share(SMALL, "share-pool");
    let mut main: Value = serde_json::from_str(&waiting_pod("main", "share-pool", 60, 100, 1)).unwrap();
    main["spec"]["containers"][0]["command"] = json!(["gpu", "init", "retain", "uuid", "sleep", "3600000"]);
    scene.apply(&main.to_string());
    scene.wait_for_running("main");
    until_state(&scene, "main", "2");
    for pod in ["second", "third"] {
        scene.apply(&waiting_pod(pod, "share-pool", 20, 100, 1));
        scene.wait_for_running(pod);
    }
    go(&scene, "second");
    until_state(&scene, "second", "2");
    go(&scene, "third");
    // Whoever held longest goes; its container is started again and waits for its turn.
    scene.until("the container was started again", || {
        scene.object("pod", "main")["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)
    });
    let state = &scene.object("pod", "main")["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(state["exitCode"], 137, "{state}");
    scene.wait_for_running("main");
}

#[test]
#[ignore = "needs root"]
fn a_pod_may_hold_one_card_now_and_another_later() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.share(SMALL, "share-pool");
    for pod in ["x", "y"] {
        scene.apply(&waiting_pod(pod, "share-pool", 50, 100, 1));
        scene.wait_for_running(pod);
    }
    go(&scene, "x");
    until_state(&scene, "x", "2");
    let first = card_of(&scene, "x");
    end_program(&scene, "x");
    until_state(&scene, "x", "0");
    go(&scene, "y");
    until_state(&scene, "y", "2");
    assert_eq!(card_of(&scene, "y"), first);
    go(&scene, "x");
    until_state(&scene, "x", "2");
    scene.until("x says which card it holds now", || card_of(&scene, "x") != first);
}

#[test]
#[ignore = "needs root"]
fn an_agent_that_goes_and_comes_back_knows_who_holds_what() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.share(SMALL, "share-pool");
    for pod in ["a", "b", "c"] {
        scene.apply(&waiting_pod(pod, "share-pool", 50, 100, 1));
        scene.wait_for_running(pod);
        go(&scene, pod);
        until_state(&scene, pod, if pod == "c" { "1" } else { "2" });
    }
    let held = ["a", "b"].map(|pod| card_of(&scene, pod));
    let agent = || {
        let selector =
            ["--selector", "app=gpupool-agent", "--field-selector", &format!("spec.nodeName={SMALL}")];
        scene.run(&[["get", "pods", "-n", NAMESPACE].as_slice(), &selector, &["-o", "name"]].concat())
    };
    let before = agent();
    scene.run(&["delete", before.trim(), "-n", NAMESPACE, "--timeout=240s"]);
    scene.until("another agent", || !agent().trim().is_empty() && agent() != before);
    scene.run(&["rollout", "status", "daemonset/gpupool-agent", "-n", NAMESPACE, "--timeout=240s"]);
    for (pod, state) in [("a", "2"), ("b", "2"), ("c", "1")] {
        until_state(&scene, pod, state);
    }
    assert_eq!(["a", "b"].map(|pod| card_of(&scene, pod)), held);
    end_program(&scene, "a");
    until_state(&scene, "c", "2");
    assert_eq!(card_of(&scene, "c"), held[0]);
}

#[test]
#[ignore = "needs root"]
fn a_program_that_starts_while_there_is_no_agent_waits_for_one() {
    let shared = shared();
    let scene = Scene::on(&shared);
    scene.share(SMALL, "share-pool");
    scene.apply(&waiting_pod("early", "share-pool", 50, 100, 1));
    scene.wait_for_running("early");
    until_state(&scene, "early", "0");
    let agents = |selector: &str| {
        let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"nodeSelector":{selector}}}}}}}}}"#);
        scene.run(&["patch", "daemonset", "gpupool-agent", "-n", NAMESPACE, "--type=merge", "-p", &patch]);
    };
    agents(r#"{"kubernetes.io/hostname":"nowhere"}"#);
    let list = ["get", "pods", "-n", NAMESPACE, "-l", "app=gpupool-agent", "-o", "name"];
    scene.until("the agents are gone", || scene.run(&list).is_empty());
    go(&scene, "early");
    // Which cards there are, only an agent can tell: it waits from its first question on.
    let begun = || scene.try_run(&["exec", "early", "--", "ps", "-C", "gpu"], "").status.success();
    scene.until("the program has begun", begun);
    for _ in 0..10 {
        assert!(begun() && !scene.run(&["logs", "early"]).contains("retain=0"), "it runs without an agent");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    agents("null");
    scene.run(&["rollout", "status", "daemonset/gpupool-agent", "-n", NAMESPACE, "--timeout=240s"]);
    until_state(&scene, "early", "2");
    scene.until("it has its context", || scene.run(&["logs", "early"]).contains("retain=0"));
}

#[test]
#[ignore = "needs root"]
fn without_gpupool_running_pods_run_on_and_what_slips_past_is_told_afterwards() {
    let shared = shared();
    let mut scene = Scene::on(&shared);
    scene.share(SMALL, "share-pool");
    scene.apply(&waiting_pod("holder", "share-pool", 50, 100, 1));
    scene.wait_for_running("holder");
    go(&scene, "holder");
    until_state(&scene, "holder", "2");
    scene.cluster.helm(["uninstall", "gpupool", "--namespace", NAMESPACE, "--wait"]).unwrap();
    // Nobody refuses this: no label, and one of the two percentages alone.
    let slipped = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slipped", "namespace": "default"},
        "spec": {
            "nodeName": SMALL, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": PUBLISHED_IMAGE, "command": ["sleep", "1000h"],
                "resources": {"limits": {"alibabacloud.com/gpu-core.percentage": "10"}},
            }],
        },
    });
    let pod = scene.object("pod", "holder");
    assert_eq!(
        (&pod["status"]["phase"], &pod["status"]["containerStatuses"][0]["restartCount"]),
        (&json!("Running"), &json!(0))
    );
    install(&mut scene.cluster);
    until_state(&scene, "holder", "2");
    // The same again with gpupool there, past its admission.
    scene.run(&["delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "gpupool-control"]);
    scene.apply(&slipped.to_string());
    scene.until("the pod that slipped past is told what to do", || {
        let pod = scene.object("pod", "slipped");
        condition(&pod, "GPUShareAccepted").is_some_and(|told| {
            told["status"] == "False"
                && told["message"].as_str().unwrap_or_default().contains("gpu-memory.percentage")
        })
    });
    install(&mut scene.cluster);
}
