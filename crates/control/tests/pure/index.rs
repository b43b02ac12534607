//! When nodes are looked at, and that every history of changes, faults and missed events ends in the right state.

use std::time::Duration;

use crate::support::{CARDS, Shape, condition, sandbox};
use gpupool_control::ClusterSettings;
use gpupool_control::node_controller::NodeWrite;
use gpupool_control::node_controller::finding::UseReason;
use gpupool_control::node_controller::index::{Action, Index, SETTLE, SETTLE_AT_MOST, WorkItem, WriteResult};
use gpupool_control::node_controller::observed::ObservedNode;
use gpupool_control::node_controller::patch;
use gpupool_core::node_use::LABEL;
use k8s_openapi::jiff::Timestamp;

const fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn index_with(node: ObservedNode) -> Index {
    let mut index = Index::new(sandbox());
    index.reset(vec![node], at(0));
    index
}

fn labelled(label: &str) -> ObservedNode {
    Shape::labelled(label).with_cards(CARDS).node()
}

/// The node after the item's write, as the API server would answer.
fn answer(item: &WorkItem, version: u64) -> WriteResult {
    let Action::Write(write) = &item.action else { return WriteResult::EventRecorded };
    let mut node = patch::after(&item.node, write, Timestamp::UNIX_EPOCH);
    node.version = version.to_string();
    WriteResult::Written(Box::new(node))
}

/// Carries out everything that is due until nothing is.
fn drain(index: &mut Index, mut now: Duration) -> Duration {
    let mut version = 1_000_000;
    while let Some(due) = index.next_due() {
        now = now.max(due);
        while let Some(item) = index.next_item(now) {
            version += 1;
            index.finish(&item, answer(&item, version), now);
        }
    }
    now
}

fn relabelled(node: &ObservedNode, label: &str, version: u64) -> ObservedNode {
    let mut node = node.clone();
    node.labels.insert(LABEL.to_owned(), label.to_owned());
    node.version = version.to_string();
    node
}

#[test]
fn a_node_that_is_seen_for_the_first_time_is_due_at_once_and_only_once() {
    let mut index = index_with(labelled("container"));
    assert!(index.next_item(at(0)).is_some());
    assert!(index.next_item(at(0)).is_none(), "one write at a time");
    assert_eq!(index.next_due(), None);
}

#[test]
fn what_happens_while_a_write_is_under_way_is_looked_at_when_it_has_ended() {
    let mut index = index_with(labelled("container"));
    let item = index.next_item(at(0)).unwrap();
    index.apply(relabelled(&item.node, "vm-vgpu", 5), at(10));
    assert!(index.next_item(at(10_000)).is_none());
    index.finish(&item, WriteResult::Conflict, at(10_000));
    let next = index.next_item(index.next_due().unwrap()).unwrap();
    assert_eq!(next.node.workload(), Some("vm-vgpu"));
}

#[test]
fn a_heartbeat_makes_nothing_due() {
    let mut index = index_with(labelled("container"));
    let now = drain(&mut index, at(0));
    let mut node = index.nodes().next().unwrap().clone();
    node.version = "2000000".to_owned();
    index.apply(node, now);
    assert_eq!(index.next_due(), None);
    assert_eq!(index.nodes().next().unwrap().version, "2000000", "later writes need the newest version");
}

#[test]
fn an_event_that_is_older_than_what_is_known_is_ignored() {
    let mut index = index_with(labelled("container"));
    let now = drain(&mut index, at(0));
    index.apply(labelled("vm-vgpu"), now);
    assert_eq!(index.next_due(), None);
}

#[test]
fn a_change_of_the_label_is_acted_on_when_it_has_stood_still() {
    let mut index = index_with(labelled("container"));
    let now = drain(&mut index, at(0));
    let node = index.nodes().next().unwrap().clone();
    index.apply(relabelled(&node, "vm-vgpu", 2_000_000), now);
    assert_eq!(index.next_due(), Some(now + SETTLE));
}

