//! Who is on the cards: what NVML last showed there, less the processes that have ended since.
//!
//! What a program says or writes counts for nothing here. The reading is at most a second old, or younger where
//! somebody said that a card is needed no more. That is enough: what a program takes past the shim within that second
//! it could as well take a moment after the grant, and either way the next look shows it.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{CardUuid, Millis, Occupants, PodId, Timestamp};

use crate::procfs::ProcessKey;
use crate::usage_audit::TOLERANCE;

/// A look that is older than this tells nothing any more about who is on a card.
const STALE_AFTER: Millis = Millis::from_secs(10);

/// A process on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) key: ProcessKey,
    /// Its pod; nothing for a stranger.
    pub(super) pod: Option<PodId>,
    /// Device memory it takes there, in bytes; `None` where NVML does not say.
    pub(super) bytes: Option<u64>,
}

/// Why nobody new is let in on a card. The order is that in which they are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ground {
    /// NVML has not said who is there.
    NotSeen,
    /// Processes of no pod.
    Stranger,
    /// A pod without a lease of the card.
    NoLease,
    /// A pod that takes more than its lease allows, in bytes.
    OverLimit(u64),
}

/// Somebody who keeps others off a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occupant {
    pub(super) ground: Ground,
    /// Nothing for strangers together.
    pub(super) pod: Option<PodId>,
    pub(super) held: Held,
}

/// What somebody has on a card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held {
    pub(super) pids: Vec<u32>,
    /// In bytes; `None` where NVML does not say it of every process.
    pub(super) bytes: Option<u64>,
}

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    /// That was too long ago.
    old: bool,
    /// The last request for a look that it answers.
    answers: u64,
    processes: Vec<Present>,
}

/// The last look at each card, and which later one must be waited for.
#[derive(Debug, Default)]
pub(super) struct Presence {
    cards: BTreeMap<CardUuid, Seen>,
    /// Processes that said that they need their pod's card no more, and live: the request that was made then.
    claims: BTreeMap<ProcessKey, (PodId, u64)>,
    /// Somebody came or went since this was last asked.
    changed: bool,
}

impl Presence {
    /// A look at one card that began at that moment, after the request `answers` for one.
    pub(super) fn take_in(&mut self, card: CardUuid, at: Timestamp, answers: u64, processes: Vec<Present>) {
        self.cards.insert(card, Seen { at, old: false, answers, processes });
        self.changed = true;
    }

    /// Forgets looks that are too old to tell anything; true where there were such. Processes that were seen then are
    /// not forgotten.
    pub(super) fn forget_old(&mut self, now: Timestamp) -> bool {
        let mut forgot = false;
        for seen in self.cards.values_mut().filter(|seen| !seen.old && now - seen.at > STALE_AFTER) {
            (seen.old, forgot) = (true, true);
        }
        self.changed |= forgot;
        forgot
    }

    /// Whether who is on the cards may be another than when this was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// A process has ended: nothing of it is on a card any more, whatever it said.
    pub(super) fn forget_process(&mut self, key: ProcessKey) {
        self.claims.remove(&key);
        for seen in self.cards.values_mut() {
            let before = seen.processes.len();
            seen.processes.retain(|process| process.key != key);
            self.changed |= seen.processes.len() < before;
        }
    }

    /// A living process says that it needs its pod's card no more: the look `request` must show it.
    pub(super) fn claimed(&mut self, key: ProcessKey, pod: &PodId, request: u64) {
        self.claims.insert(key, (pod.clone(), request));
    }

    /// The pod's lease is over.
    pub(super) fn forget_claims(&mut self, pod: &PodId) {
        self.claims.retain(|_, (claimant, _)| claimant != pod);
    }

    /// Whether the pod has left the card: it was looked at since the last of its processes said so, and nothing of the
    /// pod is there.
    pub(super) fn has_left(&self, pod: &PodId, card: &CardUuid) -> bool {
        let Some(seen) = self.cards.get(card).filter(|seen| !seen.old) else { return false };
        let mut claims = self.claims.values().filter(|(claimant, _)| claimant == pod);
        claims.all(|(_, request)| *request <= seen.answers) && !self.held(pod, card).is_more_than(0)
    }

