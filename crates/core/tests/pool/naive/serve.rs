//! Who is granted what, and who is told to go for it.

use gpupool_core::pool::{
    Action, Card, CardUuid, LeaseId, Limits, PodId, Policy, STUCK_AFTER, TerminationReason,
};

use super::{Both, Lease, Naive, Pod, limits_of, plus};

impl Naive {
    fn charged(&self, card: &CardUuid, such: impl Fn(&Lease) -> bool) -> Both {
        let leases = self.pods.values().filter_map(|pod| pod.lease.as_ref());
        let there = leases.filter(|lease| lease.card == *card && such(lease));
        there.fold((0, 0), |sum, lease| plus(sum, limits_of(lease.limits)))
    }

    pub(super) fn free(&self, card: &CardUuid) -> Both {
        let used = self.charged(card, |_| true);
        (100 - used.0, 100 - used.1)
    }

    /// Free now, or told to go and expected to.
    fn soon_free(&self, card: &CardUuid) -> Both {
        let going = self.charged(card, |lease| self.is_going(lease));
        plus(self.free(card), going)
    }

    fn is_going(&self, lease: &Lease) -> bool {
        let told = lease.told.as_ref();
        told.is_some_and(|told| told.killed_at.is_none_or(|at| self.now < at + STUCK_AFTER))
    }

    /// The leases of those who keep the pod off the card.
    fn leases_in_the_way(&self, card: &CardUuid, id: &PodId) -> Vec<Lease> {
        let occupants = self.occupants(card, id).unwrap();
        occupants.iter().filter_map(|other| self.pods[other].lease.clone()).collect()
    }

    /// The pods that keep `pod` off a card; none where somebody is there who can't be told to go.
    pub(super) fn occupants(&self, card: &CardUuid, pod: &PodId) -> Option<Vec<PodId>> {
        let Some(occupants) = self.occupied.get(card) else { return Some(vec![]) };
        let others: Vec<_> = occupants.pods.iter().filter(|other| *other != pod).cloned().collect();
        let holders = self.by_lease(|lease| lease.card == *card);
        let all_hold_it = others.iter().all(|other| holders.contains(other));
        (all_hold_it && !occupants.strangers).then_some(others)
    }

    fn cards_for(&self, id: &PodId, pod: &Pod) -> Vec<Card> {
        let only = pod.card.as_ref().or_else(|| pod.ready.as_ref().and_then(|ready| ready.only.as_ref()));
        let mine = |card: &Card| only.is_none_or(|only| *only == card.uuid);
        let open = |card: &Card| mine(card) && self.occupants(&card.uuid, id).is_some();
        self.healthy().into_iter().filter(open).collect()
    }

    pub(super) fn serve_queues(&mut self) {
        if self.unseen {
            return;
        }
        self.serve_who_is_there_alone();
        for place in 0..self.queues().len() {
            // With its grant an occupant can be told to go, so those before it count again.
            while self.serve_the_next(place) {}
        }
    }

    /// Whoever waits for a card that only it occupies.
    fn serve_who_is_there_alone(&mut self) {
        for card in self.healthy() {
            let Some(occupants) = self.occupied.get(&card.uuid).cloned() else { continue };
            for id in occupants.pods.iter().filter(|_| occupants.pods.len() == 1 && !occupants.strangers) {
                let Some(pod) = self.pods.get(id).filter(|pod| pod.ready.is_some()).cloned() else {
                    continue;
                };
                let only = pod.card.or_else(|| pod.ready.and_then(|ready| ready.only));
                let limits = pod.spec.limits();
                if only.as_ref() == Some(&card.uuid) && fits(limits, self.free(&card.uuid)) {
                    self.grant(id, card.uuid.clone(), limits);
                }
            }
        }
    }

    /// Grants a card to the next in a queue; false when nobody is next or it doesn't fit.
    fn serve_the_next(&mut self, place: usize) -> bool {
        for id in self.queues().swap_remove(place) {
            let pod = self.pods[&id].clone();
            let cards = self.cards_for(&id, &pod);
            if cards.is_empty() {
                continue;
            }
            let limits = pod.spec.limits();
            let mut fitting: Vec<_> = cards
                .iter()
                .filter(|card| self.occupants(&card.uuid, &id).is_some_and(|pods| pods.is_empty()))
                .map(|card| (self.free(&card.uuid), card))
                .filter(|(free, _)| fits(limits, *free))
                .map(|(free, card)| (free.0 + free.1, card.index, self.place(&card.uuid), card.uuid.clone()))
                .collect();
            fitting.sort();
            let Some((.., card)) = fitting.into_iter().next() else {
                self.make_room(&id, limits, &cards);
                return false;
            };
            self.grant(&id, card, limits);
            return true;
        }
        false
    }

