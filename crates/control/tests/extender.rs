//! The extender over its wire: what the scheduler sends and what it gets, with an API server that answers as told.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "fixtures/api_server.rs"]
mod api_server;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use gpupool_control::extender::Extender;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt as _;

const PATIENCE: Duration = Duration::from_mins(1);
const CORE: &str = "alibabacloud.com/gpu-core.percentage";
const MEMORY: &str = "alibabacloud.com/gpu-memory.percentage";

fn node(name: &str, policy: Option<&str>, cards: u32) -> Value {
    let list: Vec<Value> = (0..cards)
        .map(|index| json!({"uuid": format!("GPU-{name}-{index}"), "index": index, "healthy": true}))
        .collect();
    let mut labels = BTreeMap::new();
    if let Some(policy) = policy {
        labels.insert("gpupool.io/share-policy", policy);
    }
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1", "labels": labels,
            "annotations": {"gpupool.io/pool-cards": serde_json::to_string(&list).unwrap()},
        },
    })
}

fn pod(name: &str, policy: &str, request: u32) -> Value {
    let resources = json!({CORE: request.to_string(), MEMORY: request.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
            "labels": {"alibabacloud.com/gpu-share-policy": policy, "alibabacloud.com/compute-class": "gpu-hpn"},
            "annotations": {"gpupool.io/gpu-core.limit": "100", "gpupool.io/gpu-memory.limit": "100"},
        },
        "spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": resources, "limits": resources}},
        ]},
        "status": {"phase": "Pending"},
    })
}

/// An API server with nodes and pods, which takes bindings unless it is told to refuse them.
#[derive(Default)]
struct Server {
    pods: BTreeMap<String, Value>,
    /// What of nodes is more than their metadata.
    node_specs: BTreeMap<String, Value>,
    bindings: Vec<Value>,
    refuses: bool,
}

struct Scene {
    extender: Extender,
    server: Arc<Mutex<Server>>,
    _leading: watch::Sender<bool>,
}

impl Scene {
    /// An extender that has seen these nodes and has the lead.
    async fn start(nodes: Vec<Value>) -> Self {
        let scene = Self::unready(nodes, true);
        timeout(PATIENCE, async {
            while !scene.extender.ready() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        scene
    }

    fn unready(nodes: Vec<Value>, leads: bool) -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let answers = Arc::clone(&server);
        let client = api_server::client(move |path, body| {
            let (status, value) = reply(&answers, &nodes, path, body);
            (StatusCode::from_u16(status).unwrap(), value)
        });
        let (leading, leads) = watch::channel(leads);
        let extender = Extender::new(client, leads);
        tokio::spawn(extender.clone().follow());
        Self { extender, server, _leading: leading }
    }

    fn add(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.server.lock().unwrap().pods.insert(name, pod.clone());
    }

    async fn ask(&self, verb: &str, question: &Value) -> (StatusCode, Value) {
        let request = Request::post(format!("/{verb}")).body(Body::from(question.to_string())).unwrap();
        let response = self.extender.router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
    }

    async fn filter(&self, pod: &Value, nodes: &[&str]) -> Value {
        self.ask("filter", &json!({"Pod": pod, "Nodes": null, "NodeNames": nodes})).await.1
    }

    /// What the scheduler does with a pod: filter, then bind.
    async fn place(&self, pod: &str, node: &str) -> Value {
        let manifest = self.server.lock().unwrap().pods[pod].clone();
        self.filter(&manifest, &[node]).await;
        self.bind(pod, node).await
    }

    /// A bind of this name and that uid, after a filter that offers the node for it.
    async fn place_as(&self, name: &str, uid: &str, node: &str) -> Value {
        self.filter(&pod(uid, "static", 10), &[node]).await;
        let question = json!({"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node});
        self.ask("bind", &question).await.1
    }

    async fn bind(&self, pod: &str, node: &str) -> Value {
        let question = json!({"PodName": pod, "PodNamespace": "default", "PodUID": pod, "Node": node});
        self.ask("bind", &question).await.1
    }
}

fn error(answer: &Value) -> String {
    answer["Error"].as_str().unwrap().to_owned()
}

fn reply(server: &Mutex<Server>, nodes: &[Value], path: &str, body: &[u8]) -> (u16, Value) {
    let mut server = server.lock().unwrap();
    let list = |kind: &str, items: &[Value]| {
        (200, json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items}))
    };
    let refusal = |code: u16, message: &str| {
        let status =
            json!({"kind": "Status", "status": "Failure", "message": message, "reason": "x", "code": code});
        (code, status)
    };
    if path.starts_with("/api/v1/nodes?") {
        return list("PartialObjectMetadataList", nodes);
    }
    if let Some(name) = path.strip_prefix("/api/v1/nodes/") {
        let spec = server.node_specs.get(name).cloned().unwrap_or_else(|| json!({}));
        return (200, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}));
    }
    if path.starts_with("/api/v1/pods?") {
        return list("PodList", &[]);
    }
    if path.contains("/binding") {
        if server.refuses {
            return refusal(409, "not this time");
        }
        server.bindings.push(serde_json::from_slice(body).unwrap());
        return (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
    }
    let name = path.rsplit('/').next().unwrap().trim_end_matches('?');
    server.pods.get(name).map_or_else(|| refusal(404, "no such pod"), |pod| (200, pod.clone()))
}

