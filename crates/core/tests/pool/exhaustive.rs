//! Every order in which few pods can want a card, end, and let time pass: all states that a small pool can reach.

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{Action, Event, Millis, PodId, PodState, Policy, Pool, Timestamp};

use crate::harness::{config, pod_of};
use crate::watch::Watch;

/// In ticks of one millisecond.
const MAX_DURATION: u64 = 2;
const GRACE: u64 = 1;

#[derive(Clone)]
struct World {
    pool: Pool,
    now: u64,
    watch: Watch,
    /// Killed, and not confirmed gone: the grace covers the confirmation, so time doesn't pass before it.
    killed: BTreeSet<PodId>,
    /// How long each waiting pod may still have to wait.
    left: BTreeMap<PodId, u64>,
}

impl World {
    fn new(limits: &[u32], cards: u32) -> Self {
        let mut config = config(Policy::SharePool, cards);
        config.qos.pod_max_duration = Millis(MAX_DURATION);
        config.qos.grace = Millis(GRACE);
        let mut pool = Pool::new(config).unwrap();
        for (number, limit) in limits.iter().enumerate() {
            let pod = format!("p{number}").into();
            pool.step(Timestamp(0), Event::PodAdded { pod, spec: pod_of(*limit) }).unwrap();
        }
        Self { pool, now: 0, watch: Watch::default(), killed: BTreeSet::new(), left: BTreeMap::new() }
    }

    /// What can happen next.
    fn moves(&self) -> Vec<Event> {
        let mut moves = Vec::new();
        for view in self.pool.pods() {
            let pod = view.pod.clone();
            match (view.state, view.lease) {
                (PodState::Running, Some(lease)) => {
                    moves.push(Event::Released { pod: pod.clone(), lease: lease.lease });
                    if lease.ending.is_some() {
                        moves.push(Event::GpuWanted { pod, only: None });
                    }
                }
                (PodState::Ready, _) => moves.push(Event::WantGone { pod }),
                _ => moves.push(Event::GpuWanted { pod, only: None }),
            }
        }
        if self.killed.is_empty() {
            moves.push(Event::Tick);
        }
        moves
    }

    fn after(&self, event: &Event, cards: u64) -> Self {
        let mut next = self.clone();
        if *event == Event::Tick {
            next.now += 1;
            for (pod, left) in &mut next.left {
                assert!(*left > 0, "`{pod}` should run by now: {}", self.key());
                *left -= 1;
            }
        }
        let actions = next.pool.step(Timestamp(next.now), event.clone()).unwrap();
        next.pool.check_invariants().unwrap();
        next.watch.step(&self.pool, event, &actions, &next.pool);
        for action in actions {
            match action {
                Action::Kill { pod, .. } => drop(next.killed.insert(pod)),
                Action::Hibernated { pod, .. } => drop(next.killed.remove(&pod)),
                _ => {}
            }
        }
        let turn = MAX_DURATION + cards * GRACE;
        let queue = next.pool.queue().map(|entry| {
            let bound = u64::from(entry.position).div_ceil(cards) * turn;
            let old = self.left.contains_key(entry.pod).then(|| next.left[entry.pod]);
            (entry.pod.clone(), old.map_or(bound, |left| left.min(bound)))
        });
        next.left = queue.collect();
        next
    }

    /// All that decides what can follow, whatever the clock says.
    fn key(&self) -> String {
        let pods = self.pool.pods().map(|view| {
            let lease = view.lease.map(|lease| {
                let held = (self.pool.now() - lease.since).0.min(MAX_DURATION);
                let ending =
                    lease.ending.map(|ending| (ending.kill_at - self.pool.now(), ending.killed_at.is_some()));
                let order = self.pool.leases().position(|other| other.lease == lease.lease);
                (lease.card, held, ending, order, lease.wants_again)
            });
            let left = self.left.get(view.pod);
            format!("{:?} {lease:?} {:?} {left:?}", view.state, self.pool.position(view.pod))
        });
        pods.collect::<Vec<_>>().join("\n")
    }
}

/// Visits every state that can be reached, and says how many there are.
fn explore(limits: &[u32], cards: u32) -> usize {
    let first = World::new(limits, cards);
    let mut seen = BTreeSet::from([first.key()]);
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        for event in world.moves() {
            let next = world.after(&event, cards.into());
            if seen.insert(next.key()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn one_card() {
    assert!(explore(&[25, 50, 50, 100], 1) > 3_000);
}

#[test]
fn two_cards() {
    assert!(explore(&[50, 50, 100, 100], 2) > 6_000);
}