#[test]
fn a_label_that_never_stands_still_is_acted_on_all_the_same() {
    let mut index = index_with(labelled("container"));
    let start = drain(&mut index, at(0));
    let node = index.nodes().next().unwrap().clone();
    let mut items = 0;
    for round in 0..100 {
        let now = start + at(100 * round);
        let label = if round % 2 == 0 { "vm-vgpu" } else { "container" };
        index.apply(relabelled(&node, label, 2_000_000 + round), now);
        items += usize::from(index.next_item(now).is_some());
    }
    assert_eq!(items, 1, "the first of them waits for its result");
    assert!(at(100 * 100) > SETTLE_AT_MOST);
}

#[test]
fn what_fails_is_tried_again_later_and_later() {
    let mut index = index_with(labelled("container"));
    let mut now = at(0);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let item = index.next_item(now).unwrap();
        index.finish(&item, WriteResult::Failed, now);
        let due = index.next_due().unwrap();
        pauses.push(due.checked_sub(now).unwrap());
        now = due;
    }
    assert_eq!(pauses[..3], [at(200), at(400), at(800)]);
    assert!(pauses.is_sorted() && pauses.iter().all(|pause| *pause <= at(30_000)));
}

#[test]
fn a_pause_holds_whatever_events_come() {
    let mut index = index_with(labelled("container"));
    let item = index.next_item(at(0)).unwrap();
    index.finish(&item, WriteResult::Failed, at(0));
    let mut node = item.node.clone();
    node.labels.insert("nvidia.com/gpu.product".to_owned(), "x".to_owned());
    node.version = "2".to_owned();
    index.apply(node, at(1));
    assert_eq!(index.next_due(), Some(at(200)));
}

#[test]
fn somebody_who_undoes_every_write_is_not_raced_against() {
    let mut index = index_with(labelled("container"));
    let mut now = at(0);
    let mut writes = 0;
    let mut version = 1;
    while now < at(60_000) {
        if let Some(item) = index.next_item(now) {
            writes += 1;
            index.finish(&item, answer(&item, version + 1), now);
            version += 2;
            // Undone at once.
            let mut undone = labelled("container");
            undone.version = version.to_string();
            index.apply(undone, now);
        }
        now += at(1);
    }
    assert!(writes < 16, "{writes} writes in a minute");
}

#[test]
fn a_node_that_is_gone_from_a_listing_is_forgotten() {
    let mut index = index_with(labelled("container"));
    index.reset(Vec::new(), at(1));
    assert!(index.next_item(at(1)).is_none() && index.counts() == (0, 0));
}

#[test]
fn the_outcome_for_an_earlier_node_of_the_same_name_says_nothing_about_the_new_one() {
    let mut index = index_with(labelled("container"));
    let item = index.next_item(at(0)).unwrap();
    let mut anew = labelled("vm-vgpu");
    anew.uid = "another".to_owned();
    index.apply(anew, at(1));
    index.finish(&item, answer(&item, 1_000_000), at(2));
    let next = index.next_item(at(2)).unwrap();
    assert_eq!((next.node.uid.as_str(), next.node.workload()), ("another", Some("vm-vgpu")));
}

#[test]
fn what_has_no_condition_is_told_once_for_a_node() {
    let bare = || Shape::bare().foreign("nvidia.com/gpu", "4").node();
    let mut index = index_with(bare());
    let item = index.next_item(at(0)).unwrap();
    assert!(matches!(&item.action, Action::RecordEvent(finding) if finding.reason == UseReason::NoLabel));
    index.finish(&item, WriteResult::EventRecorded, at(0));
    index.requeue_all(at(1));
    assert!(index.next_item(at(1)).is_none());

    let mut index = index_with(bare());
    index.event_was_recorded("n", "u", UseReason::NoLabel);
    assert!(index.next_item(at(0)).is_none(), "by another process, before");
    let mut anew = bare();
    anew.uid = "another".to_owned();
    index.apply(anew, at(1));
    assert!(index.next_item(at(1)).is_some());
}