    /// Whether this agent has looked at the cards at all.
    pub(super) fn has_looked(&self) -> bool {
        !self.cards.is_empty()
    }

    /// All processes that are on a card; one that is on two comes twice.
    pub(super) fn all(&self) -> impl Iterator<Item = ProcessKey> {
        self.cards.values().flat_map(|seen| &seen.processes).map(|process| process.key)
    }

    /// Whether a process is on any card.
    pub(super) fn shows(&self, key: ProcessKey) -> bool {
        self.all().any(|present| present == key)
    }

    /// What a pod has on a card.
    pub(super) fn held(&self, pod: &PodId, card: &CardUuid) -> Held {
        Held::of(self.on(card).iter().filter(|process| process.pod.as_ref() == Some(pod)))
    }

    /// A card on which a pod has something.
    pub(super) fn card_of(&self, pod: &PodId) -> Option<&CardUuid> {
        self.cards.keys().find(|card| self.held(pod, card).is_more_than(0))
    }

    /// A pod's processes on a card.
    pub(super) fn processes(&self, pod: &PodId, card: &CardUuid) -> Vec<ProcessKey> {
        let mine = self.on(card).iter().filter(|process| process.pod.as_ref() == Some(pod));
        mine.map(|process| process.key).collect()
    }

    /// Whoever keeps others off a card; `limit` says what a pod's lease of it allows, in bytes, if it has one.
    pub(super) fn occupants(&self, card: &CardUuid, limit: impl Fn(&PodId) -> Option<u64>) -> Vec<Occupant> {
        let mut occupants = Vec::new();
        if !self.is_seen(card) {
            occupants.push(Occupant { ground: Ground::NotSeen, pod: None, held: Held::default() });
        }
        let owners: BTreeSet<Option<&PodId>> =
            self.on(card).iter().map(|process| process.pod.as_ref()).collect();
        for owner in owners {
            let held = Held::of(self.on(card).iter().filter(|process| process.pod.as_ref() == owner));
            let ground = match owner.map(&limit) {
                None => Ground::Stranger,
                Some(None) => Ground::NoLease,
                Some(Some(limit)) => Ground::OverLimit(limit),
            };
            let is_there = match ground {
                // Where NVML does not say how much, it may be within the limit.
                Ground::OverLimit(limit) => held.bytes.is_some() && held.is_more_than(limit),
                _ => held.is_more_than(0),
            };
            if is_there {
                occupants.push(Occupant { ground, pod: owner.cloned(), held });
            }
        }
        occupants.sort_by_key(|occupant| occupant.ground);
        occupants
    }

    fn is_seen(&self, card: &CardUuid) -> bool {
        self.cards.get(card).is_some_and(|seen| !seen.old)
    }

    fn on(&self, card: &CardUuid) -> &[Present] {
        self.cards.get(card).map_or(&[], |seen| &seen.processes)
    }
}

impl Held {
    fn of<'a>(processes: impl Iterator<Item = &'a Present>) -> Self {
        let (mut pids, mut bytes) = (Vec::new(), Some(0_u64));
        for process in processes {
            pids.push(process.key.pid);
            bytes = bytes.zip(process.bytes).map(|(sum, more)| sum.saturating_add(more));
        }
        Self { pids, bytes }
    }

    /// Whether this is more than `allowed` bytes and what a driver may add to them, whatever the number of processes.
    fn is_more_than(&self, allowed: u64) -> bool {
        let most = allowed.saturating_add(TOLERANCE);
        !self.pids.is_empty() && self.bytes.is_none_or(|bytes| bytes > most)
    }
}

