//! What admission takes of a request, and what it makes of the rest: its router without a connection.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use axum::body::{Body, to_bytes};
use gpupool_control::{NamespaceRules, admission};
use http::{Request, Response, StatusCode};
use kube::client::Body as KubeBody;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const MIB: usize = 1 << 20;

/// Admission in a cluster that is not there: none of what is asked here depends on it.
fn router() -> axum::Router {
    let (nobody, _) = tower_test::mock::pair::<Request<KubeBody>, Response<KubeBody>>();
    admission::router("gpupool-system", NamespaceRules::new(kube::Client::new(nobody, "default")))
}

async fn ask(path: &str, body: String) -> (StatusCode, Value) {
    let request = Request::post(path).body(Body::from(body)).unwrap();
    let response = router().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
}

/// A deployment whose limit is over its request, with so many bytes that nobody looks at.
fn deployment(padding: usize) -> Value {
    let amounts = |percent: &str| {
        json!({
            "alibabacloud.com/gpu-core.percentage": percent, "alibabacloud.com/gpu-memory.percentage": percent,
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "w", "namespace": "default" },
        "spec": { "template": {
            "metadata": { "labels": {
                "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
            } },
            "spec": { "containers": [{
                "name": "demo", "env": [{ "name": "x", "value": "x".repeat(padding) }],
                "resources": { "requests": amounts("10"), "limits": amounts("100") },
            }] },
        } },
    })
}

fn review(object: &str, old: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{
            "uid":"u","operation":"UPDATE","name":"w","namespace":"default",
            "kind":{{"group":"apps","version":"v1","kind":"Deployment"}},"userInfo":{{"username":"somebody"}},
            "object":{object},"oldObject":{old}}}}}"#
    )
}

#[tokio::test]
async fn the_largest_object_that_is_stored_is_answered_with_how_it_was_before() {
    let object = deployment(3 * MIB / 2).to_string();
    let body = review(&object, &object);
    assert!(body.len() > 3 * MIB);
    let (status, answer) = ask("/mutate/pods", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u"), &json!(true)));
    assert!(answer["response"]["patch"].is_array(), "{answer}");
}

#[tokio::test]
async fn a_body_over_the_bound_is_not_read() {
    let zeros = format!("[{}0]", "0,".repeat(8 << 20));
    for body in [review(&zeros, "null"), review(&deployment(4 * MIB).to_string(), "null")] {
        let (status, said) = ask("/mutate/pods", body).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(said, "the body is larger than 3670016 bytes");
    }
    // The same without its length in front.
    let chunks = (0..5).map(|_| Ok::<_, std::io::Error>(vec![b'0'; MIB]));
    let request =
        Request::post("/validate/pods").body(Body::from_stream(futures::stream::iter(chunks))).unwrap();
    let response = router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn an_object_that_would_not_fit_twice_is_refused_when_it_is_made() {
    let (status, answer) = ask("/validate/pods", review(&deployment(2 * MIB).to_string(), "null")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["response"]["allowed"], false);
    let said = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(said.contains("gpupool looks at 1835008 at most: make it smaller"), "{said}");
}

#[tokio::test]
async fn values_that_are_looked_at_are_bounded_wherever_they_lie() {
    let many =
        (0..20_000).map(|number| (format!("a-{number}"), json!(""))).collect::<serde_json::Map<_, _>>();
    let zeros = json!(vec![0; 100_000]);
    for (place, what) in [
        ("/metadata", json!({ "annotations": many })),
        ("/spec/template/metadata", json!({ "labels": many })),
        ("/spec/template/spec", json!({ "containers": zeros })),
        ("/spec/template/spec", json!({ "affinity": { "nodeAffinity": { "a": zeros } } })),
    ] {
        let mut object = deployment(0);
        *object.pointer_mut(place).unwrap() = what;
        for path in ["/mutate/pods", "/validate/pods", "/mutate/exclusive", "/mutate/nodes"] {
            let (status, answer) = ask(path, review(&object.to_string(), "null")).await;
            assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(false)), "{place}");
            let said = answer["response"]["status"]["message"].as_str().unwrap();
            assert!(
                said.starts_with("the object has more than 10000 labels, annotations, containers"),
                "{said}"
            );
        }
    }
    // In the configuration that was applied last, which is JSON in a text: it counts as none.
    let mut object = deployment(0);
    object["metadata"]["annotations"] = json!({ "kubectl.kubernetes.io/last-applied-configuration": json!({ "spec": { "template": { "spec": { "containers": zeros } } } }).to_string() });
    let (_, answer) = ask("/mutate/pods", review(&object.to_string(), &deployment(0).to_string())).await;
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
}

#[tokio::test]
async fn rubbish_is_told_to_be_rubbish_and_a_deletion_goes_through() {
    for rubbish in ["", "[]", "{}", r#"{"request":{"uid":4}}"#, r#"{"request":{"uid":"u","kind":{}}}"#] {
        let (status, _) = ask("/mutate/pods", rubbish.to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{rubbish}");
    }
    let (status, answer) = ask("/validate/pods", review("null", &deployment(0).to_string())).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
}
