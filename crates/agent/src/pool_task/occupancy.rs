//! What NVML shows on the cards decides when a lease ends and which cards are granted.
//!
//! A process that lives is believed nothing about memory: its release, a cleared slot or a second hello only asks for a
//! look, and its pod's lease ends when that shows nothing of the pod on the card. Until then the lease is the pod's own.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{CardUuid, Event, LeaseId, LeaseView, Millis, Occupants, PodId, Policy, Timestamp};
use tracing::info;

use super::PoolTask;
use super::presence::{self, Ground, Held, Occupant, Present};
use super::publish::share_of;
use crate::admin_api::{HeldBackStatus, WhyHeldBack};
use crate::peer::PeerError;
use crate::procfs::ProcessKey;
use crate::registry::CardUse;
use crate::usage_audit::observe::{Observation, Sighting};

/// How soon a look begins that was asked for.
const LOOK_WITHIN: Millis = Millis(2);

impl PoolTask {
    /// Takes in who is on the cards.
    pub(super) fn take_in_look(&mut self, observation: &Observation) {
        let mut cards: BTreeMap<&CardUuid, Vec<Present>> =
            observation.seen.iter().map(|card| (card, Vec::new())).collect();
        for sighting in &observation.sightings {
            if let (Some(processes), Some(present)) =
                (cards.get_mut(&sighting.process.card), self.present_process(sighting))
            {
                processes.push(present);
            }
        }
        for (card, processes) in cards {
            self.presence.take_in(card.clone(), observation.began, observation.answers, processes);
        }
        self.presence.forget_old(self.now());
    }

    /// What follows from a look for leases and grants.
    pub(super) fn follow_look(&mut self) {
        self.bind_to_where_they_are();
        // Before a lease ends: its room is not for the next while somebody else is seen there.
        self.tell_who_is_on_the_cards();
        self.end_leases_that_were_left();
        self.kill_those_that_came_later();
    }

    /// Who waits and is on a card can use no other one: its lease of it was lost with a part of the journal.
    fn bind_to_where_they_are(&mut self) {
        let elsewhere = |pod: &PodId| {
            let card = self.only_card(pod)?;
            let view = self.pool.pod(pod).filter(|view| view.only != Some(&card))?;
            (self.pool.policy() == Policy::SharePool).then(|| (view.pod.clone(), card))
        };
        let bound: Vec<(PodId, CardUuid)> =
            self.pool.queue().filter_map(|waiting| elsewhere(waiting.pod)).collect();
        if bound.is_empty() {
            return;
        }
        // Nobody is let in by an older look meanwhile.
        self.apply(&Event::CardsUnseen);
        for (pod, card) in bound {
            self.apply(&Event::GpuWanted { pod, only: Some(card) });
        }
    }

    /// The one card that will do for a pod: the one that its living processes are bound to, or are on by what NVML shows.
    pub(super) fn only_card(&self, pod: &PodId) -> Option<CardUuid> {
        let is_known = |card: &&CardUuid| self.pool.cards().any(|known| known.uuid == *card);
        let bound = self.registry.bound_card(pod).or_else(|| self.presence.card_of(pod));
        bound.filter(is_known).cloned()
    }

    /// A process that was seen, unless it has ended since.
    fn present_process(&self, sighting: &Sighting) -> Option<Present> {
        let (key, bytes) = (sighting.key, sighting.process.bytes);
        let pod = self.pod_of_process(key);
        // A member's end is heard of by its pidfd.
        let is_member = self.registry.process(key).is_some();
        if !is_member && matches!(self.environment.processes.hold(key), Err(PeerError::Gone)) {
            return None;
        }
        Some(Present { key, pod, bytes })
    }

