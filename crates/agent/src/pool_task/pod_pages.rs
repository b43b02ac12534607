//! What a pod shares with the agent: its limits page, its ledger's file, and what was last seen there.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpupool_core::pool::{PodId, Timestamp};
use gpupool_wire::ledger::Slot;
use gpupool_wire::limits::Limits;

use crate::core_limit::CoreLimits;
use crate::pages::{LedgerFile, LimitsFile};

/// The open files of one pod.
#[derive(Debug)]
pub(super) struct PodFiles {
    pub(super) limits: LimitsFile,
    pub(super) ledger: Option<Arc<LedgerFile>>,
    /// When one of its processes last submitted work.
    pub(super) submitted: Timestamp,
    /// What the pool was told last.
    pub(super) idle: bool,
}

/// Those of all pods.
#[derive(Debug)]
pub(super) struct PodPages {
    /// The rates that the limits pages show.
    pub(super) core_limits: CoreLimits,
    files: BTreeMap<PodId, PodFiles>,
}

impl PodPages {
    /// No pod has files yet.
    pub(super) fn new(work_conserving: bool) -> Self {
        Self { core_limits: CoreLimits::new(work_conserving), files: BTreeMap::new() }
    }

    pub(super) fn get(&self, pod: &PodId) -> Option<&PodFiles> {
        self.files.get(pod)
    }

    pub(super) fn get_mut(&mut self, pod: &PodId) -> Option<&mut PodFiles> {
        self.files.get_mut(pod)
    }

    pub(super) fn remove(&mut self, pod: &PodId) {
        self.files.remove(pod);
    }

    pub(super) fn pods(&self) -> Vec<PodId> {
        self.files.keys().cloned().collect()
    }

    /// The pod's files, with a new page of these limits where it has none.
    pub(super) fn open(
        &mut self,
        pod: &PodId,
        limits: Limits,
        now: Timestamp,
    ) -> std::io::Result<&mut PodFiles> {
        if !self.files.contains_key(pod) {
            let limits = LimitsFile::create(limits)?;
            let files = PodFiles { limits, ledger: None, submitted: now, idle: false };
            self.files.insert(pod.clone(), files);
        }
        self.files.get_mut(pod).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// The pod's ledger; nothing while a restarted agent has not got it back.
    pub(super) fn ledger(&self, pod: &PodId) -> Option<&Arc<LedgerFile>> {
        self.files.get(pod)?.ledger.as_ref()
    }

    /// The ledgers of all pods.
    pub(super) fn ledgers(&self) -> BTreeMap<PodId, Arc<LedgerFile>> {
        self.files.iter().filter_map(|(pod, files)| Some((pod.clone(), files.ledger.clone()?))).collect()
    }

    /// Gives a slot of the pod's ledger to a process.
    pub(super) fn assign_slot(&self, pod: &PodId, slot: u32) {
        if let Some(ledger) = self.ledger(pod) {
            ledger.with(|ledger| ledger.assign(slot).is_some());
        }
    }

    /// Takes back what a process had counted in its slot; nothing where the slot is another's by now, which a journal that
    /// lacks its end does not know.
    pub(super) fn reclaim_slot(&self, pod: &PodId, slot: u32, pid: u32) {
        let owner = self.slot(pod, slot, Slot::agents_pid).unwrap_or(0);
        if let Some(ledger) = self.ledger(pod).filter(|_| owner == 0 || owner == pid) {
            ledger.with(|ledger| ledger.reclaim(slot));
        }
    }

    /// Looks at a slot; nothing while a restarted agent has not got the ledger back.
    pub(super) fn slot<T>(&self, pod: &PodId, slot: u32, look: impl FnOnce(&Slot) -> T) -> Option<T> {
        self.ledger(pod)?.with(|ledger| ledger.slot(slot).map(look))?
    }
}

#[cfg(test)]
mod tests {
    use gpupool_wire::bucket::Rate;
    use gpupool_wire::limits::PodState;

    use super::*;

    fn opened() -> (PodPages, PodId) {
        let (mut pages, pod) = (PodPages::new(false), PodId::from("a"));
        let limits = Limits {
            core_percent: 50,
            core_rate: Rate::UNLIMITED,
            memory_bytes: 1 << 30,
            context_reserve_bytes: 0,
            state: PodState::Ready,
            position: 1,
            card: 0,
        };
        pages.open(&pod, limits, Timestamp(5)).unwrap();
        pages.open(&pod, limits, Timestamp(9)).unwrap();
        (pages, pod)
    }

    #[test]
    fn a_page_is_made_once_and_a_pod_without_its_ledger_has_no_slots() {
        let (pages, pod) = opened();
        assert_eq!(pages.get(&pod).map(|files| files.submitted), Some(Timestamp(5)));
        assert!(pages.ledgers().is_empty());
        assert_eq!(pages.slot(&pod, 0, Slot::contexts), None);
    }

    #[test]
    fn what_a_slot_counted_is_gone_when_it_is_reclaimed() {
        let (mut pages, pod) = opened();
        pages.get_mut(&pod).unwrap().ledger = Some(Arc::new(LedgerFile::create().unwrap()));
        pages.assign_slot(&pod, 2);
        pages.ledger(&pod).unwrap().with(|ledger| ledger.charge_anyway(2, 4096));
        assert_eq!(pages.slot(&pod, 2, Slot::committed), Some(4096));
        pages.slot(&pod, 2, |slot| slot.set_agents_pid(7));
        pages.reclaim_slot(&pod, 2, 6);
        assert_eq!(pages.slot(&pod, 2, Slot::committed), Some(4096), "it is another's");
        pages.reclaim_slot(&pod, 2, 7);
        assert_eq!(pages.ledger(&pod).unwrap().with(|ledger| ledger.committed()), Some(0));
    }
}
