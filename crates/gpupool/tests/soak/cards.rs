//! What must be true at every moment, read from the simulated cards by a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpupool_testbed::{Cluster, STATE};
use simgpu_device::{Machine, MachineSettings};

use crate::card_holders::{Holder, holders};

/// Names and limits in percent, by pod UID; pods that have gone stay, since their processes may outlive the object.
pub(crate) type Limits = Arc<Mutex<BTreeMap<String, (String, u32)>>>;

struct Shared {
    limits: Limits,
    /// UIDs of pods that have held a card since this was last forgotten.
    turns: Mutex<BTreeSet<String>>,
    violation: Mutex<Option<String>>,
    looks: AtomicU64,
    stop: AtomicBool,
}

/// The thread that watches.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(cluster: &Cluster, nodes: &[&str]) -> Self {
        let machines: Vec<Machine> = nodes
            .iter()
            .map(|node| {
                Machine::open(&MachineSettings::new(cluster.path_on(node, STATE).unwrap(), "2").unwrap())
                    .unwrap()
            })
            .collect();
        let shared = Arc::new(Shared {
            limits: Limits::default(),
            turns: Mutex::default(),
            violation: Mutex::default(),
            looks: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let watching = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !watching.stop.load(Ordering::Relaxed) {
                for (node, machine) in machines.iter().enumerate() {
                    if let Err(violation) = watching.look(machine) {
                        *watching.violation.lock().unwrap() = Some(format!("node {node}: {violation}"));
                        return;
                    }
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Where the pods' limits are told.
    pub(crate) fn limits(&self) -> Limits {
        Arc::clone(&self.shared.limits)
    }

    /// Fails if anything was seen that must not be; `told` is what a person would look at then.
    pub(crate) fn check(&self, told: impl Fn() -> String) {
        if let Some(violation) = self.shared.violation.lock().unwrap().clone() {
            panic!("{violation}\n{}", told());
        }
    }

    pub(crate) fn forget_turns(&self) {
        self.shared.turns.lock().unwrap().clear();
    }

    /// Who has held a card since then.
    pub(crate) fn turns(&self) -> BTreeSet<String> {
        self.shared.turns.lock().unwrap().clone()
    }

    /// Ends; gives how often the cards were looked at.
    pub(crate) fn finish(mut self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.check(String::new);
        self.shared.looks.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn look(&self, machine: &Machine) -> Result<(), String> {
        let holders = holders(machine);
        self.looks.fetch_add(1, Ordering::Relaxed);
        let mut pods: BTreeMap<(usize, String), u64> = BTreeMap::new();
        for holder in &holders {
            // A process that has gone meanwhile has no pod any more. An agent that starts measures a context on each card.
            let Some(uid) = pod_of(holder.pid).filter(|_| !is_gpupool(holder.pid)) else { continue };
            *pods.entry((holder.card, uid)).or_default() += holder.memory;
        }
        let limits = self.limits.lock().unwrap().clone();
        let mut promised: BTreeMap<usize, u32> = BTreeMap::new();
        for ((card, uid), memory) in &pods {
            // Pods are told of before they can run.
            let limit =
                limits.get(uid).ok_or_else(|| format!("a process of the unknown pod {uid} has a context"))?;
            let (name, limit) = limit;
            *promised.entry(*card).or_default() += limit;
            let total = machine.card(*card).map_or(0, |card| card.total_memory());
            let most = total * u64::from(*limit) / 100;
            if *memory > most {
                return Err(format!("{name} takes {memory} bytes of card {card}, its limit is {most}"));
            }
        }
        if let Some((card, sum)) = promised.iter().find(|(_, sum)| **sum > 100) {
            let processes: Vec<String> = holders.iter().map(describe).collect();
            let names = pods.keys().map(|(card, uid)| format!("{:?} on card {card}", limits.get(uid)));
            let names: Vec<String> = names.collect();
            return Err(format!("limits of {sum} % on card {card}: {names:?}\n{}", processes.join("\n")));
        }
        self.turns.lock().unwrap().extend(pods.into_keys().map(|(_, uid)| uid));
        Ok(())
    }
}

fn describe(holder: &Holder) -> String {
    let of = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", holder.pid)).unwrap_or_default();
    let status = of("status");
    let state = status.lines().filter(|line| line.starts_with("State:") || line.starts_with("NSpid:"));
    format!("{holder:?} {:?} {:?}", state.collect::<Vec<_>>(), pod_of(holder.pid))
}

fn is_gpupool(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "gpupool")
}

/// The UID of the pod that a process of this machine belongs to, by its control group.
fn pod_of(pid: u32) -> Option<String> {
    let groups = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup")).ok()?;
    groups.split(['/', '\n']).find_map(|part| part.strip_prefix("pod")).map(str::to_owned)
}