    /// Tells the pool who is on the cards without a right to it; true when that was news.
    pub(super) fn tell_who_is_on_the_cards(&mut self) -> bool {
        let cards: Vec<CardUuid> = self.pool.cards().map(|card| card.uuid.clone()).collect();
        let occupied = cards.into_iter().map(|card| {
            let occupants = presence::for_pool(&self.occupants(&card));
            (card, occupants)
        });
        let occupied: BTreeMap<CardUuid, Occupants> =
            occupied.filter(|(_, occupants)| !occupants.is_empty()).collect();
        let is_known = |card: gpupool_core::pool::CardView<'_>| {
            occupied.get(card.uuid).map_or(card.occupants.is_empty(), |now| now == card.occupants)
        };
        if !self.pool.is_unseen() && self.pool.cards().all(is_known) {
            return false;
        }
        self.apply(&Event::CardsSeen { occupied });
        true
    }

    /// Nothing is granted by looks that have become too old meanwhile.
    pub(super) fn forget_old_looks(&mut self) {
        if self.presence.forget_old(self.now()) {
            self.tell_who_is_on_the_cards();
        }
    }

    /// Whoever keeps others off a card.
    fn occupants(&self, card: &CardUuid) -> Vec<Occupant> {
        self.presence.occupants(card, |pod| self.memory_limit_on(pod, card))
    }

    /// What a pod's lease of a card allows, in bytes; nothing without one.
    pub(super) fn memory_limit_on(&self, pod: &PodId, card: &CardUuid) -> Option<u64> {
        let lease = self.pool.pod(pod)?.lease.filter(|lease| lease.card == card)?;
        Some(share_of(self.environment.cards.find(card)?.1.total_memory, lease.limits.memory))
    }

    /// A living process says that its pod's card is needed no more: only a look that begins now can show it.
    pub(super) fn must_be_seen_to_leave(&mut self, key: ProcessKey, pod: &PodId) {
        let request = self.environment.looks.next();
        self.presence.claimed(key, pod, request);
        self.look_soon();
    }

    /// Asks for a look. It waits a moment: a program that gives its card back often takes it again at once, and is not
    /// disturbed then.
    fn look_soon(&mut self) {
        let due = self.now() + LOOK_WITHIN;
        self.look_due.get_or_insert(due);
    }

    /// Sends for the look that was asked for.
    pub(super) fn send_for_looks(&mut self, now: Timestamp) {
        if self.look_due.take_if(|due| *due <= now).is_some() {
            self.environment.looks.send();
        }
    }

    /// Ends the lease of a pod that no process of it uses, by its own word and by NVML's; where NVML does not say so yet,
    /// it is looked at again.
    pub(super) fn end_lease_if_unused(&mut self, pod: &PodId) {
        let Some((card, lease)) = self.lease_without_users(pod) else { return };
        if self.presence.has_left(pod, &card) {
            self.end_lease(pod, lease);
        } else {
            self.look_soon();
        }
    }

    fn end_lease(&mut self, pod: &PodId, lease: LeaseId) {
        self.presence.forget_claims(pod);
        self.apply(&Event::Released { pod: pod.clone(), lease });
    }

    /// The lease of a pod of which no process says that it uses it.
    fn lease_without_users(&self, pod: &PodId) -> Option<(CardUuid, LeaseId)> {
        let users = self.registry.members_using(pod, CardUse::Holding);
        self.lease_of(pod).filter(|_| users.is_empty())
    }

    /// Ends the leases that no process uses, by its own word and by NVML's.
    pub(super) fn end_leases_that_were_left(&mut self) {
        let pods: Vec<PodId> = self.pool.leases().map(|lease| lease.pod.clone()).collect();
        for pod in pods {
            let Some((card, lease)) = self.lease_without_users(&pod) else { continue };
            if self.presence.has_left(&pod, &card) {
                self.end_lease(&pod, lease);
                self.retire(&pod);
            }
        }
    }

    /// Whoever of a pod that was killed on its card came there afterwards.
    fn kill_those_that_came_later(&mut self) {
        let killed = |lease: &LeaseView<'_>| lease.ending.is_some_and(|ending| ending.killed_at.is_some());
        let leases = self.pool.leases().filter(killed);
        let late = leases.map(|lease| (lease.pod.clone(), self.presence.processes(lease.pod, lease.card)));
        for (pod, processes) in late.collect::<Vec<_>>() {
            self.end(&pod, processes, true);
        }
    }

    /// Why a card, or a share of it, is held back from others.
    pub(super) fn held_back(&self, card: &CardUuid) -> Vec<HeldBackStatus> {
        let occupants = self.occupants(card).into_iter().map(|occupant| {
            let (why, limit) = match occupant.ground {
                Ground::NotSeen => (WhyHeldBack::NotSeen, None),
                Ground::Stranger => (WhyHeldBack::Stranger, None),
                Ground::NoLease => (WhyHeldBack::NoLease, None),
                Ground::OverLimit(limit) => (WhyHeldBack::OverLimit, Some(limit)),
            };
            self.held_back_status(why, occupant.pod.as_ref(), occupant.held, limit)
        });
        let leases = self.pool.leases().filter(|lease| lease.card == card);
        let kept = leases.filter(|lease| self.lease_without_users(lease.pod).is_some()).filter_map(|lease| {
            let held = self.presence.held(lease.pod, card);
            let is_there = !held.pids.is_empty();
            is_there
                .then(|| self.held_back_status(WhyHeldBack::KeptAfterRelease, Some(lease.pod), held, None))
        });
        occupants.chain(kept).collect()
    }

    fn held_back_status(
        &self,
        why: WhyHeldBack,
        pod: Option<&PodId>,
        held: Held,
        limit_bytes: Option<u64>,
    ) -> HeldBackStatus {
        let pod = pod.map(|pod| self.name_of(pod));
        HeldBackStatus { why, pod, pids: held.pids, memory_bytes: held.bytes, limit_bytes }
    }

    /// Says once what is held back, and once that it no longer is.
    pub(super) fn say_what_is_held_back(&mut self) {
        let cards = self.pool.cards().map(|card| (card.index, self.held_back(card.uuid)));
        let now: BTreeMap<_, _> = cards
            .flat_map(|(card, reasons)| {
                reasons.into_iter().map(move |it| ((card, it.why, it.pod.clone()), it))
            })
            .collect();
        let said = std::mem::take(&mut self.held_back_said);
        for ((card, ..), reason) in now.iter().filter(|(key, _)| !said.contains(*key)) {
            info!("card {card} is held back: {reason}");
        }
        let free = |card: u32| now.keys().all(|(held_back, ..)| *held_back != card);
        let cards: BTreeSet<u32> = said.iter().map(|(card, ..)| *card).filter(|card| free(*card)).collect();
        for card in cards {
            info!("card {card} is held back no more");
        }
        self.held_back_said = now.into_keys().collect();
    }
}