#[tokio::test]
async fn nodes_are_told_apart_by_the_policy_in_force() {
    let nodes =
        vec![node("plain", None, 2), node("pool", Some("share-pool"), 2), node("fixed", Some("static"), 2)];
    let scene = Scene::start(nodes).await;
    let names = ["plain", "pool", "fixed", "unseen"];
    let shared = scene.filter(&pod("a", "share-pool", 10), &names).await;
    assert_eq!(shared["NodeNames"], json!(["pool"]));
    assert_eq!(shared["FailedNodes"], json!({}));
    let why = &shared["FailedAndUnresolvableNodes"];
    assert_eq!(why["fixed"], "the gpu share policy in force is static, the pod is for share-pool");
    assert!(why["plain"].as_str().unwrap().starts_with("no gpu share policy is in force"));
    assert_eq!(why["unseen"], "gpupool has not seen this node yet");

    let mut exclusive = pod("b", "share-pool", 10);
    exclusive["metadata"]["labels"] = json!({});
    for resource in
        ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "nvidia.com/a100-40gb"]
    {
        exclusive["spec"]["containers"][0]["resources"] = json!({"limits": {resource: "1"}});
        let answer = scene.filter(&exclusive, &names).await;
        assert_eq!(answer["NodeNames"], json!(["plain"]), "{resource}");
        let why = answer["FailedAndUnresolvableNodes"]["pool"].as_str().unwrap();
        assert!(why.contains("asks for cards or parts of them for itself"), "{why}");
    }
    exclusive["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/hostdev": "1"}});
    let answer = scene.filter(&exclusive, &names).await;
    assert_eq!(answer["NodeNames"], json!(["plain", "pool", "fixed"]), "no GPU at all");
}

#[tokio::test]
async fn a_static_pod_is_bound_with_its_card_and_a_third_of_60_waits() {
    let scene = Scene::start(vec![node("n", Some("static"), 2)]).await;
    for name in ["a", "b"] {
        let pod = pod(name, "static", 60);
        scene.add(&pod);
        assert_eq!(scene.filter(&pod, &["n"]).await["NodeNames"], json!(["n"]));
    }
    // It was offered the node while there was room.
    let third = pod("c", "static", 60);
    scene.add(&third);
    assert_eq!(scene.filter(&third, &["n"]).await["NodeNames"], json!(["n"]));
    for name in ["a", "b"] {
        assert_eq!(scene.bind(name, "n").await["Error"], "");
    }
    assert!(error(&scene.bind("c", "n").await).contains("does not fit any more"));
    let answer = scene.filter(&third, &["n"]).await;
    assert_eq!(answer["FailedNodes"]["n"], "no single card has room for both requests");

    let bindings = scene.server.lock().unwrap().bindings.clone();
    let card = |binding: &Value| binding["metadata"]["annotations"]["gpupool.io/card"].clone();
    assert_eq!(bindings.iter().map(card).collect::<Vec<_>>(), [json!("GPU-n-0"), json!("GPU-n-1")]);
    assert_eq!(bindings[0]["target"], json!({"kind": "Node", "name": "n"}));
    assert_eq!(bindings[0]["metadata"]["uid"], "a");
}

#[tokio::test]
async fn a_refused_binding_frees_the_card_and_is_an_error() {
    let scene = Scene::start(vec![node("n", Some("static"), 1)]).await;
    scene.add(&pod("a", "static", 60));
    scene.server.lock().unwrap().refuses = true;
    assert!(error(&scene.place("a", "n").await).contains("not this time"));
    assert_eq!(scene.filter(&pod("b", "static", 60), &["n"]).await["NodeNames"], json!(["n"]));
}

