//! Reading pods: the typed object and its JSON are read alike.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::Policy;
use gpupool_k8s::pod::{card, has_finished, scheduled_requests, sharing, sharing_of_json};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};

const CORE: &str = "alibabacloud.com/gpu-core.percentage";
const MEMORY: &str = "alibabacloud.com/gpu-memory.percentage";

fn typed(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// A pod for a `share-pool` node with these containers.
fn pod(init: &Value, containers: &Value) -> Value {
    json!({
        "metadata": {
            "labels": {
                "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
            },
            "annotations": { "gpupool.io/gpu-core.limit": "100" },
        },
        "spec": { "initContainers": init, "containers": containers },
    })
}

#[test]
fn a_typed_object_and_its_json_are_read_alike() {
    let share = json!({ CORE: "10", MEMORY: "20" });
    let sharing_container = json!({ "name": "a", "resources": { "requests": share, "limits": share } });
    let whole_card = json!({ "name": "b", "resources": { "limits": { "nvidia.com/gpu": "1" } } });
    let slice = json!({ "name": "b", "resources": { "limits": { "nvidia.com/mig-1g.5gb": "1" } } });
    let replica = json!({ "name": "b", "resources": { "requests": { "nvidia.com/gpu.shared": "1" } } });
    let no_card = json!({ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "0", "cpu": "1" } } });
    // The pod, whether it shares, whether it has cards or parts of them for itself.
    let cases = [
        (json!({}), false, false),
        (json!({ "spec": { "containers": [] } }), false, false),
        (pod(&json!(null), &json!([sharing_container])), true, false),
        (pod(&json!([sharing_container]), &json!([{ "name": "a" }])), true, false),
        (pod(&json!([]), &json!([whole_card])), false, true),
        (pod(&json!([]), &json!([slice])), false, true),
        (pod(&json!([slice]), &json!([{ "name": "a" }, replica])), false, true),
        (pod(&json!([whole_card]), &json!([sharing_container])), true, true),
        (pod(&json!([]), &json!([no_card, { "name": "d", "resources": {} }])), false, false),
    ];
    for (object, shares, exclusive) in cases {
        let read = sharing(&typed(&object));
        assert_eq!(read, sharing_of_json(&object), "{object}");
        assert_eq!((read.shares(), read.exclusive().is_some()), (shares, exclusive), "{object}");
    }
}

#[test]
fn what_is_asked_for_comes_out_with_its_policy_and_the_place_of_its_container() {
    let share = json!({ "requests": { CORE: "10", MEMORY: "20" }, "limits": { CORE: "10", MEMORY: "20" } });
    let read =
        sharing(&typed(&pod(&json!([{ "name": "a" }]), &json!([{ "name": "b", "resources": share }]))));
    let asked = read.share().unwrap().unwrap();
    assert_eq!(asked.policy, Policy::SharePool);
    assert_eq!(
        (asked.core.request().to_string(), asked.core.limit().to_string()),
        ("10".into(), "100".into())
    );
    let places: Vec<_> = read.containers.iter().map(|one| (one.name.as_str(), one.init)).collect();
    assert_eq!(places, [("a", true), ("b", false)]);
}

#[test]
fn json_of_any_shape_is_read_and_numbers_are_quantities() {
    for odd in [
        json!(null),
        json!([]),
        json!({ "metadata": 4, "spec": [] }),
        json!({ "spec": { "containers": "x" } }),
        json!({ "spec": { "containers": [4, null, { "name": 3, "resources": { "requests": { CORE: [] } } }] } }),
    ] {
        let read = sharing_of_json(&odd);
        assert!(!read.shares() && read.exclusive().is_none(), "{odd}");
    }
    let typed_by_hand = pod(
        &json!([]),
        &json!([{ "name": "a", "resources": { "requests": { CORE: 10, MEMORY: 20 }, "limits": { CORE: 10, MEMORY: 20 } } }]),
    );
    assert!(sharing_of_json(&typed_by_hand).share().unwrap().is_some());
}

#[test]
fn a_pod_has_finished_when_its_phase_says_so() {
    let cases = [
        (json!({}), false),
        (json!({ "status": {} }), false),
        (json!({ "status": { "phase": "Pending" } }), false),
        (json!({ "status": { "phase": "Running" } }), false),
        (json!({ "status": { "phase": "Unknown" } }), false),
        (json!({ "status": { "phase": "Succeeded" } }), true),
        (json!({ "status": { "phase": "Failed" } }), true),
    ];
    for (object, finished) in cases {
        assert_eq!(has_finished(&typed(&object)), finished, "{object}");
    }
}

#[test]
fn the_card_is_the_annotations() {
    let with = typed(&json!({ "metadata": { "annotations": { "gpupool.io/card": "GPU-1" } } }));
    assert_eq!(card(&with), Some("GPU-1".into()));
    assert_eq!(card(&typed(&json!({}))), None);
}

#[test]
fn what_the_scheduler_counts() {
    let container = |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
    let sidecar =
        json!({ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } });
    // The specification, and its cpu in thousandths.
    let cases = [
        (json!({ "containers": [] }), None),
        (json!({ "containers": [{ "name": "c" }] }), None),
        (json!({ "containers": [container("500m"), container("1")] }), Some(1500)),
        (json!({ "initContainers": [container("4")], "containers": [container("1")] }), Some(4000)),
        (json!({ "initContainers": [sidecar], "containers": [container("1")] }), Some(2000)),
        (json!({ "containers": [container("1")], "overhead": { "cpu": "250m" } }), Some(1250)),
        (
            json!({
                "containers": [container("1")], "overhead": { "cpu": "250m" },
                "resources": { "requests": { "cpu": "3" } },
            }),
            Some(3250),
        ),
        (json!({ "containers": [container("many")] }), None),
    ];
    for (spec, cpu) in cases {
        let spec_read: PodSpec = serde_json::from_value(spec.clone()).unwrap();
        let counted = scheduled_requests(&spec_read);
        let counted = counted.iter().find(|(one, _)| one.resource() == "cpu").map(|(_, amount)| amount);
        let expected = cpu.map(|cpu: u32| Quantity::parse(&format!("{cpu}m")).unwrap());
        assert_eq!(counted.filter(|amount| !amount.is_zero()), expected, "{spec}");
    }
}
