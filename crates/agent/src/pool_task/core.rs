//! Core limits of the pods that hold cards: what they are told, and what is seen of them.

use std::time::Duration;

use gpupool_core::pool::PodId;

use super::PoolTask;
use crate::core_limit::meter::Shares;
use crate::core_limit::{CoreReading, Holder};

impl PoolTask {
    /// Somebody may have got or left a card.
    pub(super) fn follow_core_limits(&mut self) {
        let holders = self.pool.leases().map(|lease| Holder {
            pod: lease.pod.clone(),
            card: lease.card.clone(),
            core: lease.limits.core,
        });
        let cards = self.pages.core_limits.follow(&holders.collect::<Vec<_>>());
        self.environment.meter.read_cards(cards);
    }

    /// NVML was asked who used how much of a card.
    pub(super) fn metered(&mut self, shares: &[Shares]) {
        let at = Duration::from_millis(self.now().0);
        let pods: Vec<(PodId, Option<f64>)> = self
            .pages
            .core_limits
            .pods()
            .map(|(pod, card)| {
                let shares = shares.iter().find(|shares| shares.card == *card);
                let by_process = shares.and_then(|shares| shares.by_process.as_ref());
                let members = self.registry.members_of(pod);
                let used = |of: &std::collections::BTreeMap<u32, f64>| {
                    members.iter().filter_map(|key| of.get(&key.pid)).sum::<f64>()
                };
                (pod.clone(), by_process.map(used))
            })
            .collect();
        for (pod, used) in &pods {
            let ledger = self.pages.ledger(pod);
            if let Some(usage) = ledger.and_then(|ledger| ledger.with(|ledger| ledger.bucket().usage())) {
                self.pages.core_limits.look(pod, CoreReading { at, used: *used, usage });
            }
        }
        for shares in shares {
            if let Some(busy) = shares.card_used {
                self.pages.core_limits.share_out(&shares.card, busy);
            }
        }
        for (pod, _) in pods {
            self.publish_pod(&pod);
        }
    }
}
