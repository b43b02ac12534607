//! What one input leaves to be written and told, in this order: its records go to the journal, then its effects out.

use gpupool_core::pool::{CardUuid, LeaseId, PodId};
use gpupool_wire::message::RefusalReason;

use crate::environment::JournalWriter;
use crate::event::ConnectionId;
use crate::notice::{Notice, Warrant};
use crate::procfs::ProcessKey;
use crate::registry::Record;

/// The journal is written anew when it has grown to this many bytes and to [`GROWTH`] times its last snapshot.
const COMPACT_FROM: u64 = 1 << 20;

/// See [`COMPACT_FROM`].
const GROWTH: u64 = 4;

/// Something that others notice. Carried out in order, after the journal was written.
#[derive(Debug)]
pub(super) enum Effect {
    Welcome { to: ConnectionId, pod: PodId, slot: u32 },
    Granted { to: ConnectionId, pod: PodId, card: CardUuid, lease: LeaseId },
    Refused { to: ConnectionId, reason: RefusalReason, sentence: String },
    Signal { to: ProcessKey, warrant: Warrant },
    Notice(Notice),
}

/// A write of the journal failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WriteFailure {
    /// What to say about it; nothing when that was said already.
    pub(super) sentence: Option<String>,
}

/// The records and effects of one input, and how the journal is that they go to.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    records: Vec<Record>,
    effects: Vec<Effect>,
    /// Leases granted to pods of which nobody waits any more.
    unclaimed: Vec<(PodId, LeaseId)>,
    /// Length of the journal after its last snapshot, in bytes.
    snapshot_length: u64,
    /// The last write failed: the journal lacks something.
    journal_failed: bool,
}

impl Outbox {
    /// Notes a record.
    pub(super) fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Notes an effect.
    pub(super) fn tell(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Notes a lease that must go back.
    pub(super) fn give_back(&mut self, pod: PodId, lease: LeaseId) {
        self.unclaimed.push((pod, lease));
    }

    /// The next lease that must go back.
    pub(super) fn next_unclaimed(&mut self) -> Option<(PodId, LeaseId)> {
        self.unclaimed.pop()
    }

    /// Whether anything is to be written.
    pub(super) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Drops the records: a snapshot stands for them.
    pub(super) fn forget_records(&mut self) {
        self.records.clear();
    }

    /// The effects, to be carried out now.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Writes the records, or a snapshot where the journal lacks something or has grown.
    pub(super) fn write(
        &mut self,
        journal: &mut dyn JournalWriter,
        snapshot: impl FnOnce() -> [Record; 2],
    ) -> Result<(), WriteFailure> {
        if self.records.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.records);
        let grown = journal.length() > COMPACT_FROM.max(GROWTH * self.snapshot_length);
        if self.journal_failed || grown {
            return self.write_snapshot(journal, &snapshot());
        }
        journal.append(&records).map_err(|failure| {
            self.journal_failed = true;
            let sentence = format!("{failure}; an agent started now would not know the latest changes");
            WriteFailure { sentence: Some(sentence) }
        })
    }

    /// Puts everything that holds into the place of the journal.
    pub(super) fn write_snapshot(
        &mut self,
        journal: &mut dyn JournalWriter,
        snapshot: &[Record; 2],
    ) -> Result<(), WriteFailure> {
        match journal.replace(snapshot) {
            Ok(()) => {
                self.snapshot_length = journal.length();
                self.journal_failed = false;
                Ok(())
            }
            Err(failure) => {
                let said = std::mem::replace(&mut self.journal_failed, true);
                Err(WriteFailure { sentence: (!said).then(|| failure.to_string()) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalError;

    #[derive(Debug, Default)]
    struct Log {
        written: Vec<Record>,
        length: u64,
        fails: bool,
    }

    impl Log {
        fn check(&self) -> Result<(), JournalError> {
            let source = std::io::ErrorKind::StorageFull.into();
            let failure = JournalError::File { action: "write to", path: "log".into(), source };
            if self.fails { Err(failure) } else { Ok(()) }
        }
    }

    impl JournalWriter for Log {
        fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
            self.check()?;
            self.written.extend_from_slice(records);
            Ok(())
        }

        fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
            self.check()?;
            self.written = records.to_vec();
            Ok(())
        }

        fn length(&self) -> u64 {
            self.length
        }
    }

    fn gone(pod: &str) -> Record {
        Record::PodGone { pod: pod.into() }
    }

    fn snapshot() -> [Record; 2] {
        [gone("all"), gone("of it")]
    }

    fn write(outbox: &mut Outbox, log: &mut Log, pod: &str) -> Result<(), WriteFailure> {
        outbox.record(gone(pod));
        outbox.write(log, snapshot)
    }

    #[test]
    fn records_are_written_once() {
        let (mut outbox, mut log) = (Outbox::default(), Log::default());
        write(&mut outbox, &mut log, "a").unwrap();
        outbox.write(&mut log, snapshot).unwrap();
        assert_eq!(log.written, [gone("a")]);
    }

    #[test]
    fn after_a_failure_which_is_said_once_a_snapshot_makes_the_journal_whole() {
        let (mut outbox, mut log) = (Outbox::default(), Log { fails: true, ..Log::default() });
        let first = write(&mut outbox, &mut log, "a").unwrap_err().sentence.unwrap();
        assert!(first.ends_with("an agent started now would not know the latest changes"), "{first}");
        assert_eq!(write(&mut outbox, &mut log, "b"), Err(WriteFailure { sentence: None }));
        log.fails = false;
        write(&mut outbox, &mut log, "c").unwrap();
        write(&mut outbox, &mut log, "d").unwrap();
        assert_eq!(log.written, [gone("all"), gone("of it"), gone("d")]);
    }

    #[test]
    fn a_journal_that_has_grown_is_written_anew() {
        let (mut outbox, mut log) = (Outbox::default(), Log { length: COMPACT_FROM + 1, ..Log::default() });
        write(&mut outbox, &mut log, "a").unwrap();
        assert_eq!(log.written, snapshot());
    }
}