    fn grant(&mut self, id: &PodId, card: CardUuid, limits: Limits) {
        self.leases_so_far += 1;
        let lease = LeaseId(self.leases_so_far);
        let since = self.now;
        let Some(pod) = self.pods.get_mut(id) else { return };
        pod.ready = None;
        pod.lease = Some(Lease {
            id: lease,
            card: card.clone(),
            since,
            limits,
            idle_since: None,
            told: None,
            again: None,
        });
        self.actions.push(Action::Grant { pod: id.clone(), card, lease, limits });
    }

    fn make_room(&mut self, id: &PodId, limits: Limits, cards: &[Card]) {
        let coming = |card: &Card| {
            let in_the_way = self.leases_in_the_way(&card.uuid, id);
            fits(limits, self.soon_free(&card.uuid)) && in_the_way.iter().all(|lease| self.is_going(lease))
        };
        if cards.iter().any(coming) {
            return;
        }
        let sets = cards.iter().flat_map(|card| self.sets_that_make_room(id, limits, &card.uuid));
        let Some((.., leases)) = sets.min() else { return };
        for victim in self.by_lease(|lease| leases.contains(&lease.id)) {
            let lease = self.pods[&victim].lease.clone().unwrap();
            if self.time_up(&lease) {
                self.actions.push(Action::Preempted {
                    victim: victim.clone(),
                    beneficiary: id.clone(),
                    card: lease.card,
                });
                self.tell(&victim, TerminationReason::Preempted { by: id.clone() });
            } else {
                self.tell(&victim, TerminationReason::IdleRelease { by: id.clone() });
            }
        }
    }

    fn time_up(&self, lease: &Lease) -> bool {
        let qos = self.config.qos;
        let preempts = qos.preempt_enabled && self.config.policy == Policy::SharePool;
        preempts && self.now - lease.since >= qos.pod_max_duration
    }

    fn idle_up(&self, lease: &Lease) -> bool {
        let span = lease.idle_since.map(|since| self.now - since);
        self.config.qos.idle_release.is_some_and(|allowed| span.is_some_and(|span| span >= allowed))
    }

    /// All sets of eligible pods of the card that would make room, with what is minded about each.
    fn sets_that_make_room(
        &self,
        id: &PodId,
        limits: Limits,
        card: &CardUuid,
    ) -> Vec<(usize, usize, Vec<LeaseId>)> {
        let in_the_way = self.leases_in_the_way(card, id);
        let must_go = in_the_way.iter().filter(|lease| !self.is_going(lease)).map(|lease| lease.id);
        let must_go: Vec<LeaseId> = must_go.collect();
        let eligible = self.by_lease(|lease| {
            lease.card == *card && lease.told.is_none() && (self.time_up(lease) || self.idle_up(lease))
        });
        let leases: Vec<_> = eligible.iter().filter_map(|id| self.pods[id].lease.clone()).collect();
        let mut sets = Vec::new();
        for bits in 1_u32..1 << leases.len() {
            let set: Vec<_> = (0..).zip(&leases).filter(|(bit, _)| bits & (1 << bit) != 0).collect();
            let room =
                set.iter().fold(self.soon_free(card), |room, (_, lease)| plus(room, limits_of(lease.limits)));
            let all_go = must_go.iter().all(|id| set.iter().any(|(_, lease)| lease.id == *id));
            if all_go && fits(limits, room) {
                let busy = set.iter().filter(|(_, lease)| lease.idle_since.is_none()).count();
                sets.push((set.len(), busy, set.iter().map(|(_, lease)| lease.id).collect()));
            }
        }
        sets
    }
}

fn fits(limits: Limits, free: Both) -> bool {
    let limits = limits_of(limits);
    limits.0 <= free.0 && limits.1 <= free.1
}