#[test]
fn other_settings_make_every_node_due() {
    let mut index = index_with(labelled("vm-vgpu"));
    let now = drain(&mut index, at(0));
    index.set_settings(sandbox(), now);
    assert_eq!(index.next_due(), None, "the same settings change nothing");
    index.set_settings(ClusterSettings::default(), now);
    let now = drain(&mut index, now);
    let node = index.nodes().next().unwrap().clone();
    assert_eq!(condition(&node), Some(("True", "LabelNotRead")));
    assert!(now < at(1000));
}

mod histories {
    use std::collections::BTreeSet;

    use gpupool_control::node_controller::plan::plan;
    use gpupool_core::quantity::Quantity;
    use proptest::prelude::*;

    use super::*;

    /// What may happen to a node, to the watch and to the controller.
    #[derive(Clone, Debug)]
    enum Happening {
        Label(Option<&'static str>),
        Cards(Option<&'static str>),
        /// Somebody writes a name into the status, ours or another.
        Foreign(&'static str, u32),
        /// Somebody removes a name.
        Remove(&'static str),
        Recreate,
        Flag(bool),
        /// The watch delivers what it has missed so far.
        Deliver,
        /// The controller gives out what is due; the writes succeed, if nothing came between.
        Work,
        /// It gives out what is due and hears nothing of it, although it was written.
        LostAnswer,
        /// It gives out what is due and the server is away.
        Away,
        /// Another process takes over.
        Restart,
        Pass(u64),
    }

    const NAMES: [&str; 4] =
        ["nvidia.com/gpu", "nvidia.com/GA102GL_A10", "nvidia.com/NVIDIA_A10-12Q", "nvidia.com/hostdev"];

    fn happening() -> impl Strategy<Value = Happening> {
        let label = prop::sample::select(vec![
            None,
            Some("container"),
            Some("vm-passthrough"),
            Some("vm-vgpu"),
            Some("vm-vgpuu"),
        ]);
        let cards =
            prop::sample::select(vec![None, Some(CARDS), Some("{"), Some(r#"{"nvidia.com/gpu": 8}"#)]);
        let name = || prop::sample::select(NAMES.to_vec());
        prop_oneof![
            4 => label.prop_map(Happening::Label),
            2 => cards.prop_map(Happening::Cards),
            1 => (name(), 0..3_u32).prop_map(|(name, amount)| Happening::Foreign(name, amount)),
            1 => name().prop_map(Happening::Remove),
            1 => Just(Happening::Recreate),
            1 => any::<bool>().prop_map(Happening::Flag),
            4 => Just(Happening::Deliver),
            6 => Just(Happening::Work),
            1 => Just(Happening::LostAnswer),
            1 => Just(Happening::Away),
            1 => Just(Happening::Restart),
            3 => (0..4000_u64).prop_map(Happening::Pass),
        ]
    }

    /// An API server with one node, and a controller.
    struct World {
        node: ObservedNode,
        version: u64,
        cluster: ClusterSettings,
        index: Index,
        now: Duration,
        /// Names that this controller wrote and nobody wrote over since.
        ours: BTreeSet<String>,
    }

    impl World {
        fn new() -> Self {
            let node = Shape::labelled("container").with_cards(CARDS).node();
            let index = index_with(node.clone());
            Self { node, version: 1, cluster: sandbox(), index, now: at(0), ours: BTreeSet::new() }
        }

        fn changed(&mut self) {
            self.version += 1;
            self.node.version = self.version.to_string();
        }

        fn happens(&mut self, happening: &Happening) {
            match happening {
                Happening::Label(label) => {
                    self.node.labels.remove(LABEL);
                    self.node.labels.extend(label.map(|label| (LABEL.to_owned(), label.to_owned())));
                    self.changed();
                }
                Happening::Cards(cards) => {
                    self.node.cards = cards.map(str::to_owned);
                    self.changed();
                }
                Happening::Foreign(name, amount) => {
                    let amount = Quantity::whole_units(*amount);
                    self.node.capacity.insert((*name).to_owned(), amount);
                    self.node.allocatable.insert((*name).to_owned(), amount);
                    self.disown(name);
                }
                Happening::Remove(name) => {
                    self.node.capacity.remove(*name);
                    self.node.allocatable.remove(*name);
                    self.disown(name);
                }
                Happening::Recreate => {
                    let label = self.node.workload().unwrap_or("container").to_owned();
                    self.node = Shape::labelled(&label).with_cards(CARDS).node();
                    self.changed();
                    self.node.uid = format!("u{}", self.version);
                    self.ours.clear();
                }
                Happening::Flag(enabled) => {
                    self.cluster = ClusterSettings { enabled: *enabled, ..sandbox() };
                    self.index.set_settings(self.cluster.clone(), self.now);
                }
                Happening::Deliver => self.index.apply(self.node.clone(), self.now),
                Happening::Work => self.work(true, true),
                Happening::LostAnswer => self.work(true, false),
                Happening::Away => self.work(false, false),
                Happening::Restart => {
                    self.index = Index::new(self.cluster.clone());
                    self.index.reset(vec![self.node.clone()], self.now);
                }
                Happening::Pass(milliseconds) => self.now += at(*milliseconds),
            }
        }

        fn disown(&mut self, name: &str) {
            self.node.own.capacity.remove(name);
            self.node.own.allocatable.remove(name);
            self.ours.remove(name);
            self.changed();
        }

        /// Gives out one item, if one is due.
        fn work(&mut self, reaches: bool, answers: bool) {
            let Some(item) = self.index.next_item(self.now) else { return };
            let result = match &item.action {
                _ if !reaches => WriteResult::Failed,
                Action::RecordEvent(_) => WriteResult::EventRecorded,
                Action::Write(_) if item.node.version != self.node.version => WriteResult::Conflict,
                Action::Write(write) => {
                    self.write(write);
                    WriteResult::Written(Box::new(self.node.clone()))
                }
            };
            let result = if answers { result } else { WriteResult::Failed };
            self.index.finish(&item, result, self.now);
        }

        fn write(&mut self, write: &NodeWrite) {
            let before = self.node.clone();
            self.node = patch::after(&before, write, Timestamp::UNIX_EPOCH);
            self.changed();
            for (name, amount) in &before.capacity {
                let own = self.ours.contains(name);
                assert!(
                    own || self.node.capacity.get(name) == Some(amount),
                    "{name} is somebody else's: {write:?}"
                );
            }
            let added: Vec<&String> =
                self.node.capacity.keys().filter(|name| !before.capacity.contains_key(*name)).collect();
            self.ours.extend(added.iter().map(|name| (*name).clone()));
            let gpus =
                self.node.capacity.iter().filter(|(name, amount)| !amount.is_zero() && **name != NAMES[3]);
            assert!(
                added.is_empty() || gpus.count() == 1,
                "two names at once: {:?} by {write:?}",
                self.node.capacity
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn every_history_ends_with_nothing_left_to_do(history in prop::collection::vec(happening(), 0..60)) {
            let mut world = World::new();
            for happening in &history {
                world.happens(happening);
            }
            // Everything calms down: the watch lists anew, and the server answers.
            world.index.reset(vec![world.node.clone()], world.now);
            for _ in 0..20 {
                let Some(due) = world.index.next_due() else { break };
                world.now = world.now.max(due);
                world.happens(&Happening::Work);
                world.happens(&Happening::Deliver);
            }
            prop_assert_eq!(world.index.next_due(), None);
            prop_assert_eq!(plan(&world.node, &world.cluster).write, None);
            prop_assert_eq!(world.node.condition.is_some(), world.node.workload().is_some());
        }
    }
}
