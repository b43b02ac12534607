//! The cluster that the tests take in turns, and what they ask of it.

use std::process::Output;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gpupool_testbed::{Cluster, Kubectl, KubeletNode, Machine, NAMESPACE, PUBLISHED_IMAGE, Product};
use serde_json::{Value, json};

/// Nothing here takes more than seconds; a machine may be a hundred times slower.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);
/// The published node.
pub(crate) const PUBLISHED: &str = "cn-wulanchabu-c.cr-xxx";
/// The node with two cards.
pub(crate) const SMALL: &str = "node-2";
pub(crate) const POLICY: &str = "alibabacloud.com/gpu-share-policy";
pub(crate) const QOS: &str = "alibabacloud.com/gpu-share-qos-config";

static SHARED: Mutex<Weak<Mutex<Cluster>>> = Mutex::new(Weak::new());

/// The cluster, for tests that hold it one after the other; it ends with the last of them.
pub(crate) fn shared() -> Arc<Mutex<Cluster>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Mutex::new(start()));
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

fn start() -> Cluster {
    let product = product();
    let published = KubeletNode::new(PUBLISHED)
        .machine(Machine::PUBLISHED)
        .label("alibabacloud.com/node-type", "reserved")
        .cards(product.cards("16"));
    let mut cluster = Cluster::builder()
        .image(product.image().unwrap())
        .image(product.published_image().unwrap())
        .kubelet_node(published)
        .kubelet_node(KubeletNode::new(SMALL).cards(product.cards("2")))
        .start()
        .unwrap_or_else(|failure| panic!("{failure}"));
    install(&mut cluster);
    cluster
}

/// Installs gpupool from its chart, or again what is missing of it.
pub(crate) fn install(cluster: &mut Cluster) {
    // Minutes pass as seconds here, and a pod that has to go is given three of them.
    let values = json!({"agent": {"durationUnit": "1s", "extraArgs": ["--grace=3s"]}});
    if let Err(failure) = product().install(cluster, &values) {
        panic!("{failure}\n{}", told(&cluster.kubectl_handle()));
    }
}

fn product() -> Product {
    let dist = gpupool_dist::given_or_built().unwrap();
    Product::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), dist)
}

/// One test's turn.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: MutexGuard<'a, Cluster>,
    pub(crate) kubectl: Kubectl,
}

impl<'a> Scene<'a> {
    /// Takes the cluster and puts it back to how it was: no pods of tests, nothing shared.
    pub(crate) fn on(shared: &'a Mutex<Cluster>) -> Self {
        let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let kubectl = cluster.kubectl_handle();
        let scene = Self { cluster, kubectl };
        scene.run(&["delete", "pods", "--all", "--grace-period=1", "--timeout=240s"]);
        for node in [PUBLISHED, SMALL] {
            scene.run(&["label", "node", node, &format!("{POLICY}-")]);
            scene.run(&["annotate", "node", node, &format!("{QOS}-")]);
            scene.until(&format!("{node} shares nothing"), || scene.policy_in_force(node).is_none());
        }
        scene
    }

    /// Runs kubectl, which must succeed; gives what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        self.kubectl.run(arguments, "").unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Runs kubectl with `input`, whatever comes of it.
    pub(crate) fn try_run(&self, arguments: &[&str], input: &str) -> Output {
        self.kubectl.output(arguments, input).unwrap()
    }

    pub(crate) fn apply(&self, manifest: &str) {
        self.cluster.apply(manifest).unwrap_or_else(|failure| panic!("{failure}"));
    }

    pub(crate) fn object(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.run(&["get", kind, name, "-o", "json"])).unwrap()
    }

    pub(crate) fn policy_in_force(&self, node: &str) -> Option<String> {
        self.object("node", node)["metadata"]["labels"]["gpupool.io/share-policy"].as_str().map(str::to_owned)
    }

    /// Labels a node, and waits until that is in force and its percentages are advertised.
    pub(crate) fn share(&self, node: &str, policy: &str) {
        self.run(&["label", "--overwrite", "node", node, &format!("{POLICY}={policy}")]);
        // Of a pod that fits by the one percentage and not yet by the other, the scheduler may think again only after
        // minutes.
        let ready = || {
            let allocatable = &self.object("node", node)["status"]["allocatable"];
            let offered = |percentage: &str| {
                let amount = &allocatable[format!("alibabacloud.com/gpu-{percentage}.percentage")];
                amount.as_str().is_some_and(|amount| amount != "0")
            };
            self.policy_in_force(node).as_deref() == Some(policy) && offered("core") && offered("memory")
        };
        self.until(&format!("{node} shares as {policy}"), ready);
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() <= PATIENCE, "{what}: this did not come; {}", told(&self.kubectl));
            thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn wait_for_running(&self, pod: &str) {
        self.until(&format!("pod {pod} runs"), || self.object("pod", pod)["status"]["phase"] == "Running");
    }

    /// The figures of the agent on a node.
    pub(crate) fn metrics(&self, node: &str) -> String {
        let selector =
            ["--selector", "app=gpupool-agent", "--field-selector", &format!("spec.nodeName={node}")];
        let arguments =
            [["get", "pods", "--namespace", NAMESPACE].as_slice(), &selector, &["-o", "name"]].concat();
        let name = self.run(&arguments);
        let name = name.trim().trim_start_matches("pod/");
        self.run(&["get", "--raw", &format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:9400/proxy/metrics")])
    }

    /// One figure of a pod, by the published labels.
    pub(crate) fn figure(&self, node: &str, name: &str, pod: &str) -> Option<String> {
        let line = format!("{name}{{NodeName=\"{node}\",pod=\"{pod}\",namespace=\"default\"}} ");
        self.metrics(node).lines().find_map(|text| text.strip_prefix(&line).map(str::to_owned))
    }
}

/// A condition of a node or pod.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// What a person would look at.
fn told(kubectl: &Kubectl) -> String {
    let list = |arguments: &[&str]| {
        let output = kubectl.output(arguments, "").unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let logs = |app: &str| {
        let selector = format!("app={app}");
        list(&["logs", "--namespace", NAMESPACE, "--selector", &selector, "--tail=40", "--prefix"])
    };
    [
        list(&["get", "pods", "--all-namespaces", "-o", "wide"]),
        list(&["get", "events", "--all-namespaces"]),
        list(&["describe", "nodes"]),
        list(&["describe", "pods"]),
        logs("gpupool-control"),
        logs("gpupool-agent"),
    ]
    .join("\n")
}

/// A pod whose main process waits for the file /tmp/go, and then holds a card with this much memory.
pub(crate) fn waiting_pod(name: &str, policy: &str, request: u32, limit: u32, mib: u32) -> String {
    let bytes = u64::from(mib) << 20;
    let script = format!(
        "while true; do until [ -e /tmp/go ]; do sleep 0.1; done; gpu init retain alloc {bytes} uuid sleep 3600000; echo ended $?; rm -f /tmp/go; done"
    );
    let percentages = |value: u32| {
        json!({
            "alibabacloud.com/gpu-core.percentage": value.to_string(),
            "alibabacloud.com/gpu-memory.percentage": value.to_string(),
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {POLICY: policy, "alibabacloud.com/compute-class": "gpu-hpn"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": PUBLISHED_IMAGE, "command": ["bash", "-c", script],
                "resources": {"requests": percentages(request), "limits": percentages(limit)},
            }],
        },
    })
    .to_string()
}
