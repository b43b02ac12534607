//! Making room: who is asked to go for a head that can't be placed, and what follows until it has gone.
//!
//! Who is asked gets SIGTERM in the same step, so between two steps nothing is claimed that has not been told.
//! There is therefore no list of claims: what is *coming* (charged to pods that were told to terminate) counts as
//! the head's, because while a head is blocked nobody behind it is granted anything.
//!
//! - While what is coming on some card will do for the head, nobody else is asked.
//! - When the head goes away, or a pod of higher priority becomes the head, or a card frees earlier, those who
//!   were told go on terminating, and their room is for whoever is the head then. Room that was already free and
//!   only waited for the rest of a set is free for all at once.
//! - A share stays charged until its release is confirmed. When that has not come [`STUCK_AFTER`] after SIGKILL,
//!   the kernel or the driver holds the process; the share stays charged, but the head no longer counts on it and
//!   others may be asked.

use super::Pool;
use super::action::{Action, TerminationReason};
use super::config::Policy;
use super::fit::CardRecord;
use super::ident::{CardSlot, LeaseId, PodSlot};
use super::load::Load;
use super::pods::{Lease, PodRecord};
use super::smallest::{Candidate, Cost, smallest};
use super::state::Ending;
use super::time::{Millis, Timestamp};

/// How long after SIGKILL a share is still expected back. A driver may take many seconds to tear down a large
/// process; one that takes longer than this is not worth waiting for.
pub const STUCK_AFTER: Millis = Millis::from_secs(30);

/// Pods of one card that would make room together.
struct Victims {
    cost: Cost,
    /// In the order of their grants.
    leases: Vec<(LeaseId, PodSlot)>,
}

/// What may be used against a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grounds {
    TimeUp,
    Idle,
}

impl Pool {
    /// Asks the smallest set of pods to go that makes room for the blocked head `slot`; nobody if room is coming,
    /// or if no set of eligible ones suffices. Of equal sets: the one with more idle pods, then the longest held.
    pub(super) fn make_room(&mut self, slot: PodSlot, out: &mut Vec<Action>) {
        let head = &self.pods[slot];
        let Some(victims) = self.best_victims(head) else { return };
        let by = head.id.clone();
        for (_, victim) in victims.leases {
            let record = &self.pods[victim];
            let Some(lease) = record.lease() else { continue };
            let why = match self.grounds(lease) {
                None => continue,
                Some(Grounds::Idle) => TerminationReason::IdleRelease { by: by.clone() },
                Some(Grounds::TimeUp) => {
                    out.push(Action::Preempted {
                        victim: record.id.clone(),
                        beneficiary: by.clone(),
                        card: self.cards[lease.card].card.uuid.clone(),
                    });
                    TerminationReason::Preempted { by: by.clone() }
                }
            };
            self.terminate(victim, why, out);
        }
    }

    fn best_victims(&self, head: &PodRecord) -> Option<Victims> {
        let load = Load::from(head.spec.limits());
        if self.room_is_coming(head) {
            return None;
        }
        self.allowed(head)
            .filter_map(|(_, card)| self.victims_on(card, head, load))
            .min_by(|a, b| (a.cost, &a.leases).cmp(&(b.cost, &b.leases)))
    }

    /// Whether the pods that were told to terminate will make room for `head`.
    pub(super) fn room_is_coming(&self, head: &PodRecord) -> bool {
        let load = Load::from(head.spec.limits());
        self.allowed(head).any(|(_, card)| load.within(card.free_soon()) && self.is_being_cleared(card, head))
    }

    /// Those occupants of the card among them who keep `head` off it, whatever room the others make.
    fn victims_on(&self, card: &CardRecord, head: &PodRecord, load: Load) -> Option<Victims> {
        let (mut candidates, mut leases) = (Vec::new(), Vec::new());
        let (mut occupants, mut cost, mut room) = (Vec::new(), Cost::NOTHING, card.free_soon());
        for (id, slot) in &card.leases {
            let Some(lease) = self.pods[*slot].lease() else { continue };
            if card.occupants.is_empty() && self.qos.idle_release.is_none() && !self.time_is_up(lease) {
                // Those granted later have held it for a shorter time still.
                break;
            }
            let keeps_out = self.keeps_out(card, *slot, head);
            let candidate = Candidate { load: lease.limits.into(), idle: lease.idle_since.is_some() };
            match self.grounds(lease) {
                Some(_) if keeps_out => {
                    occupants.push((*id, *slot));
                    cost = cost.with(candidate);
                    room.add(candidate.load);
                }
                Some(_) => {
                    candidates.push(candidate);
                    leases.push((*id, *slot));
                }
                None if keeps_out && !lease.is_coming_back() => return None,
                None => {}
            }
        }
        let (others, chosen) = smallest(load.beyond(room), &candidates)?;
        occupants.extend(chosen.into_iter().map(|place| leases[place]));
        occupants.sort_unstable();
        Some(Victims { cost: cost.plus(others), leases: occupants })
    }

