//! The nodes as last seen, and which of them is due for a look, when.
//!
//! Pure: watch events and outcomes of writes come in with the time, orders go out; it is tested without a runtime.
//! At most one write per node is under way. A node that did not change in anything that matters costs nothing, and a
//! write that came to nothing is tried again later and later.
//!
//! A use that changes is acted on when it has stood still for [`SETTLE`]: labels that flap make no storm of writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gpupool_core::sharing::Load;
use gpupool_k8s::Backoff;

use crate::finding::{Finding, Reason};
use crate::observed::Node;
use crate::plan::{Cluster, Write, plan};

/// How long the label and the cards of a node must stand still before a change of them is acted on …
pub const SETTLE: Duration = Duration::from_millis(300);
/// … but no change waits longer than this for those after it.
pub const SETTLE_AT_MOST: Duration = Duration::from_secs(3);

/// Between writes of one node that come to nothing.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Times are of a clock that never goes back, from any start.
pub type Moment = Duration;

/// Something to do for one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Order {
    /// The node, as it was judged.
    pub node: Node,
    /// What to do.
    pub task: Task,
}

/// What to do for a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Task {
    /// Write, on the condition that the node is still as it was judged.
    Write(Write),
    /// Tell of this in an Event.
    Tell(Finding),
}

/// What became of an order.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Written; this is what the API server answered.
    Written(Box<Node>),
    /// The Event is out.
    Told,
    /// The node had changed in between; nothing was written.
    Outdated,
    /// There is no such node any more.
    Gone,
    /// Refused, or the API server could not be reached.
    Failed,
}

/// The nodes, and the settings by which they are judged.
#[derive(Debug)]
pub struct Index {
    cluster: Cluster,
    nodes: BTreeMap<String, Entry>,
    due: BTreeSet<(Moment, String)>,
    /// What weighs on nodes, those included that have not been seen yet; nothing while the pods are not known.
    loads: Option<BTreeMap<String, Load>>,
}

#[derive(Debug, Default)]
struct Entry {
    node: Node,
    due: Option<Moment>,
    /// Since when the label or the cards have been changing, and until when they are given time to settle.
    unsettled: Option<(Moment, Moment)>,
    /// An order is out.
    busy: bool,
    /// Orders in a row that came to nothing.
    failures: u32,
    not_before: Moment,
    /// What has been told of this node.
    told: BTreeSet<Reason>,
    last: Option<Write>,
}

