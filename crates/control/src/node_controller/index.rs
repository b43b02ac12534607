//! The nodes as last observed, and when each of them is due to be planned again.
//!
//! Pure: watch events and results of writes come in with the time, work items go out; it is tested without a runtime.
//! At most one work item per node is in flight. A node that did not change in anything that matters costs nothing, and a
//! write that failed is tried again with exponential back-off.
//!
//! A change of use is acted on when it has been stable for [`SETTLE`]: labels that flap make no storm of writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gpupool_core::sharing::Load;
use gpupool_k8s::Backoff;

use super::finding::{UseFinding, UseReason};
use super::node_write::NodeWrite;
use super::observed::ObservedNode;
use super::plan::plan;
use crate::settings::ClusterSettings;

/// How long the label and the cards of a node must be stable before a change of them is acted on …
pub const SETTLE: Duration = Duration::from_millis(300);
/// … but no change waits longer than this for those after it.
pub const SETTLE_AT_MOST: Duration = Duration::from_secs(3);

/// Between writes of one node that come to nothing.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// A moment of a monotonic clock: how long after the clock's start, which may be any.
pub type SinceStart = Duration;

/// Something to do for one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkItem {
    /// The node, as it was judged.
    pub node: ObservedNode,
    /// What to do.
    pub action: Action,
}

/// What to do for a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Write, on the condition that the node is still as it was judged.
    Write(NodeWrite),
    /// Record this in an Event, as no condition says it.
    RecordEvent(UseFinding),
}

/// What became of a work item.
#[derive(Clone, Debug)]
pub enum WriteResult {
    /// Written; this is what the API server answered.
    Written(Box<ObservedNode>),
    /// The Event is recorded.
    EventRecorded,
    /// The node had changed in between (409); nothing was written.
    Conflict,
    /// There is no such node any more (404).
    NotFound,
    /// Refused, or the API server could not be reached.
    Failed,
}

impl WriteResult {
    /// The value of the metric's label `outcome`.
    pub(super) const fn metric_label(&self) -> &'static str {
        match self {
            Self::Written(_) | Self::EventRecorded => "done",
            Self::Conflict => "outdated",
            Self::NotFound => "gone",
            Self::Failed => "failed",
        }
    }
}

/// The nodes, and the settings by which they are judged.
#[derive(Debug)]
pub struct Index {
    settings: ClusterSettings,
    nodes: BTreeMap<String, Entry>,
    due: BTreeSet<(SinceStart, String)>,
    /// The load by node, of nodes that have not been seen yet, too; nothing while the pods are not known.
    loads: Option<BTreeMap<String, Load>>,
}

#[derive(Debug, Default)]
struct Entry {
    node: ObservedNode,
    due: Option<SinceStart>,
    /// Set while the label or the cards are changing.
    settling: Option<Settling>,
    /// A work item for this node is with the writer.
    in_flight: bool,
    /// Work items in a row that failed, or were written and undone by somebody.
    failures: u32,
    /// Not due again before this: the back-off after failures.
    requeue_after: SinceStart,
    /// What has been recorded in Events about this node and still holds.
    recorded: BTreeSet<UseReason>,
    /// The last write that the API server took.
    last_written: Option<NodeWrite>,
}

/// A node whose label or cards are changing.
#[derive(Clone, Copy, Debug)]
struct Settling {
    /// Since the first of the changes.
    since: SinceStart,
    /// When they are acted on unless another one comes.
    until: SinceStart,
}

impl Index {
    /// An index without nodes.
    pub fn new(settings: ClusterSettings) -> Self {
        Self { settings, nodes: BTreeMap::new(), due: BTreeSet::new(), loads: None }
    }

    /// The settings in force.
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// Settings have changed: every node is due.
    pub fn set_settings(&mut self, settings: ClusterSettings, now: SinceStart) {
        if self.settings != settings {
            self.settings = settings;
            self.requeue_all(now);
        }
    }

