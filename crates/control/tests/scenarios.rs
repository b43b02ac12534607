//! The controller against an API server that answers as the scenario says: what the real one does rarely.
//!
//! The scenario plays the server: it takes one request after the other, checks it and answers it. A request that
//! does not come fails the test by its limit, and so does one that nobody expects.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use gpupool_control::{ClusterSettings, ControlConfig, ListedKind, list, run};
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower_test::mock::{Handle, SendResponse, pair};

const PATIENCE: Duration = Duration::from_mins(1);

type Server = Handle<Request<Body>, Response<Body>>;

/// A request with the way to answer it.
struct Asked {
    method: String,
    path: String,
    body: Value,
    answer: SendResponse<Response<Body>>,
}

impl Asked {
    fn with(self, status: u16, body: &Value) {
        let body = Body::from(serde_json::to_vec(body).unwrap());
        self.answer.send_response(Response::builder().status(status).body(body).unwrap());
    }

    fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.path.contains(part)
    }
}

/// A cluster with one node, and everything that the controller asks beside writing answered.
struct Scenario {
    server: Server,
    node: Value,
    stop: watch::Sender<bool>,
    controller: JoinHandle<()>,
    /// Watches are answered by silence: the way to answer is kept.
    watches: Vec<SendResponse<Response<Body>>>,
    lease: Value,
}

impl Scenario {
    fn start(node: Value) -> Self {
        let (service, server) = pair::<Request<Body>, Response<Body>>();
        let client = kube::Client::new(service, "default");
        let (stop, stopped) = watch::channel(false);
        let config = ControlConfig {
            log_lines_lost: || 0,
            settings: ClusterSettings { enabled: true, ..ClusterSettings::default() },
            identity: "me".to_owned(),
            lease_namespace: None,
            lease_name: "gpupool-control".to_owned(),
            metrics: None,
            health: None,
            pod: None,
            serving: None,
        };
        let controller = tokio::spawn(run(client, config, stopped));
        Self { server, node, stop, controller, watches: Vec::new(), lease: Value::Null }
    }

    async fn next(&mut self) -> Asked {
        let (request, answer) = timeout(PATIENCE, self.server.next_request()).await.unwrap().unwrap();
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let path = parts.uri.path_and_query().unwrap().to_string();
        Asked {
            method: parts.method.to_string(),
            path,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            answer,
        }
    }

    /// Answers what is not a write to a node or an Event, and gives the first that is.
    async fn write(&mut self) -> Asked {
        loop {
            let asked = self.next().await;
            match () {
                () if asked.path.contains("watch=true") => self.watches.push(asked.answer),
                () if asked.path.contains("/leases") && asked.method == "GET" => {
                    if self.lease.is_null() {
                        asked.with(404, &failure(404));
                    } else {
                        asked.with(200, &self.lease.clone());
                    }
                }
                () if asked.path.contains("/leases") => {
                    let mut lease = asked.body.clone();
                    lease["metadata"]["resourceVersion"] = json!("1");
                    self.lease = lease.clone();
                    asked.with(200, &lease);
                }
                () if asked.is("GET", "/customresourcedefinitions") => asked.with(200, &list_of("List", &[])),
                () if asked.is("GET", "/api/v1/pods?") => asked.with(200, &list_of("PodList", &[])),
                () if asked.is("GET", "/events") => asked.with(200, &list_of("EventList", &[])),
                () if asked.is("GET", "/api/v1/nodes?") => {
                    let nodes = [self.node.clone()];
                    asked.with(200, &list_of("NodeList", &nodes));
                }
                () => return asked,
            }
        }
    }

    /// Ends the controller; requests that come meanwhile may only be about the lease.
    async fn end(mut self) {
        self.stop.send(true).unwrap();
        while !self.controller.is_finished() {
            tokio::select! {
                asked = self.server.next_request() => {
                    let Some((request, answer)) = asked else { break };
                    assert!(request.uri().path().contains("/leases"), "{}", request.uri());
                    let body = Body::from(serde_json::to_vec(&self.lease).unwrap());
                    answer.send_response(Response::new(body));
                }
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        timeout(PATIENCE, self.controller).await.unwrap().unwrap();
    }
}

fn list_of(kind: &str, items: &[Value]) -> Value {
    json!({ "kind": kind, "apiVersion": "v1", "metadata": { "resourceVersion": "10" }, "items": items })
}

fn failure(code: u16) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "as the scenario says",
    })
}

fn node(label: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": "n", "uid": "u", "resourceVersion": "7",
            "labels": { "nvidia.com/gpu.workload.config": label },
            "annotations": { "gpupool.io/cards": "{\"nvidia.com/GA102GL_A10\": 2}" },
        },
    })
}