    /// On what grounds a running pod may be asked to go now. Time that is up comes first: it is the stronger one.
    fn grounds(&self, lease: &Lease) -> Option<Grounds> {
        if lease.ending.is_some() {
            None
        } else if self.time_is_up(lease) {
            Some(Grounds::TimeUp)
        } else if self.idle_up_at(lease).is_some_and(|moment| moment <= self.now) {
            Some(Grounds::Idle)
        } else {
            None
        }
    }

    fn time_is_up(&self, lease: &Lease) -> bool {
        self.time_up_at(lease).is_some_and(|moment| moment <= self.now)
    }

    /// When the lease can be pre-empted.
    fn time_up_at(&self, lease: &Lease) -> Option<Timestamp> {
        let preempts = self.qos.preempt_enabled && self.policy != Policy::Static;
        preempts.then(|| lease.since + self.qos.pod_max_duration)
    }

    /// When the lease has been idle for too long.
    fn idle_up_at(&self, lease: &Lease) -> Option<Timestamp> {
        Some(lease.idle_since? + self.qos.idle_release?)
    }

    /// Tells a running pod to go, unless it has been told already.
    pub(super) fn terminate(&mut self, slot: PodSlot, why: TerminationReason, out: &mut Vec<Action>) {
        let now = self.now;
        let kill_at = now + self.qos.grace;
        let record = &mut self.pods[slot];
        let pod = record.id.clone();
        let Some(lease) = record.lease_mut().filter(|lease| lease.ending.is_none()) else { return };
        lease.ending = Some(Ending { why: why.clone(), told_at: now, kill_at, killed_at: None });
        let (id, card) = (lease.id, &mut self.cards[lease.card]);
        card.coming.add(lease.limits.into());
        self.due.insert((kill_at, id), slot);
        out.push(Action::Terminate { pod, card: card.card.uuid.clone(), lease: id, why, kill_at });
    }

    /// Tells every pod on `card` to go.
    pub(super) fn evict(&mut self, card: CardSlot, out: &mut Vec<Action>) {
        let holders: Vec<PodSlot> = self.cards[card].leases.values().copied().collect();
        for slot in holders {
            self.terminate(slot, TerminationReason::CardLost, out);
        }
    }

    /// Does what the leases that are coming to their end are due for by now.
    pub(super) fn expire(&mut self, out: &mut Vec<Action>) {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let slot = entry.remove();
            let record = &mut self.pods[slot];
            let pod = record.id.clone();
            let Some(lease) = record.lease_mut() else { continue };
            let (id, card, limits) = (lease.id, &mut self.cards[lease.card], lease.limits);
            let Some(ending) = &mut lease.ending else { continue };
            if ending.killed_at.is_some() {
                lease.stuck = true;
                card.coming.take(limits.into());
                continue;
            }
            ending.killed_at = Some(self.now);
            self.due.insert((self.now + STUCK_AFTER, id), slot);
            let (card, why) = (card.card.uuid.clone(), ending.why.clone());
            out.push(Action::Kill { pod, card, lease: id, why });
        }
    }

    /// When a blocked head of the lane could be helped, if nothing happens before.
    pub(super) fn room_at(&self, lane: usize) -> Option<Timestamp> {
        let head = &self.pods[self.head(lane)?];
        if self.unseen || self.room_is_coming(head) {
            return None;
        }
        self.allowed(head).filter_map(|(_, card)| self.next_eligible(card)).min()
    }

    /// When the next of a card's pods becomes eligible that isn't yet.
    fn next_eligible(&self, card: &CardRecord) -> Option<Timestamp> {
        let mut moments = card.leases.values().filter_map(|slot| {
            let lease = self.pods[*slot].lease().filter(|lease| lease.ending.is_none())?;
            let moments = [self.time_up_at(lease), self.idle_up_at(lease)];
            moments.into_iter().flatten().filter(|moment| *moment > self.now).min()
        });
        // Without idle release the first is the earliest: leases are in the order of their grants.
        if self.qos.idle_release.is_some() { moments.min() } else { moments.next() }
    }
}

impl Lease {
    /// When the pool next has something to do about a lease that is coming to its end.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        let ending = self.ending.as_ref().filter(|_| !self.stuck)?;
        Some(ending.killed_at.map_or(ending.kill_at, |killed_at| killed_at + STUCK_AFTER))
    }
}
