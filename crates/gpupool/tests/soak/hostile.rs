//! A hostile pod on every node: `hostile.c` does one deed after the other, chosen at random.
//!
//! Its pods are honest to Kubernetes, so what they may hold is known as for every other; what their program does is not
//! bound by that. The counts of what was done are read from their own logs.

use std::collections::BTreeMap;

use fastrand::Rng;
use gpupool_testbed::Kubectl;
use serde_json::json;

use crate::cards::{Bounds, Limits};
use crate::manifest;

/// The image with the program.
pub(crate) const IMAGE: &str = "gpupool.test/hostile:1";

/// Everything that the program can do.
const DEEDS: &[&str] =
    &["linger", "many", "fifo", "flood", "crowd", "give-back", "first-thread", "past", "processes"];

/// Bytes that a deed takes of its card: far more than others leave free, and below the limit of 50 % of 80 GiB.
const BYTES: u64 = 30 << 30;

/// The hostile pods.
pub(crate) struct Hostile {
    kubectl: Kubectl,
    limits: Limits,
    /// Their names.
    alive: Vec<String>,
    made: usize,
    deeds: BTreeMap<String, u64>,
}

impl Hostile {
    pub(crate) fn new(kubectl: Kubectl, limits: Limits) -> Self {
        Self { kubectl, limits, alive: Vec::new(), made: 0, deeds: BTreeMap::new() }
    }

    /// Makes one on each of these nodes, in place of those that are there.
    pub(crate) fn renew(&mut self, nodes: &[&str], rng: &mut Rng) {
        self.end();
        for node in nodes {
            self.add(node, rng);
        }
    }

    /// Ends them all and counts what they have done.
    pub(crate) fn end(&mut self) {
        for name in std::mem::take(&mut self.alive) {
            let log = self.kubectl.output(["logs", &name, "--tail=-1"], "").unwrap();
            for line in String::from_utf8_lossy(&log.stdout).lines() {
                if let Some(deed) = line.strip_prefix("deed ") {
                    *self.deeds.entry(deed.to_owned()).or_default() += 1;
                }
            }
            let delete = ["delete", "pod", &name, "--grace-period=1", "--wait=false", "--ignore-not-found"];
            // With the API server away it is deleted with the namespace.
            let _ = self.kubectl.output(delete, "");
        }
    }

    /// What was done, and how often.
    pub(crate) fn told(&self) -> String {
        let counts: Vec<String> = self.deeds.iter().map(|(deed, count)| format!("{deed} {count}")).collect();
        counts.join(", ")
    }

    fn add(&mut self, node: &str, rng: &mut Rng) {
        self.made += 1;
        let name = format!("hostile-{}", self.made);
        let limit = 50;
        let program = format!(
            "RANDOM={}; set -- {}; while true; do deed=${{@:$((RANDOM % $# + 1)):1}}; echo deed $deed; \
             WAIT=$((RANDOM % 5000 + 1000)) hostile $deed {BYTES}; sleep 0.$((RANDOM % 9 + 1)); done",
            rng.u16(1..),
            DEEDS.join(" ")
        );
        let mut pod = manifest::sharing_pod(5, limit, IMAGE, &["bash", "-c", &program]);
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        let bounds = Bounds { name: name.clone(), limit, hostile: true };
        manifest::make(&self.kubectl, &self.limits, pod, bounds);
        self.alive.push(name);
    }
}
