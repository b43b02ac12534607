//! What happens once a second: who is idle, who has not come back, which cards still work.

use gpupool_core::pool::{CardUuid, Event, Millis, PodId, Timestamp};
use gpupool_wire::ledger::Slot;
use tracing::info;

use super::PoolTask;
use crate::cards::watch::Look;

/// Nothing submitted for so long, and no utilisation: idle.
const IDLE_AFTER: Millis = Millis::from_secs(5);

impl PoolTask {
    pub(super) fn every_second(&mut self, now: Timestamp) {
        self.give_up_the_silent(now);
        self.watch_idleness(now);
        self.continue_evictions(now);
        self.settle_policy();
        self.try_again();
    }

    /// Tells the pool who began or ceased to be idle.
    fn watch_idleness(&mut self, now: Timestamp) {
        let running: Vec<(PodId, bool)> = self
            .pool
            .leases()
            .map(|lease| {
                // NVML counts for the whole card: where others use it too, only what is submitted tells.
                let shared = self.pool.leases().filter(|other| other.card == lease.card).count() > 1;
                let look = self.check.looks.get(lease.card);
                let busy = look.and_then(|look| look.utilisation).is_some_and(|percent| percent > 0);
                (lease.pod.clone(), busy && !shared)
            })
            .collect();
        for (pod, busy) in running {
            let submitted = self.take_submitted(&pod);
            let Some(files) = self.pages.get_mut(&pod) else { continue };
            if submitted || busy {
                files.submitted = now;
            }
            let idle = now - files.submitted >= IDLE_AFTER;
            if files.idle != idle {
                files.idle = idle;
                self.apply(&Event::Idle { pod, idle });
            }
        }
    }

    /// Whether a process of the pod has submitted work since this was asked last.
    fn take_submitted(&self, pod: &PodId) -> bool {
        let Some(ledger) = self.pages.ledger(pod) else {
            // Nothing is known about a pod whose ledger is not back: it counts as busy.
            return true;
        };
        let slots = self.registry.members_of(pod);
        let slots = slots.iter().filter_map(|key| Some(self.registry.process(*key)?.slot));
        let asked = ledger.with(|ledger| {
            // Every slot is asked, so that none keeps its mark.
            slots.filter(|slot| ledger.slot(*slot).is_some_and(Slot::take_submitted)).count() > 0
        });
        asked.unwrap_or(true)
    }

    /// Tells the pool which cards do not work any more.
    pub(super) fn lose_cards<'a>(&mut self, looks: impl Iterator<Item = &'a Look>) {
        let is_news = |look: &&Look| look.lost && self.is_lost(&look.card) == Some(false);
        let lost: Vec<CardUuid> = looks.filter(is_news).map(|look| look.card.clone()).collect();
        if lost.is_empty() {
            return;
        }
        // Nobody is let in on another one before the pool has heard who is there now.
        self.apply(&Event::CardsUnseen);
        for card in lost {
            info!("card {} is lost: its programs are ended, nobody gets it", self.card_name(&card));
            self.apply(&Event::CardLost { card });
        }
    }

    /// Tells the pool which cards work again.
    pub(super) fn find_cards(&mut self, looks: Vec<Look>) {
        for look in looks {
            if !look.lost && self.is_lost(&look.card) == Some(true) {
                info!("card {} is back", self.card_name(&look.card));
                self.apply(&Event::CardBack { card: look.card.clone() });
            }
            self.check.looks.insert(look.card.clone(), look);
        }
        self.publish_cards();
    }

    fn is_lost(&self, card: &CardUuid) -> Option<bool> {
        self.pool.cards().find(|known| known.uuid == card).map(|known| known.lost)
    }
}
