//! What an agent that starts again makes of the journal: the same pool, the same registry.
//!
//! Only reading: who of the processes still lives, and what has changed about the cards, is found out by the pool's task.

use std::path::{Path, PathBuf};

use gpupool_core::pool::{Action, Change, Config, Event, Pool, Rebuilt, Refusal, Timestamp, Violation};
use thiserror::Error;

use crate::journal::Unknown;
use crate::registry::{Record, Registry};

/// Version of the journal's records.
pub(crate) const VERSION: u32 = 1;

/// The state that a journal tells of.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The pool.
    pub(crate) pool: Pool,
    /// Pods and processes.
    pub(crate) registry: Registry,
    /// What to say about the journal.
    pub(crate) remark: Option<String>,
}

/// Why an agent can't take up from a journal.
#[derive(Debug, Error)]
pub enum RestartError {
    /// The pool can't be made of the cards.
    #[error("the cards cannot be pooled: {0}")]
    Cards(#[from] Refusal),
    /// Another agent wrote it.
    #[error(
        "the journal has records of version {found}, this agent writes {VERSION}: start the agent that wrote it again; or \
         stop its pods with that one, then remove the journal"
    )]
    Version {
        /// The journal's version.
        found: u32,
    },
    /// A newer agent wrote it.
    #[error(
        "line {line} of the journal {path} is a record that this version of gpupool does not know ({why}): start the \
         version that wrote it again; or, once no program that it tells of uses a card, move the journal away"
    )]
    Unknown {
        /// The journal.
        path: PathBuf,
        /// The record's line, from 1.
        line: usize,
        /// What cannot be read.
        why: String,
    },
    /// The pods that still live are shared by another policy.
    #[error(
        "the journal holds pods of a {was} pool, and this agent is told --policy {is}: stop them first, or give the same policy"
    )]
    Policy {
        /// The journal's policy.
        was: &'static str,
        /// The agent's.
        is: &'static str,
    },
    /// Its snapshot contradicts itself.
    #[error(
        "the journal's snapshot cannot be used ({0}): move the journal away and stop the programs that still run"
    )]
    Snapshot(#[from] Violation),
}

/// Why nothing is taken up from a journal in which something is unknown.
pub(crate) fn refuse(path: &Path, records: &[Record], unknown: Unknown) -> RestartError {
    let Unknown { line, why } = unknown;
    match records.first() {
        Some(Record::Opened { version, .. }) if *version != VERSION => {
            RestartError::Version { found: *version }
        }
        _ => RestartError::Unknown { path: path.to_owned(), line, why },
    }
}

/// Replays a journal. One of an earlier boot, or an empty one, gives an empty pool of `config`.
pub(crate) fn recover(records: Vec<Record>, boot: &str, config: Config) -> Result<Recovered, RestartError> {
    let mut records = records.into_iter();
    let empty = |remark| Ok(Recovered { pool: Pool::new(config)?, registry: Registry::default(), remark });
    match records.next() {
        None => return empty(None),
        Some(Record::Opened { version, .. }) if version != VERSION => {
            return Err(RestartError::Version { found: version });
        }
        Some(Record::Opened { boot: written, .. }) if written != boot => {
            let remark =
                "the journal is of an earlier boot: only what pods first asked for still holds".to_owned();
            return Ok(Recovered { registry: Registry::of_earlier_boot(records), ..empty(Some(remark))? });
        }
        Some(Record::Opened { .. }) => {}
        Some(_) => return empty(Some("the journal has no beginning: nothing in it is used".to_owned())),
    }
    let Some(Record::Snapshot { pool, pods, processes, first_seen }) = records.next() else {
        return empty(Some("the journal ends before its first snapshot: nothing in it is used".to_owned()));
    };
    let mut registry = Registry::new(pods, processes, first_seen);
    let mut past = Past::Written(Rebuilt::new(*pool));
    let mut remark = None;
    for record in records {
        registry.apply(&record);
        let Record::Step { at, event, change } = record else { continue };
        if let Some(change) = change {
            past = past.written(*change);
            continue;
        }
        let (next, outcome) = past.decided(at, event)?;
        past = next;
        match outcome {
            Ok(actions) => actions.iter().for_each(|action| drop(registry.decided(action))),
            Err(refusal) => {
                remark = Some(format!("the journal holds an event that the pool does not accept: {refusal}"));
            }
        }
    }
    Ok(Recovered { pool: past.pool()?, registry, remark })
}

