//! What must hold after every event, as far as one state can show it.
//!
//! Sources: the safety invariants of the scheduling notes (capacity, partition, fixpoint), and that everything the
//! pool keeps for speed equals what is counted afresh. Written against the records, not with the code it checks.

use std::collections::{BTreeMap, BTreeSet};

use super::Pool;
use super::config::Policy;
use super::ident::{CardSlot, LeaseId};
use super::load::Load;
use super::pods::{Lease, PodRecord, StateRecord, Waiting};
use super::queue::QueueKey;

/// Something that must hold does not: a defect of the pool, or a damaged snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pool's state contradicts itself: {what}")]
pub struct Violation {
    /// What is wrong, with names and numbers.
    pub what: String,
}

/// A [`Violation`] in the words of `format!`.
macro_rules! violation {
    ($($words:tt)*) => { $crate::pool::Violation { what: format!($($words)*) } };
}
pub(super) use violation;

/// Fails with the violation unless the condition holds.
macro_rules! must {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err(violation!($($words)*));
        }
    };
}

impl Pool {
    /// Whether everything holds that must hold after every event.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.check_cards()?;
        self.check_pods()?;
        self.check_queue()?;
        (0..self.lanes.len()).try_for_each(|lane| self.check_fixpoint(lane))
    }

    /// No card is charged over its whole, and what is charged is what its leases say.
    fn check_cards(&self) -> Result<(), Violation> {
        let mut uuids = BTreeSet::new();
        for (slot, record) in self.cards.iter().enumerate() {
            let uuid = &record.card.uuid;
            must!(uuids.insert(uuid), "card {uuid} is there twice");
            let mut used = Load::default();
            let mut coming = Load::default();
            let mut leases = BTreeMap::new();
            for (pod, lease) in self.leases_on(slot) {
                used.add(lease.limits.into());
                if lease.ending.is_some() && !lease.stuck {
                    coming.add(lease.limits.into());
                }
                must!(leases.insert(lease.id, pod).is_none(), "lease {} is there twice", lease.id);
            }
            must!(used.within(Load::of_cards(1)), "card {uuid} is charged {used:?}, over its whole");
            must!(used == record.used, "card {uuid}: charged {:?}, counted {used:?}", record.used);
            must!(coming == record.coming, "card {uuid}: coming {:?}, counted {coming:?}", record.coming);
            must!(leases == record.leases, "card {uuid}: the list of leases is not what pods hold");
        }
        Ok(())
    }

    fn leases_on(&self, card: CardSlot) -> impl Iterator<Item = (usize, &Lease)> {
        let leases = self.pods.iter().filter_map(|(slot, record)| Some((slot, record.lease()?)));
        leases.filter(move |(_, lease)| lease.card == card)
    }

    /// Every pod is in one state, and a running one holds one card that it may hold.
    fn check_pods(&self) -> Result<(), Violation> {
        let mut seen: BTreeMap<LeaseId, &Lease> = BTreeMap::new();
        let mut due = BTreeMap::new();
        for (slot, record) in self.pods.iter() {
            let pod = &record.id;
            must!(!record.leaving || record.lease().is_some(), "`{pod}` was removed and holds nothing");
            let Some(lease) = record.lease() else { continue };
            must!(seen.insert(lease.id, lease).is_none(), "lease {} is there twice", lease.id);
            self.check_lease(record, lease)?;
            if let Some(moment) = lease.due_at() {
                due.insert((moment, lease.id), slot);
            }
        }
        must!(due == self.due, "the list of what is due is not what leases say");
        let in_order = seen.values().zip(seen.values().skip(1)).all(|(a, b)| a.since <= b.since);
        must!(in_order, "a lease with a lower number was granted later");
        Ok(())
    }

    fn check_lease(&self, record: &PodRecord, lease: &Lease) -> Result<(), Violation> {
        let pod = &record.id;
        must!(lease.id.0 < self.next_lease, "`{pod}`: lease {} was never given", lease.id);
        must!(lease.since <= self.now, "`{pod}` has held its card since a later moment than now");
        let card_allowed = record.fixed.is_none_or(|card| card == lease.card);
        must!(card_allowed, "`{pod}` runs on another card than its own");
        must!(!record.leaving || lease.ending.is_some(), "`{pod}` was removed and not told to go");
        let evicted = !self.cards[lease.card].lost || lease.ending.is_some();
        must!(evicted, "`{pod}` runs on a lost card and was not told to go");
        must!(lease.again.is_none() || lease.ending.is_some(), "`{pod}` runs and waits at once");
        must!(!lease.stuck || lease.due_at().is_none(), "`{pod}` is stuck and due");
        if let Some(ending) = &lease.ending {
            let told = lease.since <= ending.told_at && ending.told_at <= ending.kill_at;
            must!(told, "`{pod}` was told to go at an impossible moment");
            let killed = ending.killed_at.is_none_or(|at| ending.kill_at <= at && at <= self.now);
            must!(killed, "`{pod}` was killed before its grace was over");
        }
        Ok(())
    }

    /// The queue holds the ready pods, each once, and the requests are what pods request.
    fn check_queue(&self) -> Result<(), Violation> {
        let mut waiting = vec![BTreeMap::new(); self.lanes.len()];
        let mut placed = vec![Load::default(); self.lanes.len()];
        let mut numbers = BTreeSet::new();
        for (slot, record) in self.pods.iter() {
            let lane = self.lane_of(record);
            if !record.leaving {
                placed[lane].add(Load::requests(&record.spec));
            }
            if let StateRecord::Ready(ready) = &record.state {
                let number = ready.number;
                must!(numbers.insert(number), "number {number} was given twice");
                must!(number < self.next_number, "number {number} was never given");
                must!(ready.since <= self.now, "`{}` waits since a later moment than now", record.id);
                waiting[lane].insert(QueueKey::new(record, ready), slot);
            }
        }
        let lanes = self.lanes.iter().zip(waiting.iter().zip(&placed));
        for (lane, (waiting, placed)) in lanes {
            must!(lane.waiting == *waiting, "the queue is not the pods that wait");
            must!(lane.placed == *placed, "requests: kept {:?}, counted {placed:?}", lane.placed);
        }
        Ok(())
    }

    /// The head fits nowhere, or it would have been granted.
    fn check_fixpoint(&self, lane: usize) -> Result<(), Violation> {
        if self.unseen {
            return Ok(());
        }
        let head = self.lanes[lane].waiting.values().find_map(|slot| {
            let record = &self.pods[*slot];
            let waiting = record.waiting()?;
            self.can_use(record, waiting).next()?;
            Some((record, waiting))
        });
        let Some((record, waiting)) = head else { return Ok(()) };
        for slot in self.can_use(record, waiting) {
            let used = self.cards[slot].used.plus(record.spec.limits().into());
            let card = &self.cards[slot].card.uuid;
            let occupied = self.cards[slot].occupants.others_than(&record.id).next().is_some();
            let has_room = used.within(Load::of_cards(1)) && !occupied;
            must!(!has_room, "`{}` waits, and card {card} has room for it", record.id);
        }
        Ok(())
    }

    fn can_use<'a>(
        &'a self,
        record: &'a PodRecord,
        waiting: &'a Waiting,
    ) -> impl Iterator<Item = CardSlot> + 'a {
        (0..self.cards.len()).filter(move |slot| {
            let own = self.policy == Policy::SharePool || record.fixed == Some(*slot);
            let mine = own && waiting.only.is_none_or(|only| only == *slot);
            mine && !self.cards[*slot].lost && self.can_be_left(*slot, record)
        })
    }

    /// Whether nobody occupies the card whom no lease's end can make leave.
    fn can_be_left(&self, card: CardSlot, record: &PodRecord) -> bool {
        let holders: BTreeSet<_> = self.leases_on(card).map(|(pod, _)| &self.pods[pod].id).collect();
        let occupants = &self.cards[card].occupants;
        !occupants.strangers && occupants.others_than(&record.id).all(|pod| holders.contains(pod))
    }
}
