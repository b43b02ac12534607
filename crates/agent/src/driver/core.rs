//! Core limits of the pods that hold cards: whose launches are limited, and how fast they may go.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{CardUuid, PodId};
use gpupool_core::share::Percent;
use gpupool_wire::bucket::Rate;

use super::{Driver, clock};
use crate::core_limit::meter::{Meter, Shares};
use crate::core_limit::{Controller, Seen};

/// With `work_conserving`: a card that is busy for this part of the time has nothing left to give.
const FULL: f64 = 0.95;

/// With `work_conserving`: how much more a pod gets at once, of what its card has left.
const GIVE: f64 = 0.2;

/// With `work_conserving`: what a pod keeps at once of what it got beyond its share, when others want theirs.
const KEEP: f64 = 0.7;

/// The controllers of the pods that hold a part of a card.
#[derive(Debug)]
pub(crate) struct CoreLimits {
    meter: Meter,
    work_conserving: bool,
    pods: BTreeMap<PodId, Limited>,
    cards: BTreeSet<CardUuid>,
}

#[derive(Debug)]
struct Limited {
    card: CardUuid,
    /// Its limit, 0 to 1.
    share: f64,
    /// What it may have beyond that because nobody else wants it, 0 to 1.
    extra: f64,
    /// Nobody else is on its card.
    alone: bool,
    controller: Controller,
}

impl CoreLimits {
    pub(crate) const fn new(meter: Meter, work_conserving: bool) -> Self {
        Self { meter, work_conserving, pods: BTreeMap::new(), cards: BTreeSet::new() }
    }

    /// How fast a pod's launches may go.
    pub(super) fn rate(&self, pod: &PodId) -> Rate {
        match self.pods.get(pod) {
            Some(limited) if !(self.work_conserving && limited.alone) => {
                limited.controller.rate((limited.share + limited.extra).min(1.0))
            }
            _ => Rate::UNLIMITED,
        }
    }

    /// These pods hold cards: their limits and where.
    fn follow(&mut self, leases: &[(PodId, CardUuid, Percent)]) {
        let limited = leases.iter().filter(|(_, _, core)| core.get() < 100);
        let mut pods = BTreeMap::new();
        for (pod, card, core) in limited {
            let (share, alone) =
                (f64::from(core.get()) / 100.0, leases.iter().filter(|other| other.1 == *card).count() == 1);
            let before = self.pods.remove(pod).filter(|before| before.card == *card);
            let controller = before.map_or_else(Controller::new, |before| before.controller);
            let limited = Limited { card: card.clone(), share, extra: 0.0, alone, controller };
            pods.insert(pod.clone(), limited);
        }
        self.pods = pods;
        let cards: BTreeSet<_> = self.pods.values().map(|limited| limited.card.clone()).collect();
        if cards != self.cards {
            self.cards = cards;
            self.meter.read_cards(self.cards.iter().cloned().collect());
        }
    }

    /// What others leave is given to those that wait for it, and taken back when they want it.
    fn share_out(&mut self, card: &CardUuid, used: f64) {
        let here = |limited: &&mut Limited| limited.card == *card;
        let pressed = self.pods.values_mut().filter(here).filter(|one| one.controller.is_pressed()).count();
        for limited in self.pods.values_mut().filter(here) {
            if used > FULL || !limited.controller.is_pressed() {
                limited.extra *= KEEP;
            } else {
                #[allow(clippy::cast_precision_loss, reason = "pods of one card")]
                let part = (1.0 - used) * GIVE / pressed.max(1) as f64;
                limited.extra = (limited.extra + part).min(1.0 - limited.share);
            }
        }
    }
}

impl Driver {
    /// Somebody may have got or left a card.
    pub(super) fn follow_core_limits(&mut self) {
        let leases: Vec<_> = self
            .pool
            .leases()
            .map(|lease| (lease.pod.clone(), lease.card.clone(), lease.limits.core))
            .collect();
        self.core_limits.follow(&leases);
    }

    /// NVML was asked who used how much of a card.
    pub(super) fn metered(&mut self, shares: &[Shares]) {
        let at = std::time::Duration::from_millis(clock().0);
        let pods: Vec<PodId> = self.core_limits.pods.keys().cloned().collect();
        for pod in &pods {
            let Some(usage) = self
                .files
                .get(pod)
                .and_then(|files| files.ledger.as_ref())
                .and_then(|ledger| ledger.with(|ledger| ledger.bucket().usage()))
            else {
                continue;
            };
            let members = self.books.members_of(pod);
            let Some(limited) = self.core_limits.pods.get_mut(pod) else { continue };
            let by_process = shares
                .iter()
                .find(|shares| shares.card == limited.card)
                .and_then(|shares| shares.by_process.as_ref());
            let used = by_process
                .map(|by_process| members.iter().filter_map(|key| by_process.get(&key.pid)).sum::<f64>());
            let share = (limited.share + limited.extra).min(1.0);
            limited.controller.look(Seen { at, used, usage }, share);
        }
        if self.core_limits.work_conserving {
            for shares in shares {
                if let Some(used) = shares.card_used {
                    self.core_limits.share_out(&shares.card, used);
                }
            }
        }
        for pod in pods {
            self.publish_pod(&pod);
        }
    }
}
