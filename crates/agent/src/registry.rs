//! Who is on the node: pods, their processes, and what each process does. Written to the journal as it changes, and
//! read back from there by an agent that starts again.
//!
//! Who gets a card is the pool's business; here stands only who of a pod's processes waits for one or uses one.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{self, Action, CardUuid, PodId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::pod::{FirstSpec, PodRef};
use crate::procfs::ProcessKey;
use crate::shared_memory::Inode;

/// What the agent knows of a pod beside its place in the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodEntry {
    /// The `gpupool run` that registered it; `None` once that has ended.
    pub(crate) run: Option<ProcessKey>,
    /// In a cluster: which object it is. It stays until the API server says that it has gone.
    #[serde(default)]
    pub(crate) reference: Option<PodRef>,
    /// The user who started it.
    pub(crate) user: u32,
    /// Its memory ledger, once it has one.
    pub(crate) ledger: Option<Inode>,
    /// It was told to stop and takes no new processes.
    pub(crate) stopping: bool,
}

impl PodEntry {
    /// Whether it is still there without any GPU process.
    pub(crate) fn stays(&self) -> bool {
        self.run.is_some() || (self.reference.is_some() && !self.stopping)
    }
}

/// What a process does with the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CardUse {
    /// Nothing, at the moment.
    Nothing,
    /// It waits until its pod holds one.
    Waiting,
    /// It uses its pod's card.
    Holding,
}

/// A process that has introduced itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    /// The pod it belongs to.
    pub(crate) pod: PodId,
    /// Its slot in the pod's ledger.
    pub(crate) slot: u32,
    /// What it does.
    pub(crate) using: CardUse,
    /// The card it got first: the driver can't give it another while it lives.
    pub(crate) card: Option<CardUuid>,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Record {
    /// The first line.
    Opened {
        /// Version of the journal's records.
        version: u32,
        /// The boot in which process ids and times are meant.
        boot: String,
    },
    /// Everything that held at that moment; what stood before it counts no more.
    Snapshot {
        /// The pool.
        pool: Box<pool::Snapshot>,
        /// The pods.
        #[serde(rename = "groups")]
        pods: Vec<(PodId, PodEntry)>,
        /// The processes.
        processes: Vec<(ProcessKey, Process)>,
        /// What pods of the cluster asked for when they were first seen, by their objects' UIDs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        first_seen: Vec<(String, FirstSpec)>,
    },
    /// A pod of the cluster was seen for the first time, in the pool or outside.
    FirstSeen {
        /// The object's UID.
        uid: String,
        /// What it asked for.
        spec: FirstSpec,
    },
    /// Such a pod is on this node no more.
    Forgotten {
        /// The object's UID.
        uid: String,
    },
    /// The pool took an event.
    Step {
        /// When.
        at: Timestamp,
        /// Which.
        event: pool::Event,
        /// What came of it, which is what counts. Agents before 0.2 did not write it down, and do not read it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<Box<pool::Change>>,
    },
    /// A pod came or changed. Journals call it a group.
    #[serde(rename = "group")]
    Pod {
        /// Its id.
        pod: PodId,
        /// How it is now.
        #[serde(rename = "group")]
        entry: PodEntry,
    },
    /// A pod went.
    #[serde(rename = "groupGone")]
    PodGone {
        /// Its id.
        pod: PodId,
    },
    /// A process came or changed.
    Process {
        /// Which.
        key: ProcessKey,
        /// How it is now.
        process: Process,
    },
    /// A process ended.
    ProcessGone {
        /// Which.
        key: ProcessKey,
    },
}

/// All pods and processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    pods: BTreeMap<PodId, PodEntry>,
    processes: BTreeMap<ProcessKey, Process>,
    members: BTreeMap<PodId, BTreeSet<ProcessKey>>,
    first_seen: BTreeMap<String, FirstSpec>,
}

impl Registry {
    /// The registry of a snapshot.
    pub(crate) fn new(
        pods: Vec<(PodId, PodEntry)>,
        processes: Vec<(ProcessKey, Process)>,
        first_seen: Vec<(String, FirstSpec)>,
    ) -> Self {
        let (pods, first_seen) = (pods.into_iter().collect(), first_seen.into_iter().collect());
        let mut registry = Self { pods, first_seen, ..Self::default() };
        for (key, process) in processes {
            registry.put(key, process);
        }
        registry
    }