impl Index {
    /// An index without nodes.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, nodes: BTreeMap::new(), due: BTreeSet::new(), loads: None }
    }

    /// The settings in force.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Settings have changed: every node is due.
    pub fn set_cluster(&mut self, cluster: Cluster, now: Moment) {
        if self.cluster != cluster {
            self.cluster = cluster;
            self.wake_all(now);
        }
    }

    /// Makes every node due, for one that begins to lead.
    pub fn wake_all(&mut self, now: Moment) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.schedule(&name, now);
        }
    }

    /// What weighs on all nodes, when the pods have been listed.
    pub fn set_loads(&mut self, loads: BTreeMap<String, Load>, now: Moment) {
        self.loads = Some(loads);
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.weigh(&name, now);
        }
    }

    /// What weighs on one node has changed.
    pub fn set_load(&mut self, name: &str, load: Load, now: Moment) {
        let Some(loads) = &mut self.loads else { return };
        loads.insert(name.to_owned(), load);
        self.weigh(name, now);
    }

    fn weigh(&mut self, name: &str, now: Moment) {
        let load = self.load(name);
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.node.load != load) else { return };
        entry.node.load = load;
        if entry.node.share.is_concerned() {
            self.schedule(name, now);
        }
    }

    fn load(&self, name: &str) -> Option<Load> {
        self.loads.as_ref().map(|loads| loads.get(name).cloned().unwrap_or_default())
    }

    /// A node was added or changed.
    pub fn apply(&mut self, node: Node, now: Moment) {
        let name = node.name.clone();
        let node = Node { load: self.load(&name), ..node };
        match self.nodes.get_mut(&name) {
            Some(entry) if entry.node.uid == node.uid => {
                if is_older(&node, &entry.node) || !entry.see(node, now) {
                    return;
                }
            }
            // Another node under the same name: nothing of the old one holds for it.
            _ => {
                self.delete(&name);
                self.nodes.insert(name.clone(), Entry { node, ..Entry::default() });
            }
        }
        self.schedule(&name, now);
    }

    /// A node is gone.
    pub fn delete(&mut self, name: &str) {
        if let Some(due) = self.nodes.remove(name).and_then(|entry| entry.due) {
            self.due.remove(&(due, name.to_owned()));
        }
    }

    /// These are all the nodes there are; events may have been missed before.
    pub fn reset(&mut self, nodes: Vec<Node>, now: Moment) {
        let there: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let gone: Vec<String> =
            self.nodes.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.delete(&name);
        }
        for node in nodes {
            self.apply(node, now);
        }
    }

    /// This has been told of a node before, perhaps by another process.
    pub fn has_been_told(&mut self, name: &str, uid: &str, reason: Reason) {
        if let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.node.uid == uid) {
            entry.told.insert(reason);
        }
    }

    /// The next order, if one is due. Its outcome must be reported to [`Index::done`].
    pub fn next(&mut self, now: Moment) -> Option<Order> {
        while let Some((due, name)) = self.due.first().cloned().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, name.clone()));
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            entry.due = None;
            entry.unsettled = None;
            if let Some(task) = entry.task(&self.cluster) {
                entry.busy = true;
                return Some(Order { node: entry.node.clone(), task });
            }
        }
        None
    }

    /// When the next node is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// What became of an order.
    pub fn done(&mut self, order: &Order, outcome: Outcome, now: Moment) {
        let name = &order.node.name;
        let load = self.load(name);
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.node.uid == order.node.uid) else {
            return;
        };
        entry.busy = false;
        match outcome {
            Outcome::Written(node) => {
                let repeated =
                    matches!(&order.task, Task::Write(write) if entry.last.as_ref() == Some(write));
                entry.last = if let Task::Write(write) = &order.task { Some(write.clone()) } else { None };
                if !is_older(&node, &entry.node) {
                    entry.node = Node { load, ..*node };
                }
                // The same again although it was written: somebody undoes it, or the server does not keep it.
                entry.failures = if repeated { entry.failures.saturating_add(1) } else { 0 };
            }
            Outcome::Told => {
                if let Task::Tell(finding) = &order.task {
                    entry.told.insert(finding.reason);
                }
                entry.failures = 0;
            }
            Outcome::Gone => return,
            Outcome::Outdated | Outcome::Failed => entry.failures = entry.failures.saturating_add(1),
        }
        entry.not_before = now + BACKOFF.delay(entry.failures);
        self.schedule(name, now);
    }

    /// How many nodes there are, and how many of them are due or being written.
    pub fn counts(&self) -> (usize, usize) {
        let pending = self.nodes.values().filter(|entry| entry.busy || entry.due.is_some()).count();
        (self.nodes.len(), pending)
    }

    /// The nodes, as last seen.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(|entry| &entry.node)
    }

    /// Makes a node due as soon as it may be.
    fn schedule(&mut self, name: &str, now: Moment) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if let Some(due) = entry.due.take() {
            self.due.remove(&(due, name.to_owned()));
        }
        if entry.busy {
            // The outcome will make it due.
            return;
        }
        let settled = entry.unsettled.map_or(now, |(_, until)| until);
        let due = now.max(settled).max(entry.not_before);
        entry.due = Some(due);
        self.due.insert((due, name.to_owned()));
    }
}

impl Entry {
    /// Takes notice of the same node in a newer version. Says whether anything that matters has changed.
    fn see(&mut self, node: Node, now: Moment) -> bool {
        let moved = node.workload() != self.node.workload()
            || node.cards != self.node.cards
            || node.share.label != self.node.share.label;
        if moved {
            let since = self.unsettled.map_or(now, |(since, _)| since);
            self.unsettled = Some((since, (now + SETTLE).min(since + SETTLE_AT_MOST)));
        }
        let version = node.version.clone();
        let changed = node != Node { version, ..std::mem::take(&mut self.node) };
        self.node = node;
        changed
    }

    fn task(&mut self, cluster: &Cluster) -> Option<Task> {
        let plan = plan(&self.node, cluster);
        // What no longer holds may be told again when it comes back.
        self.told.retain(|told| plan.notices.iter().any(|notice| notice.reason == *told));
        if let Some(write) = plan.write {
            return Some(Task::Write(write));
        }
        let untold = plan.notices.into_iter().find(|notice| !self.told.contains(&notice.reason));
        untold.map(Task::Tell)
    }
}

/// Whether `node` is an older version than `known`. Versions of one cluster's objects are numbers that grow; where
/// they are not, what comes later counts as newer.
fn is_older(node: &Node, known: &Node) -> bool {
    let number = |node: &Node| node.version.parse::<u64>().ok();
    number(node).zip(number(known)).is_some_and(|(node, known)| node < known)
}