/// The pool while its journal is read.
enum Past {
    /// What came of the last event was written down.
    Written(Rebuilt),
    /// It was decided anew: agents before 0.2 wrote down events alone.
    Decided(Pool),
}

impl Past {
    fn pool(self) -> Result<Pool, Violation> {
        match self {
            Self::Written(rebuilt) => rebuilt.pool(),
            Self::Decided(pool) => Ok(pool),
        }
    }

    fn written(self, change: Change) -> Self {
        let mut rebuilt = match self {
            Self::Written(rebuilt) => rebuilt,
            Self::Decided(pool) => Rebuilt::new(pool.snapshot()),
        };
        rebuilt.apply(change);
        Self::Written(rebuilt)
    }

    fn decided(self, at: Timestamp, event: Event) -> Result<(Self, Result<Vec<Action>, Refusal>), Violation> {
        let mut pool = self.pool()?;
        let actions = pool.step(at, event);
        Ok((Self::Decided(pool), actions))
    }
}

#[cfg(test)]
mod tests {
    use gpupool_core::pool::{Card, Event, LeaseId, Millis, PodSpec, PodState, Policy, Qos, Timestamp};
    use gpupool_core::share::{Percent, Share};

    use super::*;
    use crate::procfs::ProcessKey;
    use crate::registry::{CardUse, Process};

    fn config() -> Config {
        Config {
            cards: vec![Card { uuid: "GPU-a".into(), index: 0 }],
            policy: Policy::SharePool,
            qos: Qos {
                preempt_enabled: true,
                pod_max_duration: Millis(60_000),
                grace: Millis(1000),
                idle_release: None,
            },
            check_requests: true,
        }
    }

    fn opened(boot: &str) -> Record {
        Record::Opened { version: VERSION, boot: boot.to_owned() }
    }

    fn start() -> Vec<Record> {
        let pool = Pool::new(config()).unwrap();
        vec![opened("this boot"), Registry::default().snapshot(pool.snapshot())]
    }

    fn wanted(pod: &str, pid: u32) -> Vec<Record> {
        let whole = Share::fixed(Percent::WHOLE);
        let request = Share::new(Percent::new(1).unwrap(), Percent::WHOLE).unwrap();
        let spec = PodSpec { core: request, memory: whole.min(request), priority: 0, card: None };
        let process = Process { pod: pod.into(), slot: 0, using: CardUse::Waiting, card: None };
        vec![
            Record::Step { at: Timestamp(1), event: Event::PodAdded { pod: pod.into(), spec }, change: None },
            Record::Process { key: ProcessKey { pid, start: 1 }, process },
            Record::Step {
                at: Timestamp(2),
                event: Event::GpuWanted { pod: pod.into(), only: None },
                change: None,
            },
        ]
    }

    #[test]
    fn leases_and_the_queue_are_as_they_were() {
        let mut records = start();
        records.extend(wanted("A", 1));
        records.extend(wanted("B", 2));
        let recovered = recover(records, "this boot", config()).unwrap();
        assert_eq!(recovered.pool.state(&"A".into()), Some(PodState::Running));
        assert_eq!(recovered.pool.position(&"B".into()), Some(1));
        assert_eq!(recovered.registry.members_using(&"A".into(), CardUse::Holding).len(), 1);
        assert_eq!(recovered.registry.members_using(&"B".into(), CardUse::Waiting).len(), 1);
        assert!(recovered.remark.is_none());
    }

