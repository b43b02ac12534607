//! The pods that contend.

use fastrand::Rng;
use gpupool_testbed::{Kubectl, NAMESPACE, PUBLISHED_IMAGE};
use serde_json::Value;
use std::collections::BTreeSet;

use crate::cards::{Bounds, Limits};
use crate::{insist, manifest};

/// Takes the card for a short while, again and again; a round that was cut short is followed by the next.
const PROGRAM: &str = "while true; do gpu init retain alloc 100000000 sleep $((RANDOM % 1500 + 200)); \
                       sleep 0.$((RANDOM % 9)); done";

/// Agents among the pods of gpupool's own.
pub(crate) const AGENTS: &str = "app=gpupool-agent";

#[derive(Debug)]
struct Pod {
    name: String,
    uid: String,
}

/// The pods, as they were made.
pub(crate) struct Pods {
    kubectl: Kubectl,
    limits: Limits,
    alive: Vec<Pod>,
    made: usize,
    limit_of_next: u32,
}

impl Pods {
    pub(crate) fn new(kubectl: Kubectl, limits: Limits) -> Self {
        Self { kubectl, limits, alive: Vec::new(), made: 0, limit_of_next: 50 }
    }

    /// Makes a pod. Its limit is known to the watch before its program can run: the pod has a gate until then.
    pub(crate) fn add(&mut self, rng: &mut Rng) {
        let limit = [30, 50, 100][rng.usize(0..3)];
        self.limit_of_next = limit;
        self.add_with(limit);
    }

    fn add_with(&mut self, limit: u32) {
        self.made += 1;
        let name = format!("pod-{}", self.made);
        let pod = manifest::sharing_pod(10, limit, PUBLISHED_IMAGE, &["bash", "-c", PROGRAM]);
        let bounds = Bounds { name: name.clone(), limit, hostile: false };
        let uid = manifest::make(&self.kubectl, &self.limits, pod, bounds);
        self.alive.push(Pod { name, uid });
    }

    /// Deletes a pod and makes another.
    pub(crate) fn replace_one(&mut self, rng: &mut Rng) {
        let pod = self.alive.swap_remove(rng.usize(0..self.alive.len()));
        eprintln!("soak: deleting {}", pod.name);
        self.insist(&["delete", "pod", &pod.name, "--wait=false", "--ignore-not-found"], "");
        self.add(rng);
    }

    /// Pods that a kubelet gave up for good (it does, for those that start while a device plugin is away) are made anew,
    /// as a controller would.
    pub(crate) fn replace_finished(&mut self) {
        let list: Value = serde_json::from_str(&self.insist(&["get", "pods", "-o", "json"], "")).unwrap();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            let Some(place) = self.alive.iter().position(|pod| pod.name == name) else { continue };
            if item["status"]["phase"] == "Failed" {
                self.alive.swap_remove(place);
                self.insist(&["delete", "pod", name, "--wait=false", "--ignore-not-found"], "");
                self.add_with(self.limit_of_next);
            }
        }
    }

    /// Kills a pod of gpupool's own.
    pub(crate) fn kill_one_of(&self, selector: &str, rng: &mut Rng) {
        let names = self.own_pods(&["-l", selector]);
        if let Some(name) = names.get(rng.usize(0..names.len().max(1))) {
            self.kill_own(name);
        }
    }

    /// Kills the agent of a node.
    pub(crate) fn kill_agent_of(&self, node: &str) {
        let there = format!("spec.nodeName={node}");
        for name in self.own_pods(&["-l", AGENTS, "--field-selector", &there]) {
            self.kill_own(&name);
        }
    }

    fn own_pods(&self, which: &[&str]) -> Vec<String> {
        let get = ["get", "pods", "-n", NAMESPACE, "-o", "name"];
        let names = self.insist(&[&get, which].concat(), "");
        names.lines().map(str::to_owned).collect()
    }

    fn kill_own(&self, name: &str) {
        eprintln!("soak: killing {name}");
        let force = ["--grace-period=0", "--force", "--wait=false", "--ignore-not-found"];
        self.insist(&[["delete", "-n", NAMESPACE, name].as_slice(), &force].concat(), "");
    }

    /// The pods that are not among these.
    pub(crate) fn without(&self, turns: &BTreeSet<String>) -> Vec<&str> {
        self.alive.iter().filter(|pod| !turns.contains(&pod.uid)).map(|pod| pod.name.as_str()).collect()
    }

    /// What a person would look at.
    pub(crate) fn told(&self) -> String {
        let list = |arguments: &[&str]| {
            let output = self.kubectl.output(arguments, "").unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let agents = list(&["get", "pods", "-n", NAMESPACE, "-l", AGENTS, "-o", "name"]);
        let status = |agent: &str| {
            let name = agent.trim_start_matches("pod/");
            list(&[
                "get",
                "--raw",
                &format!("/api/v1/namespaces/gpupool-system/pods/{name}:9400/proxy/metrics"),
            ])
        };
        let statuses: Vec<String> = agents.lines().map(status).collect();
        [
            statuses.join("\n"),
            list(&["get", "pods", "-A", "-o", "wide"]),
            list(&["get", "events", "-A", "--sort-by=.lastTimestamp"]),
            list(&["logs", "-n", "gpupool-system", "-l", "app=gpupool-agent", "--tail=60", "--prefix"]),
            list(&[
                "logs",
                "-n",
                "gpupool-system",
                "-l",
                "app=gpupool-agent",
                "--tail=60",
                "--prefix",
                "--previous",
            ]),
            list(&["logs", "-n", "gpupool-system", "-l", "app=gpupool-control", "--tail=30", "--prefix"]),
            list(&["logs", "-l", "alibabacloud.com/gpu-share-policy", "--tail=2", "--prefix"]),
        ]
        .join("\n")
    }

    fn insist(&self, arguments: &[&str], input: &str) -> String {
        insist(&self.kubectl, arguments, input)
    }
}
