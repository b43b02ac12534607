//! What a namespace allows, as admission answers it: with an API server that lists as told, fails, or comes later.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "fixtures/api_server.rs"]
mod api_server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use gpupool_control::{NamespaceRules, admission};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Generous: nothing here measures speed.
const PATIENCE: Duration = Duration::from_mins(1);
const CORE: &str = "alibabacloud.com/gpu-core.percentage";
const MEMORY: &str = "alibabacloud.com/gpu-memory.percentage";

/// An API server with one namespace `team` and what is allowed there.
#[derive(Default)]
struct Server {
    fails: bool,
    annotations: Value,
    ranges: Vec<Value>,
    requests: Vec<String>,
}

impl Server {
    fn answer(&mut self, path: &str) -> (StatusCode, Value) {
        self.requests.push(path.to_owned());
        if self.fails {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "away", "code": 500 });
            return (StatusCode::INTERNAL_SERVER_ERROR, status);
        }
        let meta = json!({ "resourceVersion": "1" });
        let namespace = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": "team", "resourceVersion": "1", "annotations": self.annotations },
        });
        let body = if path.contains("/limitranges") {
            json!({ "apiVersion": "v1", "kind": "LimitRangeList", "metadata": meta, "items": self.ranges })
        } else if path.starts_with("/api/v1/namespaces/team") {
            namespace
        } else {
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": meta,
                "items": [namespace],
            })
        };
        (StatusCode::OK, body)
    }
}

fn range(item: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "LimitRange",
        "metadata": { "name": "cap", "namespace": "team", "resourceVersion": "1" }, "spec": { "limits": [item] },
    })
}

/// Admission over an API server that answers like this.
fn admission(server: &Arc<Mutex<Server>>) -> (Router, NamespaceRules) {
    let told = Arc::clone(server);
    let rules = NamespaceRules::new(api_server::client(move |path, _| told.lock().unwrap().answer(path)));
    (admission::router("gpupool-system", rules.clone()), rules)
}

/// A pod of 10 with a limit, as it is after the limit was moved.
fn review(operation: &str, limit: &str) -> Value {
    let resources = json!({ CORE: "10", MEMORY: "10" });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "team",
            "labels": {
                "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
            },
            "annotations": { "gpupool.io/gpu-core.limit": limit, "gpupool.io/gpu-memory.limit": limit },
        },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": resources, "limits": resources } }] },
    });
    let pods = json!({ "group": "", "version": "v1", "resource": "pods" });
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let old = if operation == "UPDATE" { pod.clone() } else { Value::Null };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "kind": kind, "resource": pods, "name": "p", "namespace": "team",
            "operation": operation, "userInfo": { "username": "somebody" }, "object": pod, "oldObject": old,
            "dryRun": false, "options": null,
        },
    })
}

/// Why it is refused; nothing where it is let in.
async fn refusal(router: &Router, review: &Value) -> Option<String> {
    let request = Request::post("/validate/pods").header("content-type", "application/json");
    let request = request.body(Body::from(review.to_string())).unwrap();
    let answer = tokio::time::timeout(PATIENCE, router.clone().oneshot(request)).await.unwrap().unwrap();
    let answer = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let response = &answer["response"];
    let message = response["status"]["message"].as_str().unwrap_or_default().to_owned();
    (response["allowed"] != true).then_some(message)
}

#[tokio::test]
async fn a_new_pods_limit_is_held_to_what_its_namespace_allows() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (router, _) = admission(&server);
    assert_eq!(
        refusal(&router, &review("CREATE", "100")).await,
        None,
        "where nothing is said, all is allowed"
    );
    for (item, says) in [
        (json!({ "type": "Container", "max": { CORE: "50" } }), "LimitRange \"cap\" allows at most 50"),
        (json!({ "type": "Pod", "max": { MEMORY: "50" } }), "LimitRange \"cap\" allows at most 50"),
        (
            json!({ "type": "Container", "maxLimitRequestRatio": { CORE: "2" } }),
            "allows at most 2 times the request, which is 10",
        ),
    ] {
        server.lock().unwrap().ranges = vec![range(&item)];
        let said = refusal(&router, &review("CREATE", "100")).await.unwrap();
        assert!(said.contains(says), "{item}: {said}");
        assert_eq!(refusal(&router, &review("CREATE", "20")).await, None, "{item}");
        assert_eq!(refusal(&router, &review("UPDATE", "100")).await, None, "limits of pods that exist stand");
    }
    server.lock().unwrap().ranges =
        vec![range(&json!({ "type": "PersistentVolumeClaim", "max": { CORE: "1" } }))];
    assert_eq!(refusal(&router, &review("CREATE", "100")).await, None);
    server.lock().unwrap().annotations = json!({ "gpupool.io/gpu-memory.max-limit": "99" });
    let said = refusal(&router, &review("CREATE", "100")).await.unwrap();
    assert!(
        said.contains("annotation gpupool.io/gpu-memory.max-limit of namespace \"team\" allows 99"),
        "{said}"
    );
    assert_eq!(refusal(&router, &review("CREATE", "99")).await, None);
}

#[tokio::test]
async fn while_it_is_not_known_what_a_namespace_allows_nobody_is_let_in() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (router, rules) = admission(&server);
    assert_eq!(
        refusal(&router, &review("CREATE", "20")).await,
        None,
        "it is let in when the rules can be read"
    );
    server.lock().unwrap().fails = true;
    let said = refusal(&router, &review("CREATE", "20")).await.unwrap();
    assert!(
        said.contains("gpupool cannot read which limits namespace \"team\" allows")
            && said.contains("try again"),
        "{said}"
    );
    server.lock().unwrap().fails = false;
    let followed = tokio::spawn(rules.follow());
    // Once both are followed, nothing is read for an answer, and what was seen holds while the API server is away.
    tokio::time::timeout(PATIENCE, async {
        loop {
            server.lock().unwrap().requests.clear();
            assert_eq!(refusal(&router, &review("CREATE", "20")).await, None);
            if server.lock().unwrap().requests.is_empty() {
                break;
            }
        }
    })
    .await
    .unwrap();
    server.lock().unwrap().fails = true;
    assert_eq!(refusal(&router, &review("CREATE", "20")).await, None);
    followed.abort();
}
