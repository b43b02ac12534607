//! Somebody who may create pods, and somebody who reaches control's port: what they ask for is refused, or changes
//! nothing. Each is tried again and again from a thread of its own, through the API server's proxy.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;
use gpupool_testbed::{Kubectl, NAMESPACE, PUBLISHED_IMAGE};
use serde_json::{Value, json};

use crate::manifest::sharing_pod;

/// A pod that no scheduler binds.
const BAIT: &str = "bait";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    /// Sixteen megabytes of zeros to admission.
    Zeros,
    /// A pod bound by the extender, past the scheduler.
    Bind,
    /// A pod that says it is another.
    Mirror,
    /// More than was admitted, written into a pod that exists.
    Raise,
    /// Hundreds of requests for metrics that are never finished.
    Unfinished,
}

const DEEDS: [Deed; 5] = [Deed::Zeros, Deed::Bind, Deed::Mirror, Deed::Raise, Deed::Unfinished];

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// How often each was tried.
    tried: Mutex<BTreeMap<Deed, u64>>,
    violation: Mutex<Option<String>>,
}

/// The thread that asks.
pub(crate) struct Strangers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Strangers {
    pub(crate) fn start(kubectl: Kubectl, seed: u64) -> Self {
        crate::insist(&kubectl, &["apply", "-f", "-"], &bait().to_string());
        let shared = Arc::new(Shared::default());
        let asking = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut rng = Rng::with_seed(seed);
            while !asking.stop.load(Ordering::Relaxed) {
                let deed = DEEDS[rng.usize(0..DEEDS.len())];
                if let Err(violation) = attempt(&kubectl, deed) {
                    asking.violation.lock().unwrap().get_or_insert(violation);
                }
                *asking.tried.lock().unwrap().entry(deed).or_default() += 1;
                thread::sleep(Duration::from_millis(rng.u64(500..4000)));
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Fails if anything was let through.
    pub(crate) fn check(&self) {
        if let Some(violation) = &*self.shared.violation.lock().unwrap() {
            panic!("{violation}");
        }
    }

    /// Ends; says how often each was tried.
    pub(crate) fn finish(mut self) -> String {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.check();
        let tried = self.shared.tried.lock().unwrap();
        let counts: Vec<String> = tried.iter().map(|(deed, count)| format!("{deed:?} {count}")).collect();
        counts.join(", ").to_lowercase()
    }
}

/// Tries one; an error says what was let through. What the API server or control do not answer was not let through.
fn attempt(kubectl: &Kubectl, deed: Deed) -> Result<(), String> {
    match deed {
        Deed::Zeros => {
            let zeros = format!("[{}0]", "0,".repeat(8 << 20));
            let to = service("gpupool-control", "mutate/pods");
            refused(kubectl, &["create", "--raw", &to, "-f", "-"], &zeros)
        }
        Deed::Bind => {
            let bait = ["get", "pod", BAIT, "-o", "jsonpath={.metadata.uid}"];
            let uid = kubectl.output(bait, "").unwrap().stdout;
            let binding = json!({
                "PodName": BAIT, "PodNamespace": "default", "PodUID": String::from_utf8_lossy(&uid), "Node": "node-1",
            });
            let to = service("gpupool-extender", "extender/bind");
            refused(kubectl, &["create", "--raw", &to, "-f", "-"], &binding.to_string())
        }
        Deed::Mirror => {
            refused(kubectl, &["create", "-f", "-"], &mirror_of(&some_pod(kubectl).uid).to_string())
        }
        Deed::Raise => {
            // Refused by admission while that answers, and without effect where it does not: the cards show it.
            let raised = json!({"metadata": {"annotations": {
                "gpupool.io/gpu-core.limit": "100", "gpupool.io/gpu-memory.limit": "100",
            }}});
            let pod = some_pod(kubectl).name;
            drop(kubectl.output(["patch", "pod", &pod, "--type=merge", "-p", &raised.to_string()], ""));
            Ok(())
        }
        Deed::Unfinished => {
            let addresses = ["get", "pods", "-n", NAMESPACE, "-o", "jsonpath={.items[*].status.podIP}"];
            let addresses = kubectl.output(addresses, "").unwrap().stdout;
            let addresses = String::from_utf8_lossy(&addresses).into_owned();
            let begun: Vec<TcpStream> = addresses.split_whitespace().flat_map(begin_requests).collect();
            thread::sleep(Duration::from_secs(3));
            drop(begun);
            Ok(())
        }
    }
}

/// Requests to every port that serves metrics there, none of which is ever finished.
fn begin_requests(address: &str) -> Vec<TcpStream> {
    let Ok(address) = address.parse::<IpAddr>() else { return Vec::new() };
    let ports = [9400, 9401].into_iter().flat_map(|port| std::iter::repeat_n(port, 200));
    let begin = |port| {
        let mut stream =
            TcpStream::connect_timeout(&(address, port).into(), Duration::from_millis(200)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a").ok().map(|()| stream)
    };
    ports.map_while(begin).collect()
}

fn refused(kubectl: &Kubectl, arguments: &[&str], input: &str) -> Result<(), String> {
    let output = kubectl.output(arguments, input).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // The extender says what went wrong in its answer.
    let error = serde_json::from_str::<Value>(&said)
        .is_ok_and(|it| it["Error"].as_str().is_some_and(|it| !it.is_empty()));
    if output.status.success() && !error {
        return Err(format!("`kubectl {}` succeeded: {said}", arguments.join(" ")));
    }
    Ok(())
}

/// A service of control, as the API server's proxy has it.
fn service(name: &str, path: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/services/https:{name}:443/proxy/{path}")
}

struct Named {
    name: String,
    uid: String,
}

/// Some pod that shares; nobody where the API server is away.
fn some_pod(kubectl: &Kubectl) -> Named {
    let arguments = ["get", "pods", "-l", "alibabacloud.com/gpu-share-policy", "-o", "json"];
    let list = kubectl.output(arguments, "").unwrap().stdout;
    let list: Value = serde_json::from_slice(&list).unwrap_or_default();
    let pods = list["items"].as_array().cloned().unwrap_or_default();
    let pod = pods.get(fastrand::usize(..pods.len().max(1))).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("nobody").to_owned();
    Named { name: text(&pod["metadata"]["name"]), uid: text(&pod["metadata"]["uid"]) }
}

/// A pod that says that it is the mirror of another.
fn mirror_of(uid: &str) -> Value {
    let mut pod = sharing_pod(100, 100, PUBLISHED_IMAGE, &["sleep", "1000"]);
    pod["metadata"]["generateName"] = json!("mirror-");
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": uid});
    pod["spec"]["nodeName"] = json!("node-1");
    pod
}

fn bait() -> Value {
    let mut pod = sharing_pod(10, 10, PUBLISHED_IMAGE, &["sleep", "1000"]);
    pod["metadata"]["name"] = json!(BAIT);
    pod["spec"]["schedulerName"] = json!("nobody");
    pod
}
