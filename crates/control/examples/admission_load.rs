//! How long the API server waits for admission: the published pod, in the template of a deployment, over a real connection.
//!
//! `cargo run --release -p gpupool-control --example admission_load [QUESTIONS]` prints the median and the 99th
//! percentile in microseconds. One question follows the other on one connection, as the API server keeps them open. It
//! is plain TCP on loopback: encryption is left out.

#![allow(clippy::print_stdout, reason = "printing the figures is what the example is for")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

#[path = "loopback/answers.rs"]
mod loopback;

#[path = "../tests/fixtures/api_server.rs"]
mod api_server;

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gpupool_control::{NamespaceRules, admission};
use http::StatusCode;
use serde_json::{Value, json};

const QUESTIONS: usize = 5_000;

#[tokio::main]
async fn main() {
    let questions = std::env::args().nth(1).map_or(QUESTIONS, |text| text.parse().unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = admission::router("gpupool-system", rules());
    tokio::spawn(async move { axum::serve(listener, router).await });
    for path in ["/mutate/pods", "/validate/pods"] {
        let mut times = tokio::task::spawn_blocking(move || ask(address, path, questions)).await.unwrap();
        times.sort();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_micros();
        println!("{path} p50 {} us p99 {} us of {} questions", at(50), at(99), times.len());
    }
}

/// Rules that are followed, in a cluster of one namespace with none.
fn rules() -> NamespaceRules {
    let client = api_server::client(|path, _| {
        let meta = json!({ "resourceVersion": "1" });
        let list = if path.contains("/limitranges") {
            json!({ "apiVersion": "v1", "kind": "LimitRangeList", "metadata": meta, "items": [] })
        } else {
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": meta,
                "items": [{
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": { "name": "default", "resourceVersion": "1" },
                }],
            })
        };
        (StatusCode::OK, list)
    });
    let rules = NamespaceRules::new(client);
    tokio::spawn(rules.clone().follow());
    rules
}

fn ask(address: SocketAddr, path: &str, questions: usize) -> Vec<Duration> {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_nodelay(true).unwrap();
    let mut answers = BufReader::new(connection.try_clone().unwrap());
    let question = review().to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        question.len()
    );
    let message = head + &question;
    (0..questions)
        .map(|_| {
            let started = Instant::now();
            (&connection).write_all(message.as_bytes()).unwrap();
            let body = loopback::answer(&mut answers);
            let took = started.elapsed();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            // Before limits are moved the object means the same, so both let it through.
            assert_eq!(answer["response"]["allowed"], true, "{answer}");
            assert_eq!(answer["response"]["patch"].is_array(), path == "/mutate/pods", "{answer}");
            took
        })
        .collect()
}

fn review() -> Value {
    let amounts = |percent: &str| {
        json!({
            "cpu": "5", "memory": "50Gi",
            "alibabacloud.com/gpu-core.percentage": percent, "alibabacloud.com/gpu-memory.percentage": percent,
        })
    };
    let template = json!({
        "metadata": { "labels": {
            "alibabacloud.com/gpu-share-policy": "share-pool", "alibabacloud.com/compute-class": "gpu-hpn",
        } },
        "spec": {
            "containers": [{
                "name": "demo", "image": "registry-cn-wulanchabu-vpc.ack.aliyuncs.com/acs/stress:v1.0.4",
                "resources": { "requests": amounts("10"), "limits": amounts("100") },
            }],
        },
    });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4", "operation": "CREATE", "name": "w", "namespace": "default",
            "kind": { "group": "apps", "version": "v1", "kind": "Deployment" },
            "resource": { "group": "apps", "version": "v1", "resource": "deployments" },
            "userInfo": { "username": "somebody" },
            "object": {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "w", "namespace": "default" },
                "spec": { "selector": { "matchLabels": { "app": "w" } }, "template": template },
            },
        },
    })
}
