//! How pods are held, and what nothing holds: the figures of the agent's own check on the shim.

use prometheus_client::encoding::DescriptorEncoder;

use super::{Scrape, family, one};
use crate::admin_api::{Hold, WhyHeldBack};

impl Scrape {
    /// The families of the check.
    pub(super) fn hold(&self, out: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let unaccounted = self.pods.iter().filter_map(|pod| {
            let bytes = i64::try_from(pod.hold.unaccounted_bytes?).unwrap_or(i64::MAX);
            Some((self.pod_labels(pod), bytes))
        });
        family(
            out,
            "gpupool_unaccounted_memory_bytes",
            "Device memory that NVML shows of the pod's processes and its ledger does not count",
            unaccounted,
        )?;
        let not_held = self.pods.iter().map(|pod| (self.pod_labels(pod), count(pod.hold.not_held.len())));
        family(out, "gpupool_not_held_processes", "GPU processes of the pod that nothing holds", not_held)?;
        let held = self.pods.iter().map(|pod| {
            let [node, name, namespace] = self.pod_labels(pod);
            let by = [("memory", word(pod.hold.memory)), ("core", word(pod.hold.core))];
            ([node, name, namespace, by[0], by[1]], 1)
        });
        family(
            out,
            "gpupool_hold_info",
            "What holds the pod to its memory limit and to its core limit",
            held,
        )?;
        let strangers = self.cards.iter().map(|card| {
            let labels =
                [("node", self.node.clone()), ("gpu", card.index.to_string()), ("UUID", card.uuid.clone())];
            (labels, count(card.strangers))
        });
        family(out, "gpupool_stranger_processes", "Processes of no pod that use the card", strangers)?;
        let held_back = self.cards.iter().flat_map(|card| {
            WhyHeldBack::ALL.into_iter().map(|why| {
                let labels = [
                    ("node", self.node.clone()),
                    ("gpu", card.index.to_string()),
                    ("UUID", card.uuid.clone()),
                    ("why", why.word().to_owned()),
                ];
                (labels, i64::from(card.held_back.contains(&why)))
            })
        });
        family(
            out,
            "gpupool_card_held_back",
            "Whether the card, or a pod's share of it, is held back from others for this reason",
            held_back,
        )?;
        one(
            out,
            "gpupool_evictions",
            "Pods whose GPU processes were ended for memory over their limit",
            &[("node", self.node.as_str())],
            &self.counters.evictions,
        )
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

const fn word(hold: Hold) -> &'static str {
    match hold {
        Hold::Unused => "unused",
        Hold::Unlimited => "unlimited",
        Hold::Shim => "shim",
        Hold::Partly => "partly",
        Hold::Nothing => "nothing",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::admin_api::{Hold, HoldStatus, NotHeldStatus, WhyNotHeld};

    /// A pod that is held in part, or that has no GPU process.
    pub(in crate::metrics) fn held(partly: bool) -> HoldStatus {
        let process =
            NotHeldStatus { pid: 7, card: 0, memory_bytes: Some(4096), why: WhyNotHeld::PastTheShim };
        HoldStatus {
            memory: if partly { Hold::Partly } else { Hold::Unused },
            core: if partly { Hold::Unlimited } else { Hold::Unused },
            unaccounted_bytes: Some(if partly { 4096 } else { 0 }),
            not_held: partly.then_some(process).into_iter().collect(),
        }
    }
}
