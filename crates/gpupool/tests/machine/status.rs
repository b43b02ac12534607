//! `gpupool status` and the metrics page say what is, in the documented form.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};

use serde_json::Value;

use crate::agent_node::{AgentNode, wait_for};

/// Two that run, one that waits, one that hibernates.
fn busy() -> (AgentNode, Vec<std::process::Child>) {
    let node = AgentNode::start(&["--metrics-address", "0", "--node-name", "a-node", "--idle-release", "1h"]);
    let mut pods = Vec::new();
    for (count, name) in ["A", "B", "C"].into_iter().enumerate() {
        pods.push(node.program(name, "1:100"));
        node.wait_until(name, |status| status.leases.len() + status.queue.len() == count + 1);
    }
    let mut quiet = node.gpupool("run");
    quiet.args(["--core", "5", "--memory", "5", "--name", "quiet", "--priority", "-3", "--", "cat"]);
    pods.push(quiet.stdin(std::process::Stdio::piped()).spawn().unwrap());
    node.wait_until("the quiet one", |status| status.pods.len() == 4);
    (node, pods)
}

fn end(pods: Vec<std::process::Child>) {
    let mut pods = pods;
    for pod in &mut pods {
        drop(pod.stdin.take());
    }
    for mut pod in pods {
        assert!(pod.wait().unwrap().success());
    }
}

#[test]
fn the_json_is_as_documented() {
    let (node, pods) = busy();
    let output = node.gpupool("status").args(["--output", "json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["version"], 1);
    assert_eq!(status["queue"][0]["pod"], "C");
    assert_eq!(status["queue"][0]["position"], 1);
    assert_eq!(status["leases"][0]["pod"], "A");
    assert!(status["leases"][0]["ageSeconds"].as_f64().unwrap() > 0.0);
    assert!(status["leases"][0]["memoryUsedBytes"].as_u64().unwrap() >= 1 << 30);
    assert_eq!(status["pods"][3]["state"], "hibernating");
    let mut found = BTreeSet::new();
    paths("", &status, &mut found);
    let documented = documented();
    let unknown: Vec<_> = found.difference(&documented).collect();
    assert!(unknown.is_empty(), "not in docs/status-schema.md: {unknown:?}");
    // What only shows at times: of a lease that is being ended, of a process that nothing holds, of one in the way.
    let at_times = [
        "leases[].ending.",
        "pods[].termination.",
        "pods[].hold.notHeld[].",
        "strangers[].",
        "cards[].heldBack[].",
    ];
    let missing: Vec<_> = documented
        .difference(&found)
        .filter(|path| !at_times.iter().any(|start| path.starts_with(start)))
        .collect();
    assert!(missing.is_empty(), "documented and not printed: {missing:?}");
    end(pods);
}

/// The paths of all values, as the document writes them.
fn paths(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                found.insert(path.clone());
                paths(&path, value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(&format!("{at}[]"), item, found)),
        _ => {}
    }
}

/// The first column of the document's table.
fn documented() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status-schema.md");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn the_table_has_a_line_for_every_card_and_pod() {
    let (node, pods) = busy();
    let output = node.gpupool("status").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let line = |first: &str| {
        words.iter().find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("{first}\n{text}"))
    };
    assert_eq!(line("0").last(), Some(&"A"));
    assert_eq!(line("1").last(), Some(&"B"));
    assert_eq!(line("A")[1], "running");
    assert_eq!(line("C")[1..5], ["ready,", "1st", "in", "line"]);
    assert_eq!(line("quiet")[1], "hibernating");
    end(pods);
}

#[test]
fn the_metrics_page_has_the_published_families() {
    let (node, pods) = busy();
    let log = node.log();
    let address = log.split("http://").nth(1).unwrap().split("/metrics").next().unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let page = get(address);
    for line in [
        r#"DCGM_FI_POOLING_STATUS{NodeName="a-node",pod="A",namespace="default"} 2"#,
        r#"DCGM_FI_POOLING_STATUS{NodeName="a-node",pod="C",namespace="default"} 1"#,
        r#"DCGM_FI_POOLING_STATUS{NodeName="a-node",pod="quiet",namespace="default"} 0"#,
        r#"DCGM_FI_POOLING_POSITION{NodeName="a-node",pod="C",namespace="default"} 1"#,
        r#"gpushare_queue_length{node="a-node"} 1"#,
        r#"gpushare_admissions_total{node="a-node",policy="share-pool"} 2"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    end(pods);
    let page = wait_for("the pods to leave the page", || {
        Some(get(address)).filter(|page| !page.contains("DCGM_FI_POOLING_STATUS{"))
    });
    assert!(page.contains(r#"gpushare_admissions_total{node="a-node",policy="share-pool"} 3"#), "{page}");
}

fn get(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.0 200"), "{page}");
    page
}
