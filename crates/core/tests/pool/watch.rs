//! What must hold from one step to the next: the invariants that no single state can show.

use std::collections::BTreeSet;

use gpupool_core::pool::{
    Action, CardView, Event, LeaseId, LeaseView, Limits, PodId, PodState, Policy, Pool, STUCK_AFTER,
    TerminationReason, Timestamp,
};

use crate::harness::granted;

/// Sees every step of one pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    told: BTreeSet<LeaseId>,
    killed: BTreeSet<LeaseId>,
}

impl Watch {
    pub(crate) fn step(&mut self, before: &Pool, event: &Event, actions: &[Action], after: &Pool) {
        nobody_overtakes(before, actions, after);
        nobody_is_granted_an_occupied_card(actions, after);
        positions_only_improve(before, event, after);
        leases_end_by_release_only(before, event, after);
        hibernation_comes_first(before, event, after);
        for (place, action) in actions.iter().enumerate() {
            self.told_once_and_killed_after_the_grace(action, after);
            if let Action::Preempted { victim, beneficiary, .. } = action {
                victim_is_told(&actions[place + 1], victim, beneficiary);
                victim_had_its_time(victim, after);
            }
        }
        victims_are_just_enough(actions, after);
    }

    /// SIGTERM and SIGKILL once each, in that order, the grace between them; and no reason but those in force.
    fn told_once_and_killed_after_the_grace(&mut self, action: &Action, after: &Pool) {
        match action {
            Action::Terminate { lease, why, kill_at, .. } => {
                assert!(self.told.insert(*lease), "lease {lease} was told twice");
                assert_eq!(*kill_at, after.now() + after.qos().grace);
                match why {
                    TerminationReason::Preempted { .. } => {
                        assert!(after.qos().preempt_enabled && after.policy() == Policy::SharePool);
                    }
                    TerminationReason::IdleRelease { .. } => assert!(after.qos().idle_release.is_some()),
                    TerminationReason::CardLost | TerminationReason::Stopped => {}
                }
            }
            Action::Kill { pod, lease, .. } => {
                assert!(self.told.contains(lease), "lease {lease} was killed untold");
                assert!(self.killed.insert(*lease), "lease {lease} was killed twice");
                let view = after.pod(pod).unwrap().lease.unwrap();
                assert!(view.ending.unwrap().kill_at <= after.now(), "lease {lease} had grace left");
            }
            _ => {}
        }
    }
}

/// The order of the queue; a pod that came in with this step has the highest number.
fn key(pool: &Pool, pod: &PodId) -> (i64, u64) {
    let number = pool.queue().find(|entry| entry.pod == pod).map_or(u64::MAX, |entry| entry.number);
    (-i64::from(pool.pod(pod).unwrap().spec.priority), number)
}

fn nobody_overtakes(before: &Pool, actions: &[Action], after: &Pool) {
    for name in granted(actions) {
        let pod = PodId::from(name);
        let own = after.pod(&pod).unwrap();
        let number = key(before_or(before, after, &pod), &pod).1;
        let granted_key = (-i64::from(own.spec.priority), number);
        let lane = own.only.filter(|_| after.policy() == Policy::Static);
        for entry in after.queue() {
            let other_lane = after.policy() == Policy::Static && entry.only != lane;
            let set_aside = after.cards().all(|card| {
                card.lost
                    || entry.only.is_some_and(|only| only != card.uuid)
                    || !could_be_cleared_for(entry.pod, &card, actions)
            });
            let overtaken = key(after, entry.pod) < granted_key;
            assert!(other_lane || set_aside || !overtaken, "`{pod}` overtook `{}`", entry.pod);
        }
    }
}

/// Whether all who keep the pod off a card held a lease of it before these grants.
fn could_be_cleared_for(pod: &PodId, card: &CardView<'_>, grants: &[Action]) -> bool {
    let granted = granted(grants);
    let held = |other: &PodId| card.pods.contains(&other) && !granted.contains(&other.to_string());
    let mut others = card.occupants.pods.iter().filter(|other| *other != pod);
    !card.occupants.strangers && others.all(held)
}

/// Nobody is let in beside somebody who must not be there, or while nobody knows who is.
fn nobody_is_granted_an_occupied_card(actions: &[Action], after: &Pool) {
    for action in actions {
        let Action::Grant { pod, card, .. } = action else { continue };
        let view = after.cards().find(|view| view.uuid == card).unwrap();
        let alone = view.occupants.pods.iter().all(|other| other == pod);
        assert!(alone && !view.occupants.strangers, "`{pod}` was let in beside {:?}", view.occupants);
        assert!(!after.is_unseen(), "`{pod}` was granted a card that nobody had looked at");
    }
}

fn before_or<'a>(before: &'a Pool, after: &'a Pool, pod: &PodId) -> &'a Pool {
    if before.pod(pod).is_some() { before } else { after }
}