/// The same as the pool wants it.
pub(super) fn for_pool(occupants: &[Occupant]) -> Occupants {
    Occupants {
        pods: occupants.iter().filter_map(|occupant| occupant.pod.clone()).collect(),
        strangers: occupants.iter().any(|occupant| occupant.pod.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIBIBYTE: u64 = 1 << 30;

    fn card() -> CardUuid {
        "GPU-0".into()
    }

    fn present(pid: u32, pod: Option<&str>, bytes: Option<u64>) -> Present {
        Present { key: ProcessKey { pid, start: 1 }, pod: pod.map(PodId::from), bytes }
    }

    fn seen(processes: Vec<Present>) -> Presence {
        let mut presence = Presence::default();
        presence.take_in(card(), Timestamp(0), 0, processes);
        presence
    }

    /// Who keeps others off the card where every pod but `b` has a lease of a gibibyte.
    fn grounds(presence: &Presence) -> Vec<Ground> {
        let limit = |pod: &PodId| (pod.as_str() != "b").then_some(GIBIBYTE);
        let occupants = presence.occupants(&card(), limit);
        occupants.into_iter().map(|occupant| occupant.ground).collect()
    }

    #[test]
    fn a_card_that_was_not_looked_at_or_long_ago_is_nobodys() {
        assert_eq!(grounds(&Presence::default()), [Ground::NotSeen]);
        let mut presence = seen(vec![]);
        assert!(!presence.forget_old(Timestamp(STALE_AFTER.0)));
        assert_eq!(grounds(&presence), []);
        assert!(presence.forget_old(Timestamp(STALE_AFTER.0 + 1)));
        assert!(!presence.has_left(&"a".into(), &card()));
        assert_eq!(grounds(&presence), [Ground::NotSeen]);
        presence.take_in(card(), Timestamp(STALE_AFTER.0 + 2), 0, vec![]);
        assert_eq!(grounds(&presence), []);
    }

    #[test]
    fn strangers_pods_without_a_lease_and_pods_over_their_limit_keep_others_out() {
        let over = GIBIBYTE + TOLERANCE + 1;
        let all = vec![
            present(1, Some("a"), Some(over)),
            present(2, Some("b"), Some(GIBIBYTE)),
            present(3, None, Some(GIBIBYTE)),
        ];
        let expected = [Ground::Stranger, Ground::NoLease, Ground::OverLimit(GIBIBYTE)];
        assert_eq!(grounds(&seen(all)), expected);
        assert_eq!(grounds(&seen(vec![present(1, Some("a"), Some(over - 1))])), []);
    }

    #[test]
    fn what_a_driver_may_add_does_not_grow_with_the_number_of_processes() {
        for pod in [None, Some("b")] {
            let small = |count| seen((1..=count).map(|pid| present(pid, pod, Some(TOLERANCE / 4))).collect());
            assert_eq!(grounds(&small(4)), [], "{pod:?}");
            assert_eq!(grounds(&small(5)).len(), 1, "{pod:?}");
        }
    }

    #[test]
    fn memory_that_nvml_does_not_tell_keeps_others_out_unless_it_may_be_within_a_limit() {
        assert_eq!(grounds(&seen(vec![present(1, None, None)])), [Ground::Stranger]);
        assert_eq!(grounds(&seen(vec![present(1, Some("b"), None)])), [Ground::NoLease]);
        assert_eq!(grounds(&seen(vec![present(1, Some("a"), None)])), []);
    }

    #[test]
    fn a_pod_has_left_when_a_look_after_its_word_shows_nothing_of_it() {
        let mut presence = seen(vec![present(1, Some("a"), Some(GIBIBYTE))]);
        let pod = PodId::from("a");
        assert!(!presence.has_left(&pod, &card()), "it is there");
        presence.forget_process(ProcessKey { pid: 1, start: 1 });
        assert!(presence.has_left(&pod, &card()));
        let claimant = ProcessKey { pid: 2, start: 1 };
        presence.claimed(claimant, &pod, 3);
        presence.take_in(card(), Timestamp(1), 2, vec![]);
        assert!(!presence.has_left(&pod, &card()), "that look began before its word");
        presence.take_in("GPU-1".into(), Timestamp(2), 3, vec![]);
        assert!(!presence.has_left(&pod, &card()), "that look did not see its card");
        presence.take_in(card(), Timestamp(2), 3, vec![]);
        assert!(presence.has_left(&pod, &card()));
        presence.claimed(claimant, &pod, 4);
        assert!(!presence.has_left(&pod, &card()));
        presence.forget_process(claimant);
        assert!(presence.has_left(&pod, &card()), "who has ended holds nothing");
        assert!(!presence.has_left(&pod, &"GPU-2".into()), "nobody has looked there");
    }
}