    /// What is left of a journal's records in another boot: no process and no place, but what pods first asked for.
    pub(crate) fn of_earlier_boot(records: impl Iterator<Item = Record>) -> Self {
        let mut earlier = Self::default();
        for record in records {
            match record {
                Record::Snapshot { first_seen, .. } => {
                    earlier = Self::new(Vec::new(), Vec::new(), first_seen);
                }
                record => earlier.apply(&record),
            }
        }
        Self { first_seen: earlier.first_seen, ..Self::default() }
    }

    /// All of it, for a snapshot.
    pub(crate) fn snapshot(&self, pool: pool::Snapshot) -> Record {
        Record::Snapshot {
            pool: Box::new(pool),
            pods: self.pods.iter().map(|(pod, entry)| (pod.clone(), entry.clone())).collect(),
            processes: self.processes.iter().map(|(key, process)| (*key, process.clone())).collect(),
            first_seen: self.first_seen.iter().map(|(uid, spec)| (uid.clone(), spec.clone())).collect(),
        }
    }

    /// Takes in what a record says about pods and processes. The pool's own records change nothing here.
    pub(crate) fn apply(&mut self, record: &Record) {
        match record {
            Record::Pod { pod, entry } => {
                self.pods.insert(pod.clone(), entry.clone());
            }
            Record::PodGone { pod } => {
                self.pods.remove(pod);
                self.members.remove(pod);
            }
            Record::Process { key, process } => self.put(*key, process.clone()),
            Record::ProcessGone { key } => self.drop_process(*key),
            Record::FirstSeen { uid, spec } => drop(self.first_seen.insert(uid.clone(), spec.clone())),
            Record::Forgotten { uid } => drop(self.first_seen.remove(uid)),
            Record::Opened { .. } | Record::Snapshot { .. } | Record::Step { .. } => {}
        }
    }

    /// Takes in a decision of the pool: whoever waits for the granted pod uses its card from now on. Gives what it changed.
    pub(crate) fn decided(&mut self, action: &Action) -> Vec<Record> {
        let Action::Grant { pod, card, .. } = action else { return Vec::new() };
        let mut changed = Vec::new();
        for key in self.members_using(pod, CardUse::Waiting) {
            let Some(process) = self.processes.get_mut(&key) else { continue };
            process.using = CardUse::Holding;
            process.card.get_or_insert_with(|| card.clone());
            changed.push(Record::Process { key, process: process.clone() });
        }
        changed
    }

    /// A pod.
    pub(crate) fn pod(&self, pod: &PodId) -> Option<&PodEntry> {
        self.pods.get(pod)
    }

    /// What a pod of the cluster asked for when it was first seen, by its object's UID.
    pub(crate) fn first_seen(&self, uid: &str) -> Option<&FirstSpec> {
        self.first_seen.get(uid)
    }

    /// The UIDs of all pods of the cluster that were seen and are not known to have gone.
    pub(crate) fn seen(&self) -> impl Iterator<Item = &str> {
        self.first_seen.keys().map(String::as_str)
    }