fn positions_only_improve(before: &Pool, event: &Event, after: &Pool) {
    for card in after.cards() {
        let of_lane = |pool: &Pool| pool.policy() == Policy::SharePool;
        let lane = after.queue().filter(|entry| of_lane(after) || entry.only == Some(card.uuid));
        let positions: Vec<_> = lane.map(|entry| entry.position).collect();
        assert!(positions.iter().copied().eq(1..=u32::try_from(positions.len()).unwrap()));
    }
    let priorities: BTreeSet<_> = before.pods().chain(after.pods()).map(|pod| pod.spec.priority).collect();
    if priorities.len() > 1 || matches!(event, Event::PodChanged { .. }) {
        return;
    }
    for entry in before.queue() {
        let now = after.queue().find(|now| now.pod == entry.pod && now.number == entry.number);
        assert!(now.is_none_or(|now| now.position <= entry.position), "`{}` fell back", entry.pod);
    }
}

fn leases_end_by_release_only(before: &Pool, event: &Event, after: &Pool) {
    for lease in before.leases() {
        let released = *event == Event::Released { pod: lease.pod.clone(), lease: lease.lease };
        match after.leases().find(|now| now.lease == lease.lease) {
            None => assert!(released, "lease {} ended without a release", lease.lease),
            Some(now) => {
                assert!(!released, "lease {} went on after its release", lease.lease);
                assert_eq!((now.pod, now.card, now.since), (lease.pod, lease.card, lease.since));
            }
        }
    }
}

/// A pod whose lease is over doesn't wait again unless one of its processes asked in the meantime.
fn hibernation_comes_first(before: &Pool, event: &Event, after: &Pool) {
    for lease in before.leases() {
        if after.state(lease.pod) == Some(PodState::Ready) {
            assert!(matches!(event, Event::Released { .. }));
            assert!(lease.ending.is_some(), "`{}` waits again by itself", lease.pod);
        }
    }
}

fn victim_is_told(next: &Action, victim: &PodId, beneficiary: &PodId) {
    let Action::Terminate { pod, why, .. } = next else {
        panic!("`{victim}` is not told at once: {next:?}");
    };
    assert_eq!((pod, why), (victim, &TerminationReason::Preempted { by: beneficiary.clone() }));
}

fn victim_had_its_time(victim: &PodId, after: &Pool) {
    let held = after.now() - after.pod(victim).unwrap().lease.unwrap().since;
    assert!(held >= after.qos().pod_max_duration, "`{victim}` had held its card for {held} only");
}

fn size(limits: Limits) -> (u32, u32) {
    (limits.core.get().into(), limits.memory.get().into())
}

fn is_expected_back(lease: &LeaseView<'_>, now: Timestamp) -> bool {
    let ending = lease.ending;
    ending.is_some_and(|ending| ending.killed_at.is_none_or(|at| now < at + STUCK_AFTER))
}

/// Who is told in favour of a head makes room for it, together with those told before; all but one would not.
fn victims_are_just_enough(actions: &[Action], after: &Pool) {
    let told: Vec<(&PodId, LeaseId, &PodId)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Terminate {
                pod,
                lease,
                why: TerminationReason::Preempted { by } | TerminationReason::IdleRelease { by },
                ..
            } => Some((pod, *lease, by)),
            _ => None,
        })
        .collect();
    for head in told.iter().map(|(.., by)| *by).collect::<BTreeSet<_>>() {
        let victims: BTreeSet<_> =
            told.iter().filter(|(.., by)| *by == head).map(|(_, lease, _)| *lease).collect();
        let cards: BTreeSet<_> =
            after.leases().filter(|lease| victims.contains(&lease.lease)).map(|lease| lease.card).collect();
        assert_eq!(cards.len(), 1, "victims on several cards");
        let want = size(after.pod(head).unwrap().spec.limits());
        let in_the_way: BTreeSet<_> = after
            .cards()
            .filter(|card| cards.contains(card.uuid))
            .flat_map(|card| &card.occupants.pods)
            .filter(|pod| *pod != head)
            .collect();
        let fits_without = |kept: Option<LeaseId>| {
            let staying: Vec<_> = after
                .leases()
                .filter(|lease| cards.contains(lease.card))
                .filter(|lease| Some(lease.lease) == kept || !is_expected_back(lease, after.now()))
                .collect();
            let used = staying
                .iter()
                .map(|lease| size(lease.limits))
                .fold(want, |sum, used| (sum.0 + used.0, sum.1 + used.1));
            let cleared = staying.iter().all(|lease| !in_the_way.contains(lease.pod));
            cleared && used.0 <= 100 && used.1 <= 100
        };
        assert_eq!(after.state(head), Some(PodState::Ready), "`{head}` could be placed");
        assert!(fits_without(None), "the victims don't make room for `{head}`");
        for victim in victims {
            assert!(!fits_without(Some(victim)), "lease {victim} was told for nothing");
        }
    }
}