    /// As an agent of version 0.1 left it, which wrote down events alone: of three pods that ask for 60 % two hold a card.
    const OF_0_1: &[u8] = include_bytes!("restart/version-0.1.journal");

    #[test]
    fn what_the_release_before_wrote_is_read() {
        let content = crate::journal::read::<Record>(OF_0_1);
        assert_eq!((content.whole, content.unknown), (OF_0_1.len(), None));
        let Some(Record::Opened { boot, .. }) = content.records.first().cloned() else {
            panic!("a beginning")
        };
        let recovered = recover(content.records, &boot, config()).unwrap();
        let leases: Vec<_> =
            recovered.pool.leases().map(|lease| (lease.pod.to_string(), lease.lease)).collect();
        assert_eq!(leases, [("c".to_owned(), LeaseId(1)), ("b".to_owned(), LeaseId(2))]);
        assert_eq!(recovered.pool.position(&"a".into()), Some(1));
        assert_eq!(recovered.registry.members_using(&"c".into(), CardUse::Holding).len(), 1);
        assert!(recovered.registry.pods().all(|(_, entry)| entry.run.is_some() && entry.ledger.is_some()));
        assert_eq!(recovered.remark, None);
    }

    /// The same records as a later agent writes them: with what came of each event.
    fn with_changes(records: Vec<Record>) -> Vec<Record> {
        let mut pool = Pool::new(config()).unwrap();
        let changed = records.into_iter().map(|record| match record {
            Record::Step { at, event, .. } => {
                pool.step(at, event.clone()).unwrap();
                let change = Some(Box::new(pool.last_change(&event)));
                Record::Step { at, event, change }
            }
            other => other,
        });
        changed.collect()
    }

    #[test]
    fn of_both_kinds_of_steps_in_any_order_comes_the_same_pool() {
        let mut plain = start();
        for (number, pod) in (1..).zip(["A", "B", "C", "D"]) {
            plain.extend(wanted(pod, number));
        }
        let expected = recover(plain.clone(), "this boot", config()).unwrap().pool.snapshot();
        let changed = with_changes(plain.clone());
        for from in 0..plain.len() {
            for to in from..plain.len() {
                let mixed = [&plain[..from], &changed[from..to], &plain[to..]].concat();
                let recovered = recover(mixed, "this boot", config()).unwrap();
                assert_eq!(recovered.pool.snapshot(), expected, "{from}..{to}");
            }
        }
    }

    #[test]
    fn a_newer_journal_is_refused_with_what_to_do_whatever_cannot_be_read_in_it() {
        let unknown = || Unknown { line: 7, why: "unknown variant `later`".to_owned() };
        let said = |records: &[Record]| refuse(Path::new("/a/journal"), records, unknown()).to_string();
        let same = said(&start());
        assert!(same.starts_with("line 7 of the journal /a/journal is a record"), "{same}");
        assert!(same.contains("start the version that wrote it again"), "{same}");
        let other = said(&[Record::Opened { version: 9, boot: "a".into() }]);
        assert!(other.starts_with("the journal has records of version 9, this agent writes 1"), "{other}");
    }

    #[test]
    fn after_another_boot_nothing_holds() {
        let mut records = start();
        records.extend(wanted("A", 1));
        let recovered = recover(records, "the next boot", config()).unwrap();
        assert_eq!(recovered.pool.pods().count(), 0);
        assert!(recovered.remark.unwrap().contains("earlier boot"));
    }

    #[test]
    fn a_journal_without_its_beginning_is_not_believed() {
        for records in [vec![], vec![opened("this boot")], wanted("A", 1)] {
            let recovered = recover(records, "this boot", config()).unwrap();
            assert_eq!(recovered.pool.pods().count(), 0);
        }
    }
}
