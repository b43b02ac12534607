//! The pod's ledger: made once, found again after a restart in a process that has it mapped, and never a second one beside
//! it while somebody may still count in the first: together they would take more than the pod's limit.

use std::sync::Arc;

use gpupool_core::pool::PodId;
use gpupool_wire::message::RefusalReason;
use tracing::warn;

use super::PoolTask;
use super::pod_pages::PodFiles;
use super::processes::ProgramRefusal;
use crate::pages::LedgerFile;
use crate::procfs::ProcessKey;
use crate::registry::{CardUse, PodEntry, Record};

/// In how many of a pod's processes its ledger is looked for. Each has it from its hello on, unless it has become another
/// program by `exec`, or wants to hide it: then the whole node does not wait until all its memory maps are read.
const MOST_SEARCHED: usize = 16;

impl PoolTask {
    /// Makes the pod's pages where it has none; no ledger while there may be another.
    pub(super) fn open_files(&mut self, pod: &PodId) -> std::io::Result<()> {
        let may_be_made = self.presence.has_looked() && self.counts_elsewhere(pod, None).is_none();
        if self.files_of(pod)?.ledger.is_some() || !may_be_made {
            return Ok(());
        }
        self.make_ledger(pod)
    }

    /// The same for a program that introduces itself. Who comes back with a lease keeps the ledger that it has; anybody
    /// else needs the one in which all of the pod count.
    pub(super) fn prepare_pages(
        &mut self,
        pod: &PodId,
        caller: ProcessKey,
        resumes: bool,
    ) -> Result<(), ProgramRefusal> {
        let ready = self.files_of(pod).map(|files| files.ledger.is_some());
        let made = match (ready, resumes) {
            (Ok(true), _) | (Ok(false), true) => Ok(()),
            (Ok(false), false) => match self.counts_elsewhere(pod, Some(caller)) {
                Some(other) => return Err(ledger_out_of_reach(pod, other)),
                None => self.make_ledger(pod),
            },
            (Err(failure), _) => Err(failure),
        };
        made.map_err(|failure| {
            warn!("cannot share memory with {pod}: {failure}");
            let sentence = format!("the agent cannot share memory with `{pod}`: {failure}");
            ProgramRefusal(RefusalReason::Other, sentence)
        })
    }

    /// Whether nothing can be said yet about a pod's ledger: it may have processes on a card that a lost journal does not
    /// know, and nobody has looked.
    pub(super) fn must_look_first(&self, pod: &PodId) -> bool {
        !self.presence.has_looked()
            && self.pages.ledger(pod).is_none()
            && self.counts_elsewhere(pod, None).is_none()
    }

    /// After a restart: looks for the pod's ledger in its processes.
    pub(super) fn find_ledger(&mut self, pod: &PodId) {
        let Some(made) = self.registry.pod(pod).and_then(|entry| entry.ledger) else { return };
        let mut living = self.registry.members_of(pod);
        living.retain(|key| self.members.contains_key(key));
        for key in living.iter().take(MOST_SEARCHED) {
            let Some(file) = self.environment.processes.open_shared(key.pid, made) else { continue };
            match LedgerFile::adopt(file, made).and_then(|ledger| self.put_ledger(pod, ledger)) {
                Ok(()) => return,
                Err(failure) => warn!("the ledger of {pod} cannot be taken back: {failure}"),
            }
        }
        if let Some(other) = self.counts_elsewhere(pod, None) {
            warn!(
                "the ledger of {pod} is not found in any of its processes: no other program of it gets a card until \
                 process {} has ended",
                other.pid
            );
        }
    }

    /// While the agent has no ledger of the pod: one of its living processes that may hold memory and count it in a ledger
    /// of its own; also one that the agent does not know any more, because the journal was lost. `caller` is one that says
    /// that it has begun anew; NVML may know better.
    fn counts_elsewhere(&self, pod: &PodId, caller: Option<ProcessKey>) -> Option<ProcessKey> {
        let holds = |key: &ProcessKey| {
            Some(*key) != caller
                && self.registry.process(*key).is_some_and(|process| process.using == CardUse::Holding)
        };
        let mut members = self.registry.members_of(pod).into_iter();
        let member = members.find(|key| holds(key) || self.presence.shows(*key));
        let is_unknown = |key: &ProcessKey| {
            self.registry.process(*key).is_none() && self.pod_of_process(*key).as_ref() == Some(pod)
        };
        member.or_else(|| self.presence.all().find(is_unknown))
    }

    /// Makes a ledger. Members of before it have their slots there, and can't come to hold anything before they have it:
    /// without a connection a program introduces itself first.
    fn make_ledger(&mut self, pod: &PodId) -> std::io::Result<()> {
        let ledger = LedgerFile::create()?;
        let inode = ledger.inode();
        self.put_ledger(pod, ledger)?;
        for key in self.registry.members_of(pod) {
            if let Some(process) = self.registry.process(key) {
                self.pages.assign_slot(pod, process.slot);
            }
            if let Some(connection) = self.members.get(&key).and_then(|member| member.connection) {
                self.connections.cut(connection);
            }
        }
        if let Some(entry) = self.registry.pod(pod).cloned() {
            let entry = PodEntry { ledger: Some(inode), ..entry };
            self.record(Record::Pod { pod: pod.clone(), entry });
        }
        Ok(())
    }

    fn put_ledger(&mut self, pod: &PodId, ledger: LedgerFile) -> std::io::Result<()> {
        self.files_of(pod)?.ledger = Some(Arc::new(ledger));
        Ok(())
    }

    fn files_of(&mut self, pod: &PodId) -> std::io::Result<&mut PodFiles> {
        let limits = self.limits_of(pod);
        let now = self.now();
        self.pages.open(pod, limits, now)
    }
}

fn ledger_out_of_reach(pod: &PodId, other: ProcessKey) -> ProgramRefusal {
    let sentence = format!(
        "the agent was started again and cannot see what process {} of `{pod}` counts: end that process first",
        other.pid
    );
    ProgramRefusal(RefusalReason::Other, sentence)
}