    /// All pods by name.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&PodId, &PodEntry)> {
        self.pods.iter()
    }

    /// A process.
    pub(crate) fn process(&self, key: ProcessKey) -> Option<&Process> {
        self.processes.get(&key)
    }

    /// All processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (ProcessKey, &Process)> {
        self.processes.iter().map(|(key, process)| (*key, process))
    }

    /// A pod's processes, oldest id first.
    pub(crate) fn members_of(&self, pod: &PodId) -> Vec<ProcessKey> {
        self.members.get(pod).map(|members| members.iter().copied().collect()).unwrap_or_default()
    }

    /// A pod's processes that do this with the card.
    pub(crate) fn members_using(&self, pod: &PodId, using: CardUse) -> Vec<ProcessKey> {
        let mut members = self.members_of(pod);
        members.retain(|key| self.process(*key).is_some_and(|process| process.using == using));
        members
    }

    /// The card to which the pod's living processes are bound.
    pub(crate) fn bound_card(&self, pod: &PodId) -> Option<&CardUuid> {
        let members = self.members.get(pod)?;
        members.iter().find_map(|key| self.processes.get(key)?.card.as_ref())
    }

    /// The slots of the pod's ledger that no process has, the lowest first.
    pub(crate) fn free_slots(&self, pod: &PodId) -> impl Iterator<Item = u32> + use<> {
        let taken: BTreeSet<u32> = self
            .members
            .get(pod)
            .into_iter()
            .flatten()
            .filter_map(|key| Some(self.processes.get(key)?.slot))
            .collect();
        let slots = u32::try_from(gpupool_wire::ledger::SLOTS).unwrap_or(u32::MAX);
        (0..slots).filter(move |slot| !taken.contains(slot))
    }

    fn put(&mut self, key: ProcessKey, process: Process) {
        self.drop_process(key);
        self.members.entry(process.pod.clone()).or_default().insert(key);
        self.processes.insert(key, process);
    }

    fn drop_process(&mut self, key: ProcessKey) {
        let Some(old) = self.processes.remove(&key) else { return };
        if let Some(members) = self.members.get_mut(&old.pod) {
            members.remove(&key);
            if members.is_empty() {
                self.members.remove(&old.pod);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32) -> ProcessKey {
        ProcessKey { pid, start: 1 }
    }

    fn process(pod: &str, slot: u32, using: CardUse) -> Process {
        Process { pod: pod.into(), slot, using, card: None }
    }

    fn registry() -> Registry {
        let entry = PodEntry { run: None, reference: None, user: 0, ledger: None, stopping: false };
        Registry::new(
            vec![("A".into(), entry)],
            vec![
                (key(1), process("A", 0, CardUse::Waiting)),
                (key(2), process("A", 1, CardUse::Nothing)),
                (key(3), process("A", 3, CardUse::Waiting)),
            ],
            Vec::new(),
        )
    }

    #[test]
    fn a_grant_reaches_exactly_those_who_wait_and_binds_them_to_the_card() {
        let mut registry = registry();
        let share = gpupool_core::share::Percent::WHOLE;
        registry.decided(&Action::Grant {
            pod: "A".into(),
            card: "GPU-1".into(),
            lease: pool::LeaseId(1),
            limits: pool::Limits { core: share, memory: share },
        });
        assert_eq!(registry.members_using(&"A".into(), CardUse::Holding), [key(1), key(3)]);
        assert_eq!(registry.bound_card(&"A".into()), Some(&"GPU-1".into()));
        assert_eq!(registry.process(key(2)).unwrap().card, None);
    }

    #[test]
    fn slots_are_given_again_once_their_process_is_gone() {
        let mut registry = registry();
        assert_eq!(registry.free_slots(&"A".into()).next(), Some(2));
        registry.apply(&Record::ProcessGone { key: key(1) });
        assert_eq!(registry.free_slots(&"A".into()).next(), Some(0));
        assert_eq!(registry.members_of(&"A".into()), [key(2), key(3)]);
    }

    #[test]
    fn a_process_that_changed_is_known_once() {
        let mut registry = registry();
        registry.apply(&Record::Process { key: key(1), process: process("A", 0, CardUse::Nothing) });
        assert_eq!(registry.members_using(&"A".into(), CardUse::Nothing), [key(1), key(2)]);
        assert_eq!(registry.processes().count(), 3);
    }

    #[test]
    fn pods_are_written_as_every_journal_has_them() {
        let text = |record: &Record| serde_json::to_string(record).unwrap();
        let entry = r#"{"run":null,"reference":null,"user":0,"ledger":null,"stopping":false}"#;
        let pod = registry().pod(&"A".into()).unwrap().clone();
        assert_eq!(
            text(&Record::Pod { pod: "A".into(), entry: pod }),
            format!(r#"{{"group":{{"pod":"A","group":{entry}}}}}"#)
        );
        assert_eq!(text(&Record::PodGone { pod: "A".into() }), r#"{"groupGone":{"pod":"A"}}"#);
        let config = pool::Config {
            cards: Vec::new(),
            policy: pool::Policy::SharePool,
            qos: pool::Qos {
                preempt_enabled: true,
                pod_max_duration: pool::Millis(1),
                grace: pool::Millis(1),
                idle_release: None,
            },
            check_requests: true,
        };
        let snapshot = text(&registry().snapshot(pool::Pool::new(config).unwrap().snapshot()));
        assert!(snapshot.starts_with(r#"{"snapshot":{"pool":{"#), "{snapshot}");
        assert!(snapshot.contains(&format!(r#""groups":[["A",{entry}]],"processes":[["#)), "{snapshot}");
    }
}
