//! A cluster of one node, and the agent on it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::Status;
use gpupool_testbed::{CDI_DEVICE, Cluster, Image, KubeletNode, STATE, SimulatedCards};
use serde_json::{Value, json};
use simgpu_device::{Machine, MachineSettings};

/// How long anything may take before a test gives up. Generous: nothing here measures speed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// The node.
pub(crate) const NODE: &str = "node-1";

/// The image of the page, with a GPU program in it.
const IMAGE: &str = "registry-cn-wulanchabu-vpc.ack.aliyuncs.com/acs/stress:v1.0.4";

const METRICS_PORT: u16 = 9400;

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    agent: Child,
    dist: PathBuf,
    /// The node's.
    address: Ipv4Addr,
}

impl Scene {
    /// A node that shares two cards by this policy.
    pub(crate) fn start(policy: &str) -> Self {
        let dist = gpupool_dist::given_or_built().unwrap();
        let program = dist.join("bin/gpupool");
        let image = Image::new(IMAGE).shell().unwrap().program("usr/bin/gpupool", &program).unwrap();
        let cluster = Cluster::builder()
            .image(image)
            .kubelet_node(KubeletNode::new(NODE).cards(SimulatedCards::new(dist.join("simgpu"), "2")))
            .start()
            .unwrap();
        cluster.kubectl(["label", "node", NODE, &format!("gpupool.io/share-policy={policy}")]).unwrap();
        let agent = agent(&cluster, &dist);
        let address = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        let address = cluster.kubectl(["get", "node", NODE, "-o", address]).unwrap().parse().unwrap();
        let scene = Self { cluster, agent, dist, address };
        scene.until("200 percent of each", || scene.allocatable() == ["200", "200"]);
        scene
    }

    /// Ends everything, and sees that nothing had ended by itself.
    pub(crate) fn stop(mut self) {
        self.kill_agent();
        self.cluster.stop().unwrap();
    }

    pub(crate) fn kill_agent(&mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }

    pub(crate) fn start_agent(&mut self) {
        self.launch_agent();
        self.until("the agent to answer", || self.try_status().is_some());
    }

    /// Cuts the node's power and lets it start again, without kubelet and agent.
    pub(crate) fn reboot(&mut self) {
        // The node's first process does not end before all others there have been waited for, and this one is ours.
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
        self.cluster.reboot(NODE).unwrap();
    }

    pub(crate) fn start_kubelet(&mut self) {
        self.cluster.start_again(&format!("kubelet@{NODE}")).unwrap();
    }

    /// Starts the agent, whatever becomes of it.
    pub(crate) fn launch_agent(&mut self) {
        self.agent = agent(&self.cluster, &self.dist);
    }

    /// How often a resource was registered with the kubelet so far.
    pub(crate) fn registrations(&self) -> usize {
        self.log().matches("percentage is registered with the kubelet").count()
    }

    /// What an Event of a pod with this reason says, once there is one.
    pub(crate) fn told(&self, pod: &str, reason: &str) -> String {
        let selector = format!("involvedObject.name={pod},reason={reason}");
        let list = || -> Value {
            let events = ["get", "events", "--field-selector", &selector, "-o", "json"];
            serde_json::from_str(&self.cluster.kubectl(events).unwrap()).unwrap()
        };
        self.until(&format!("{pod} to be told {reason}"), || !list()["items"].as_array().unwrap().is_empty());
        let events = list()["items"].as_array().unwrap().clone();
        assert_eq!(events.len(), 1, "{events:#?}");
        events[0]["message"].as_str().unwrap().to_owned()
    }

