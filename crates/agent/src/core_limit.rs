//! The core limit: how fast the launches of a pod with a part of a card may go, so that it uses that part.
//!
//! A pod's processes pay for their launches from a bucket (`gpupool_wire::bucket`), each with what it has measured.
//! What they measure is not quite what the card does: a long kernel of theirs takes longer while others have their
//! turns. So the rate at which the bucket fills is corrected by what NVML says the pod really used: by the
//! [`Controller`] of each pod, ten times a second, with the shares that the [`meter`] reads. While no pod with a limit
//! below 100 runs, nothing here does anything.
//!
//! A limit is strict: a pod alone on its card has its part too, and not more. With `work_conserving` a pod that wants
//! more gets what its card has left, and gives it back when others want theirs.

mod controller;
pub(crate) mod meter;

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{CardUuid, PodId};
use gpupool_core::share::Percent;
use gpupool_wire::bucket::Rate;

use controller::Controller;
pub(crate) use controller::CoreReading;

/// With `work_conserving`: a card that is busy for this part of the time has nothing left to give.
const FULL: f64 = 0.95;

/// With `work_conserving`: the part of what its card has left that pods get at once.
const GIVE: f64 = 0.2;

/// With `work_conserving`: the part of what a pod got beyond its limit that it keeps when others want theirs.
const KEEP: f64 = 0.7;

/// A pod that holds a card: its limit and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pod: PodId,
    pub(crate) card: CardUuid,
    pub(crate) core: Percent,
}

/// The core limits of all pods that hold a part of a card.
#[derive(Debug)]
pub(crate) struct CoreLimits {
    work_conserving: bool,
    pods: BTreeMap<PodId, Limited>,
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

impl Limited {
    fn allowed(&self) -> f64 {
        (self.share + self.extra).min(1.0)
    }
}

impl CoreLimits {
    pub(crate) const fn new(work_conserving: bool) -> Self {
        Self { work_conserving, pods: BTreeMap::new() }
    }

    /// How fast a pod's launches may go.
    pub(crate) fn rate(&self, pod: &PodId) -> Rate {
        match self.pods.get(pod) {
            Some(limited) if !(self.work_conserving && limited.alone) => {
                limited.controller.rate(limited.allowed())
            }
            _ => Rate::UNLIMITED,
        }
    }

    /// These are all that hold cards now. Gives the cards on which use matters.
    pub(crate) fn follow(&mut self, holders: &[Holder]) -> BTreeSet<CardUuid> {
        let mut before = std::mem::take(&mut self.pods);
        for holder in holders.iter().filter(|holder| holder.core.get() < 100) {
            let alone = holders.iter().filter(|other| other.card == holder.card).count() == 1;
            let known = before.remove(&holder.pod).filter(|known| known.card == holder.card);
            let (extra, controller) =
                known.map_or_else(|| (0.0, Controller::new()), |known| (known.extra, known.controller));
            let (share, card) = (f64::from(holder.core.get()) / 100.0, holder.card.clone());
            self.pods.insert(holder.pod.clone(), Limited { card, share, extra, alone, controller });
        }
        self.pods.values().map(|limited| limited.card.clone()).collect()
    }

    /// The pods with a limit, and their cards.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&PodId, &CardUuid)> {
        self.pods.iter().map(|(pod, limited)| (pod, &limited.card))
    }

    /// Something was seen of a pod.
    pub(crate) fn look(&mut self, pod: &PodId, seen: CoreReading) {
        if let Some(limited) = self.pods.get_mut(pod) {
            let allowed = limited.allowed();
            limited.controller.look(seen, allowed);
        }
    }

    /// A card was busy for a part of the time, 0 to 1. With `work_conserving`, what is left goes to those that wait for
    /// it, and is taken back when there is nothing left.
    pub(crate) fn share_out(&mut self, card: &CardUuid, busy: f64) {
        if !self.work_conserving {
            return;
        }
        let here = |limited: &&mut Limited| limited.card == *card;
        let pressed = self.pods.values_mut().filter(here).filter(|one| one.controller.is_pressed()).count();
        for limited in self.pods.values_mut().filter(here) {
            if busy > FULL || !limited.controller.is_pressed() {
                limited.extra *= KEEP;
            } else {
                #[allow(clippy::cast_precision_loss, reason = "pods of one card")]
                let part = (1.0 - busy) * GIVE / pressed.max(1) as f64;
                limited.extra = (limited.extra + part).min(1.0 - limited.share);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpupool_wire::bucket::Usage;

    use super::*;

    fn holder(pod: &str, card: &str, core: u8) -> Holder {
        Holder { pod: pod.into(), card: card.into(), core: Percent::new(core.into()).unwrap() }
    }

    fn per_second(limits: &CoreLimits, pod: &str) -> u64 {
        limits.rate(&pod.into()).per_second
    }

    /// A look at a pod that waits for its limit.
    fn press(limits: &mut CoreLimits, pod: &str, look: u32) {
        let usage = Usage { charged: 0, waited: u64::from(look) + 1 };
        limits.look(&pod.into(), CoreReading { at: Duration::from_millis(100) * look, used: None, usage });
    }

    #[test]
    fn a_limit_is_strict_and_a_whole_card_has_none() {
        let mut limits = CoreLimits::new(false);
        let cards = limits.follow(&[holder("a", "one", 50), holder("b", "two", 100)]);
        assert_eq!(cards.into_iter().collect::<Vec<_>>(), ["one".into()]);
        assert_eq!(per_second(&limits, "a"), 500_000_000);
        assert!(!limits.rate(&"b".into()).is_limited() && !limits.rate(&"unknown".into()).is_limited());
        assert!(limits.follow(&[holder("b", "two", 100)]).is_empty(), "nobody's use matters any more");
    }

    #[test]
    fn a_work_conserving_node_limits_only_who_is_not_alone() {
        let mut limits = CoreLimits::new(true);
        limits.follow(&[holder("a", "one", 50), holder("b", "two", 30)]);
        assert!(!limits.rate(&"a".into()).is_limited());
        limits.follow(&[holder("a", "one", 50), holder("b", "one", 30)]);
        assert_eq!((per_second(&limits, "a"), per_second(&limits, "b")), (500_000_000, 300_000_000));
        limits.follow(&[holder("a", "one", 50)]);
        assert!(!limits.rate(&"a".into()).is_limited());
    }

    #[test]
    fn what_nobody_uses_goes_to_who_waits_for_it_and_comes_back_when_it_is_wanted() {
        let (mut limits, card) = (CoreLimits::new(true), CardUuid::from("one"));
        limits.follow(&[holder("a", "one", 50), holder("b", "one", 30)]);
        for look in 0..100 {
            press(&mut limits, "a", look);
            limits.share_out(&card, 0.6);
        }
        assert_eq!((per_second(&limits, "a"), per_second(&limits, "b")), (1_000_000_000, 300_000_000));
        for look in 100..130 {
            press(&mut limits, "a", look);
            press(&mut limits, "b", look);
            limits.share_out(&card, 1.0);
        }
        assert!(per_second(&limits, "a") < 501_000_000);
        let mut strict = CoreLimits::new(false);
        strict.follow(&[holder("a", "one", 50), holder("b", "one", 30)]);
        press(&mut strict, "a", 0);
        press(&mut strict, "a", 1);
        strict.share_out(&card, 0.0);
        assert_eq!(per_second(&strict, "a"), 500_000_000);
    }
}