#[tokio::test]
async fn pods_of_a_pool_are_bound_without_a_card() {
    let scene = Scene::start(vec![node("n", Some("share-pool"), 2)]).await;
    scene.add(&pod("a", "share-pool", 60));
    assert_eq!(scene.place("a", "n").await["Error"], "");
    let bindings = scene.server.lock().unwrap().bindings.clone();
    assert_eq!(bindings[0]["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn who_does_not_lead_answers_filter_and_bind_with_an_error() {
    let scene = Scene::unready(vec![node("n", Some("static"), 1)], false);
    scene.add(&pod("a", "static", 10));
    for answer in [scene.filter(&pod("a", "static", 10), &["n"]).await, scene.bind("a", "n").await] {
        assert_eq!(answer["Error"], "this gpupool process does not lead; another one answers");
    }
    assert!(scene.server.lock().unwrap().bindings.is_empty());
}

#[tokio::test]
async fn a_pod_that_is_gone_bound_or_another_one_is_not_bound() {
    let scene = Scene::start(vec![node("n", Some("static"), 1)]).await;
    scene.filter(&pod("ghost", "static", 10), &["n"]).await;
    assert!(error(&scene.bind("ghost", "n").await).contains("no such pod"));
    let mut bound = pod("a", "static", 10);
    bound["spec"]["nodeName"] = json!("elsewhere");
    scene.add(&bound);
    assert!(error(&scene.place("a", "n").await).contains("bound to node elsewhere already"));
    scene.filter(&pod("b", "static", 10), &["n"]).await;
    let mut other = pod("b", "static", 10);
    other["metadata"]["uid"] = json!("another");
    scene.add(&other);
    assert!(error(&scene.bind("b", "n").await).contains("replaced"));
    assert!(scene.server.lock().unwrap().bindings.is_empty());
}

#[tokio::test]
async fn nothing_is_bound_that_was_not_offered_or_a_second_time() {
    let scene = Scene::start(vec![node("n", Some("static"), 1), node("m", Some("static"), 1)]).await;
    scene.add(&pod("a", "static", 10));
    assert!(error(&scene.bind("a", "n").await).contains("was not offered"));
    scene.filter(&pod("a", "static", 10), &["m"]).await;
    assert!(error(&scene.bind("a", "n").await).contains("was not offered"));
    // What filter refuses is not offered, whoever asked.
    scene.filter(&pod("a", "share-pool", 10), &["n"]).await;
    assert!(error(&scene.bind("a", "n").await).contains("was not offered"));
    assert!(scene.server.lock().unwrap().bindings.is_empty());
    assert_eq!(scene.place("a", "n").await["Error"], "");
    assert!(error(&scene.bind("a", "n").await).contains("was not offered"));
    assert_eq!(scene.server.lock().unwrap().bindings.len(), 1);
}

#[tokio::test]
async fn nothing_is_bound_that_asks_for_no_cards() {
    let scene = Scene::start(vec![node("n", Some("static"), 1), node("plain", None, 1)]).await;
    let mut without = pod("a", "static", 10);
    without["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    scene.add(&without);
    // Whatever the scheduler was told of it.
    scene.filter(&pod("a", "static", 10), &["n"]).await;
    assert!(error(&scene.bind("a", "n").await).contains("is not for gpupool to bind"));
    assert!(error(&scene.place("a", "plain").await).contains("is not for gpupool to bind"));
    assert!(scene.server.lock().unwrap().bindings.is_empty());
    let mut whole = pod("b", "static", 10);
    whole["metadata"]["labels"] = json!({});
    whole["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    scene.add(&whole);
    assert_eq!(scene.place("b", "plain").await["Error"], "");
}

#[tokio::test]
async fn nothing_is_bound_to_a_node_that_is_cordoned_or_has_a_taint_that_the_pod_does_not_tolerate() {
    let scene = Scene::start(vec![node("n", Some("share-pool"), 1)]).await;
    let mut tolerant = pod("b", "share-pool", 10);
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let tainted = json!({"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]});
    for (spec, taint) in [
        (tainted, "team=a:NoSchedule"),
        (json!({"unschedulable": true}), "node.kubernetes.io/unschedulable:NoSchedule"),
    ] {
        scene.server.lock().unwrap().node_specs.insert("n".to_owned(), spec);
        scene.add(&pod("a", "share-pool", 10));
        let said = error(&scene.place("a", "n").await);
        assert_eq!(said, format!("node n has the taint {taint}, which the pod does not tolerate"));
        scene.add(&tolerant);
        assert_eq!(scene.place("b", "n").await["Error"], "");
    }
}

#[tokio::test]
async fn a_question_about_a_pod_frees_no_pick() {
    let scene = Scene::start(vec![node("n", Some("static"), 1)]).await;
    scene.add(&pod("a", "static", 60));
    assert_eq!(scene.place("a", "n").await["Error"], "");
    let no_room = json!({"n": "no single card has room for both requests"});
    assert_eq!(scene.filter(&pod("b", "static", 60), &["n"]).await["FailedNodes"], no_room);
    // By the same uid, under its own name and another one. To the pod itself its pick is no hindrance.
    assert_eq!(scene.filter(&pod("a", "static", 60), &["n"]).await["NodeNames"], json!(["n"]));
    let mut stranger = pod("a", "share-pool", 1);
    stranger["metadata"]["name"] = json!("stranger");
    scene.filter(&stranger, &["n"]).await;
    assert_eq!(scene.filter(&pod("b", "static", 60), &["n"]).await["FailedNodes"], no_room);
    // Nor does a bind that the API server knows nothing of.
    assert!(error(&scene.place_as("ghost", "a", "n").await).contains("no such pod"));
    assert_eq!(scene.filter(&pod("b", "static", 60), &["n"]).await["FailedNodes"], no_room);
}

#[tokio::test]
async fn questions_are_bounded_by_length_and_by_what_is_in_them() {
    let scene = Scene::start(vec![node("n", Some("static"), 1)]).await;
    let question = |pod: &Value, names: Value| json!({"Pod": pod, "Nodes": null, "NodeNames": names});
    let plain = pod("a", "static", 10);
    // As large as it gets: 10,000 nodes with the longest names, and a pod of 1.5 MiB.
    let names: Vec<String> = (0..10_000).map(|number| format!("{number:0>250}")).collect();
    let mut large = plain.clone();
    large["spec"]["containers"][0]["env"] = json!([{"name": "x", "value": "x".repeat(3 << 19)}]);
    let (status, answer) = scene.ask("filter", &question(&large, json!(names))).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["FailedAndUnresolvableNodes"].as_object().unwrap().len(), 10_000);

    large["spec"]["containers"][0]["env"] = json!([{"name": "x", "value": "x".repeat(3 << 20)}]);
    let mut many = plain.clone();
    many["spec"]["containers"] = json!(vec![json!({}); 100_000]);
    for (pod, names, expected, says) in [
        (&large, json!(names), StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 4194304 bytes"),
        (&plain, json!(vec![""; 100_000]), StatusCode::BAD_REQUEST, "a list of at most 20000 texts"),
        (&many, json!(["n"]), StatusCode::BAD_REQUEST, "the object has more than 10000"),
    ] {
        for verb in ["filter", "prioritize"] {
            let (status, said) = scene.ask(verb, &question(pod, names.clone())).await;
            assert_eq!(status, expected, "{said}");
            assert!(said.as_str().unwrap().contains(says), "{said}");
        }
    }
}

#[tokio::test]
async fn rubbish_and_whole_nodes_are_told() {
    let scene = Scene::start(vec![node("n", Some("static"), 1)]).await;
    assert_eq!(scene.ask("filter", &json!([])).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(scene.ask("bind", &json!({"PodName": 3})).await.0, StatusCode::BAD_REQUEST);
    let whole = json!({"Pod": pod("a", "static", 10), "Nodes": {"items": []}, "NodeNames": null});
    let error = scene.ask("filter", &whole).await.1["Error"].as_str().unwrap().to_owned();
    assert!(error.contains("nodeCacheCapable"), "{error}");
    let mut odd = pod("a", "static", 10);
    odd["metadata"]["annotations"]["gpupool.io/gpu-core.limit"] = json!("50%");
    let error = scene.filter(&odd, &["n"]).await["Error"].as_str().unwrap().to_owned();
    assert!(error.contains("50 percent") && !error.contains('%'), "{error}");
}

#[tokio::test]
async fn scores_are_between_0_and_10_for_every_node_named() {
    let scene = Scene::start(vec![node("m", Some("static"), 1), node("n", Some("static"), 4)]).await;
    let question = json!({"Pod": pod("a", "static", 50), "Nodes": null, "NodeNames": ["m", "n", "unseen"]});
    let scores = scene.ask("prioritize", &question).await.1;
    let hosts: Vec<&str> =
        scores.as_array().unwrap().iter().map(|line| line["Host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["m", "n", "unseen"]);
    for line in scores.as_array().unwrap() {
        assert!((0..=10).contains(&line["Score"].as_i64().unwrap()), "{line}");
    }
}