    /// Makes every node due, for a process that begins to lead.
    pub fn requeue_all(&mut self, now: SinceStart) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.schedule(&name, now);
        }
    }

    /// The loads of all nodes, when the pods have been listed.
    pub fn set_loads(&mut self, loads: BTreeMap<String, Load>, now: SinceStart) {
        self.loads = Some(loads);
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.update_load(&name, now);
        }
    }

    /// The load of one node has changed.
    pub fn set_load(&mut self, name: &str, load: Load, now: SinceStart) {
        let Some(loads) = &mut self.loads else { return };
        loads.insert(name.to_owned(), load);
        self.update_load(name, now);
    }

    fn update_load(&mut self, name: &str, now: SinceStart) {
        let load = self.load(name);
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.node.load != load) else { return };
        entry.node.load = load;
        if entry.node.sharing.is_concerned() {
            self.schedule(name, now);
        }
    }

    fn load(&self, name: &str) -> Option<Load> {
        self.loads.as_ref().map(|loads| loads.get(name).cloned().unwrap_or_default())
    }

    /// A node was added or changed.
    pub fn apply(&mut self, node: ObservedNode, now: SinceStart) {
        let name = node.name.clone();
        let node = ObservedNode { load: self.load(&name), ..node };
        match self.nodes.get_mut(&name) {
            Some(entry) if entry.node.uid == node.uid => {
                if is_older(&node, &entry.node) || !entry.observe(node, now) {
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
    pub fn reset(&mut self, nodes: Vec<ObservedNode>, now: SinceStart) {
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

    /// An Event with this reason was recorded about a node before, perhaps by another process.
    pub fn event_was_recorded(&mut self, name: &str, uid: &str, reason: UseReason) {
        if let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.node.uid == uid) {
            entry.recorded.insert(reason);
        }
    }

    /// The next work item, if one is due. Its result must be reported to [`Index::finish`].
    pub fn next_item(&mut self, now: SinceStart) -> Option<WorkItem> {
        while let Some((due, name)) = self.due.first().cloned().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, name.clone()));
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            entry.due = None;
            entry.settling = None;
            if let Some(action) = entry.next_action(&self.settings) {
                entry.in_flight = true;
                return Some(WorkItem { node: entry.node.clone(), action });
            }
        }
        None
    }

    /// When the next node is due.
    pub fn next_due(&self) -> Option<SinceStart> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A work item has ended like this.
    pub fn finish(&mut self, item: &WorkItem, result: WriteResult, now: SinceStart) {
        let name = &item.node.name;
        let load = self.load(name);
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.node.uid == item.node.uid) else {
            return;
        };
        entry.in_flight = false;
        match result {
            WriteResult::Written(node) => {
                let repeated = matches!(&item.action, Action::Write(write) if entry.last_written.as_ref() == Some(write));
                entry.last_written =
                    if let Action::Write(write) = &item.action { Some(write.clone()) } else { None };
                if !is_older(&node, &entry.node) {
                    entry.node = ObservedNode { load, ..*node };
                }
                // The same again although it was written: somebody undoes it, or the server does not keep it.
                entry.failures = if repeated { entry.failures.saturating_add(1) } else { 0 };
            }
            WriteResult::EventRecorded => {
                if let Action::RecordEvent(finding) = &item.action {
                    entry.recorded.insert(finding.reason);
                }
                entry.failures = 0;
            }
            WriteResult::NotFound => return,
            WriteResult::Conflict | WriteResult::Failed => entry.failures = entry.failures.saturating_add(1),
        }
        entry.requeue_after = now + BACKOFF.delay(entry.failures);
        self.schedule(name, now);
    }

    /// How many nodes there are, and how many of them are due or being written.
    pub fn counts(&self) -> (usize, usize) {
        let pending = self.nodes.values().filter(|entry| entry.in_flight || entry.due.is_some()).count();
        (self.nodes.len(), pending)
    }

    /// The nodes, as last observed.
    pub fn nodes(&self) -> impl Iterator<Item = &ObservedNode> {
        self.nodes.values().map(|entry| &entry.node)
    }

    /// Makes a node due as soon as it may be.
    fn schedule(&mut self, name: &str, now: SinceStart) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if let Some(due) = entry.due.take() {
            self.due.remove(&(due, name.to_owned()));
        }
        if entry.in_flight {
            // Its result will make it due.
            return;
        }
        let settled = entry.settling.map_or(now, |settling| settling.until);
        let due = now.max(settled).max(entry.requeue_after);
        entry.due = Some(due);
        self.due.insert((due, name.to_owned()));
    }
}

impl Entry {
    /// Takes notice of the same node in a newer version. Says whether anything that matters has changed.
    fn observe(&mut self, node: ObservedNode, now: SinceStart) -> bool {
        let moved = node.workload() != self.node.workload()
            || node.cards != self.node.cards
            || node.sharing.label != self.node.sharing.label;
        if moved {
            let since = self.settling.map_or(now, |settling| settling.since);
            self.settling = Some(Settling { since, until: (now + SETTLE).min(since + SETTLE_AT_MOST) });
        }
        let version = node.version.clone();
        let changed = node != ObservedNode { version, ..std::mem::take(&mut self.node) };
        self.node = node;
        changed
    }

    fn next_action(&mut self, settings: &ClusterSettings) -> Option<Action> {
        let plan = plan(&self.node, settings);
        // What no longer holds may be recorded again when it comes back.
        self.recorded.retain(|reason| plan.notices.iter().any(|notice| notice.reason == *reason));
        if let Some(write) = plan.write {
            return Some(Action::Write(write));
        }
        let unrecorded = plan.notices.into_iter().find(|notice| !self.recorded.contains(&notice.reason));
        unrecorded.map(Action::RecordEvent)
    }
}

/// Whether `node` is an older version than `known`. Versions of one cluster's objects are numbers that grow; where
/// they are not, what comes later counts as newer.
fn is_older(node: &ObservedNode, known: &ObservedNode) -> bool {
    let number = |node: &ObservedNode| node.version.parse::<u64>().ok();
    number(node).zip(number(known)).is_some_and(|(node, known)| node < known)
}
