//! How long the scheduler waits for `filter`: 5,000 nodes of 16 cards, 50,000 pods on them, over a real connection.
//!
//! `cargo run --release -p gpupool-control --example extender_load [QUESTIONS]` prints the median and the 99th
//! percentile in microseconds. Every question names all nodes, as the scheduler does in the worst case; a tenth of the
//! nodes is full, a tenth shares nothing. The connection is plain TCP on loopback: encryption is left out.

#![allow(clippy::print_stdout, reason = "printing the figures is what the example is for")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

#[path = "loopback/answers.rs"]
mod loopback;

#[path = "../tests/fixtures/api_server.rs"]
mod api_server;

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gpupool_control::extender::Extender;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

const NODES: u32 = 5_000;
const CARDS: u32 = 16;
const PODS_A_NODE: u32 = 10;
const QUESTIONS: usize = 400;

#[tokio::main]
async fn main() {
    let questions = std::env::args().nth(1).map_or(QUESTIONS, |text| text.parse().unwrap());
    let client = api_server::client(|path, _| {
        let (kind, items) = if path.contains("/nodes") {
            ("PartialObjectMetadataList", (0..NODES).map(node).collect())
        } else {
            ("PodList", (0..NODES * PODS_A_NODE).map(placed).collect::<Vec<_>>())
        };
        let list =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items});
        (StatusCode::OK, list)
    });
    let (_leading, leads) = watch::channel(true);
    let extender = Extender::new(client, leads);
    tokio::spawn(extender.clone().follow());
    let started = Instant::now();
    while !extender.ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!(
        "{NODES} nodes and {} pods seen in {:.1} s",
        NODES * PODS_A_NODE,
        started.elapsed().as_secs_f64()
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, extender.router()).await });
    let mut times = tokio::task::spawn_blocking(move || ask(address, questions)).await.unwrap();
    times.sort();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_micros();
    println!("filter p50 {} us p99 {} us of {} questions", at(50), at(99), times.len());
}

/// Asks about one pod after the other, each about all nodes.
fn ask(address: SocketAddr, questions: usize) -> Vec<Duration> {
    let names: Vec<String> = (0..NODES).map(|number| format!("node-{number}")).collect();
    let connection = TcpStream::connect(address).unwrap();
    connection.set_nodelay(true).unwrap();
    let mut answers = BufReader::new(connection.try_clone().unwrap());
    let mut times = Vec::new();
    for number in 0..questions {
        let pod = pod(&format!("asked-{number}"), 30, None);
        let question = json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string();
        let started = Instant::now();
        let head = format!("POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", question.len());
        (&connection).write_all(head.as_bytes()).unwrap();
        (&connection).write_all(question.as_bytes()).unwrap();
        let body = loopback::answer(&mut answers);
        times.push(started.elapsed());
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let fitting = answer["NodeNames"].as_array().unwrap().len();
        assert_eq!(fitting, usize::try_from(NODES / 10 * 8).unwrap(), "{answer}");
    }
    times
}

/// Every tenth node shares nothing; every tenth is full: it has as many cards as pods, each of which takes one.
fn node(number: u32) -> Value {
    let labels =
        if number.is_multiple_of(10) { json!({}) } else { json!({"gpupool.io/share-policy": "static"}) };
    let cards = if number % 10 == 1 { PODS_A_NODE } else { CARDS };
    let list: Vec<Value> =
        (0..cards).map(|card| json!({"uuid": uuid(number, card), "index": card, "healthy": true})).collect();
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": format!("node-{number}"), "uid": format!("node-{number}"), "labels": labels,
            "annotations": {"gpupool.io/pool-cards": serde_json::to_string(&list).unwrap()},
        },
    })
}

fn placed(number: u32) -> Value {
    let (node, place) = (number / PODS_A_NODE, number % PODS_A_NODE);
    let request = if node % 10 == 1 { 100 } else { 80 };
    pod(&format!("pod-{number}"), request, Some((node, place)))
}

fn uuid(node: u32, card: u32) -> String {
    format!("GPU-{node:08x}-0000-0000-0000-{card:012x}")
}

fn pod(name: &str, request: u32, place: Option<(u32, u32)>) -> Value {
    let asked = json!({
        "alibabacloud.com/gpu-core.percentage": request.to_string(),
        "alibabacloud.com/gpu-memory.percentage": request.to_string(),
    });
    let (node, annotations) = match place {
        Some((node, card)) => (json!(format!("node-{node}")), json!({"gpupool.io/card": uuid(node, card)})),
        None => (Value::Null, json!({})),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "annotations": annotations,
            "labels": {"alibabacloud.com/gpu-share-policy": "static", "alibabacloud.com/compute-class": "gpu-hpn"},
        },
        "spec": {"nodeName": node, "containers": [
            {"name": "c", "image": "x", "resources": {"requests": asked, "limits": asked}},
        ]},
        "status": {"phase": "Running"},
    })
}
