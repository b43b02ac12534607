//! What must be true at every moment, read from the simulated cards by a thread of its own.
//!
//! Of pods that keep to what they are told: their limits on a card sum to at most 100 %, and none takes more memory than
//! its limit. Of all: nobody is let in beside somebody who has held the card for long, whoever that is, unless there is
//! room for both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpupool_testbed::{Cluster, STATE};
use simgpu_device::{Machine, MachineSettings};

use crate::card_holders::{Holder, holders};

/// What each pod may hold, by UID; pods that have gone stay, since their processes may outlive the object.
pub(crate) type Limits = Arc<Mutex<BTreeMap<String, Bounds>>>;

/// How long somebody must have held a card for everybody to know: the agent looks at its cards once a second, and an
/// agent that was killed is back within seconds.
const KNOWN_AFTER: Duration = Duration::from_secs(10);

/// What a pod may hold.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) name: String,
    /// Percent of a card.
    pub(crate) limit: u32,
    /// Whether its program keeps to that only when it is made to.
    pub(crate) hostile: bool,
}

/// A pod on a card of a node.
type Place = (usize, usize, String);

struct Shared {
    limits: Limits,
    /// UIDs of pods that have held a card since this was last forgotten.
    turns: Mutex<BTreeSet<String>>,
    /// Since when each pod has been seen without a gap on the card where it is.
    since: Mutex<BTreeMap<Place, Instant>>,
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
            since: Mutex::default(),
            violation: Mutex::default(),
            looks: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let watching = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !watching.stop.load(Ordering::Relaxed) {
                for (node, machine) in machines.iter().enumerate() {
                    if let Err(violation) = watching.look(node, machine) {
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
    fn look(&self, node: usize, machine: &Machine) -> Result<(), String> {
        let holders = holders(machine);
        self.looks.fetch_add(1, Ordering::Relaxed);
        let mut memory: BTreeMap<(usize, String), u64> = BTreeMap::new();
        for holder in &holders {
            // A process that has gone meanwhile has no pod any more. An agent that starts measures a context on each card.
            let Some(uid) = pod_of(holder.pid).filter(|_| !is_gpupool(holder.pid)) else { continue };
            *memory.entry((holder.card, uid)).or_default() += holder.memory;
        }
        let limits = self.limits.lock().unwrap().clone();
        let mut here = Vec::new();
        for ((card, uid), bytes) in &memory {
            // Pods are told of before they can run.
            let bounds =
                limits.get(uid).ok_or_else(|| format!("a process of the unknown pod {uid} has a context"))?;
            let total = machine.card(*card).map_or(0, |card| card.total_memory());
            let most = total * u64::from(bounds.limit) / 100;
            if *bytes > most && !bounds.hostile {
                let Bounds { name, .. } = bounds;
                return Err(format!("{name} takes {bytes} bytes of card {card}, its limit is {most}"));
            }
            here.push((*card, uid.clone(), bounds));
        }
        let told = |failure: String| {
            let processes: Vec<String> = holders.iter().map(describe).collect();
            format!("{failure}\n{here:?}\n{}", processes.join("\n"))
        };
        limits_fit(&here).map_err(told)?;
        self.nobody_was_let_in_beside(node, &here).map_err(told)?;
        self.turns.lock().unwrap().extend(memory.into_keys().map(|(_, uid)| uid));
        Ok(())
    }

    /// A hostile program takes what it wants past the library, also beside others. But when everybody can know that it
    /// is there, nobody is let in for whom there is no room beside it.
    fn nobody_was_let_in_beside(&self, node: usize, here: &[(usize, String, &Bounds)]) -> Result<(), String> {
        let now = Instant::now();
        let mut since = self.since.lock().unwrap();
        let is_here = |place: &Place| here.iter().any(|(card, uid, _)| (*card, uid) == (place.1, &place.2));
        since.retain(|place, _| place.0 != node || is_here(place));
        let mut arrived = Vec::new();
        for (card, uid, bounds) in here {
            since.entry((node, *card, uid.clone())).or_insert_with(|| {
                arrived.push((*card, *bounds));
                now
            });
        }
        for (card, newcomer) in arrived.into_iter().filter(|(_, bounds)| !bounds.hostile) {
            let known = |uid: &String| {
                since.get(&(node, card, uid.clone())).is_some_and(|it| now - *it > KNOWN_AFTER)
            };
            let others = here.iter().filter(|(at, uid, _)| *at == card && known(uid));
            let taken: u32 = others.map(|(_, _, bounds)| bounds.limit).sum();
            if taken + newcomer.limit > 100 {
                return Err(format!(
                    "{} was let in on card {card}, where {taken} % was taken",
                    newcomer.name
                ));
            }
        }
        Ok(())
    }
}

/// No card is promised twice to those who keep to what they are told.
fn limits_fit(here: &[(usize, String, &Bounds)]) -> Result<(), String> {
    let mut promised: BTreeMap<usize, u32> = BTreeMap::new();
    for (card, _, bounds) in here.iter().filter(|(_, _, bounds)| !bounds.hostile) {
        *promised.entry(*card).or_default() += bounds.limit;
    }
    match promised.into_iter().find(|(_, sum)| *sum > 100) {
        Some((card, sum)) => Err(format!("limits of {sum} % on card {card}")),
        None => Ok(()),
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