/// The node as it is after the write that the request asks for.
fn written(mut node: Value, write: &Value, version: &str) -> Value {
    node["metadata"]["resourceVersion"] = json!(version);
    node["status"] = write["status"].clone();
    let fields = |part: &str| -> Value {
        let names = write["status"][part].as_object().into_iter().flatten();
        names.map(|(name, _)| (format!("f:{name}"), json!({}))).collect::<serde_json::Map<_, _>>().into()
    };
    node["metadata"]["managedFields"] = json!([{
        "manager": "gpupool-control", "operation": "Update", "subresource": "status", "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": { "f:status": {
            "f:capacity": fields("capacity"), "f:allocatable": fields("allocatable"),
            "f:conditions": { "k:{\"type\":\"GPUNodeUseValid\"}": {} },
        } },
    }]);
    node
}

#[tokio::test]
async fn a_write_is_bound_to_the_version_that_was_judged() {
    let mut scenario = Scenario::start(node("vm-passthrough"));
    let write = scenario.write().await;
    assert!(write.is("PATCH", "/api/v1/nodes/n/status"), "{} {}", write.method, write.path);
    assert!(write.path.contains("fieldManager=gpupool-control"), "{}", write.path);
    assert_eq!(write.body["metadata"], json!({ "resourceVersion": "7" }));
    assert_eq!(write.body["status"]["capacity"], json!({ "nvidia.com/GA102GL_A10": "2" }));
    assert_eq!(write.body["status"]["allocatable"], write.body["status"]["capacity"]);
    let condition = &write.body["status"]["conditions"][0];
    assert_eq!(condition["type"], "GPUNodeUseValid");
    assert_eq!(condition["lastHeartbeatTime"], condition["lastTransitionTime"]);
    assert_eq!(condition["lastTransitionTime"].as_str().unwrap().len(), "2026-01-01T00:00:00Z".len());
    let answer = written(scenario.node.clone(), &write.body, "8");
    write.with(200, &answer);
    scenario.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_met_another_is_made_again_and_one_that_was_refused_too() {
    let mut scenario = Scenario::start(node("vm-passthrough"));
    for code in [409, 500, 422, 403] {
        let write = scenario.write().await;
        assert!(write.is("PATCH", "/status"), "after {code}: {} {}", write.method, write.path);
        write.with(code, &failure(code));
    }
    let write = scenario.write().await;
    let answer = written(scenario.node.clone(), &write.body, "8");
    write.with(200, &answer);
    scenario.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_not_written_to_again() {
    let mut scenario = Scenario::start(node("vm-passthrough"));
    let write = scenario.write().await;
    write.with(404, &failure(404));
    // Only the lease is heard of from now on.
    tokio::select! {
        write = scenario.write() => panic!("{} {}", write.method, write.path),
        () = tokio::time::sleep(Duration::from_mins(2)) => {}
    }
    scenario.end().await;
}

#[tokio::test]
async fn the_event_follows_the_write_and_a_lost_one_is_not_repeated() {
    let mut scenario = Scenario::start(node("vm-passthru"));
    let write = scenario.write().await;
    assert_eq!(write.body["status"]["conditions"][0]["reason"], "UnknownLabelValue");
    let answer = written(scenario.node.clone(), &write.body, "8");
    write.with(200, &answer);
    let event = scenario.write().await;
    assert!(event.is("POST", "/events"), "{} {}", event.method, event.path);
    assert_eq!(event.body["reason"], "UnknownLabelValue");
    assert_eq!(event.body["type"], "Warning");
    assert_eq!(event.body["reportingController"], "gpupool-control");
    assert_eq!(event.body["regarding"]["uid"], "u");
    event.with(500, &failure(500));
    scenario.end().await;
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (service, mut server) = pair::<Request<Body>, Response<Body>>();
    let client = kube::Client::new(service, "default");
    let pages = tokio::spawn(async move {
        for (query, more) in
            [("/api/v1/pods?limit=500", "a/b"), ("/api/v1/pods?limit=500&continue=a%2Fb", "")]
        {
            let (request, answer) = server.next_request().await.unwrap();
            assert_eq!(request.uri().path_and_query().unwrap().as_str(), query);
            let page = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "continue": more }, "items": [] });
            answer.send_response(Response::new(Body::from(serde_json::to_vec(&page).unwrap())));
        }
    });
    let mut read = 0;
    let listed = list(&client, ListedKind::Pods, |page| {
        assert!(page.contains("PodList"));
        read += 1;
        Ok::<_, std::convert::Infallible>(())
    });
    timeout(PATIENCE, listed).await.unwrap().unwrap();
    assert_eq!(read, 2);
    pages.await.unwrap();
}