    /// The agent's journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.cluster.path_on(NODE, "/var/lib/gpupool/state/agent.journal").unwrap()
    }

    /// What the agent has said so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log(&self.cluster)).unwrap_or_default()
    }

    pub(crate) fn object(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.cluster.kubectl(["get", kind, name, "-o", "json"]).unwrap()).unwrap()
    }

    /// The node's simulated cards, to be lost and found.
    pub(crate) fn cards(&self) -> Machine {
        let state = self.cluster.path_on(NODE, STATE).unwrap();
        Machine::open(&MachineSettings::new(state, "2").unwrap()).unwrap()
    }

    /// What of the two percentages can be given to pods.
    pub(crate) fn allocatable(&self) -> [String; 2] {
        let node = self.object("node", NODE);
        ["core", "memory"].map(|dimension| {
            let name = format!("alibabacloud.com/gpu-{dimension}.percentage");
            node["status"]["allocatable"][name].as_str().unwrap_or("none").to_owned()
        })
    }

    /// How many whole cards can be given to pods.
    pub(crate) fn whole_cards(&self) -> String {
        let node = self.object("node", NODE);
        node["status"]["allocatable"]["nvidia.com/gpu"].as_str().unwrap_or("none").to_owned()
    }

    /// Creates a pod on the node, as the admission webhook leaves it: limits equal to requests, the real limit in
    /// the annotations.
    pub(crate) fn create(&self, name: &str, policy: &str, request: u32, limit: u32) {
        self.create_with(&["sleep", "1000h"], name, policy, request, limit);
    }

    /// The same with a container that runs this.
    pub(crate) fn create_with(&self, command: &[&str], name: &str, policy: &str, request: u32, limit: u32) {
        self.cluster.apply(&manifest(command, name, policy, request, limit).to_string()).unwrap();
    }

    /// Creates a pod that asks for a whole card.
    pub(crate) fn create_exclusive(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                "name": "demo", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["sleep"], "args": ["1000h"],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }]},
        });
        self.cluster.apply(&pod.to_string()).unwrap();
    }

    pub(crate) fn wait_for_running(&self, pod: &str) {
        self.until(&format!("pod {pod} to run"), || {
            self.object("pod", pod)["status"]["containerStatuses"][0]["state"]["running"].is_object()
        });
    }

    /// Runs a shell's line in the pod's container; gives what it printed.
    pub(crate) fn shell(&self, pod: &str, line: &str) -> String {
        self.cluster.kubectl(["exec", pod, "--", "bash", "-c", line]).unwrap()
    }

    /// Starts a GPU program in the pod, which uses its card until it is told to end.
    pub(crate) fn start_program(&self, pod: &str) {
        let until = "until [ -e /tmp/stop ]; do sleep 0.1; done";
        self.shell(
            pod,
            &format!(
                "rm -f /tmp/stop; ({until}) 2>&- | gpupool demo-program >/tmp/said 2>&1 </dev/stdin & disown"
            ),
        );
    }

    pub(crate) fn stop_program(&self, pod: &str) {
        self.shell(pod, "touch /tmp/stop");
    }

    /// One of the pod's figures on the metrics page.
    pub(crate) fn figure(&self, name: &str, pod: &str) -> Option<u64> {
        let page = self.metrics();
        let label = format!("pod=\"{pod}\",namespace=\"default\"");
        let line =
            page.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(&label))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn metrics(&self) -> String {
        let Ok(mut stream) = TcpStream::connect((self.address, METRICS_PORT)) else { return String::new() };
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// How things stand, as the agent tells somebody on the node.
    pub(crate) fn status(&self) -> Status {
        self.try_status().expect("the agent to answer")
    }

    pub(crate) fn try_status(&self) -> Option<Status> {
        let mut command = Command::new(self.dist.join("bin/gpupool"));
        command.args(["status", "--output", "json"]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let output = self.cluster.spawn_on(NODE, command).unwrap().wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// A condition of a pod.
    pub(crate) fn condition(&self, pod: &str, type_: &str) -> Option<Value> {
        let object = self.object("pod", pod);
        let conditions = object["status"]["conditions"].as_array()?;
        conditions.iter().find(|condition| condition["type"] == type_).cloned()
    }

    /// Waits until something holds of which no API server is asked.
    pub(crate) fn until_without_cluster(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain for {what}\nagent:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            if Instant::now() > deadline {
                let pods = self.cluster.kubectl(["describe", "pods"]).unwrap_or_default();
                panic!("waited in vain for {what}\nagent:\n{}\n{pods}", self.log());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A pod as the admission webhook leaves it.
pub(crate) fn manifest(command: &[&str], name: &str, policy: &str, request: u32, limit: u32) -> Value {
    let resources = json!({
        "cpu": "1", "memory": "1Gi",
        "alibabacloud.com/gpu-core.percentage": request,
        "alibabacloud.com/gpu-memory.percentage": request,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "alibabacloud.com/gpu-share-policy": policy, "alibabacloud.com/compute-class": "gpu-hpn",
            },
            "annotations": {
                "gpupool.io/gpu-core.limit": limit.to_string(),
                "gpupool.io/gpu-memory.limit": limit.to_string(),
            },
        },
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "demo", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": command,
            "resources": {"requests": resources, "limits": resources},
        }]},
    })
}

fn log(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("agent.log")
}

/// Starts the agent among the node's processes, as its `DaemonSet` would.
fn agent(cluster: &Cluster, dist: &std::path::Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(log(cluster)).unwrap();
    let mut command = Command::new(dist.join("bin/gpupool"));
    command
        .args(["agent", "--kubernetes", "--node-name", NODE, "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .args(["--cdi-dir", "/run/cdi", "--driver-cdi", CDI_DEVICE])
        .args([
            "--metrics-address",
            &format!("0.0.0.0:{METRICS_PORT}"),
            "--whole-cards",
            "--duration-unit",
            "1s",
            "--grace",
            "2",
        ])
        .env("LD_LIBRARY_PATH", "/var/lib/simgpu/lib")
        .env("SIMGPU_STATE", STATE)
        .stdin(Stdio::null())
        .stderr(log);
    cluster.spawn_on(NODE, command).unwrap()
}
