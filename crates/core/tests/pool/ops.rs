//! What can happen to a node, by chance: the sequences that the property tests are made of.

use gpupool_core::pool::{
    Card, Event, LeaseId, Millis, Occupants, PodId, PodSpec, Policy, Pool, Qos, Timestamp,
};
use gpupool_core::share::{Percent, Share};
use proptest::prelude::*;

use crate::harness::{config, uuid};

/// Few pods and cards, so that they get in each other's way.
const PODS: u8 = 7;
const CARDS: u32 = 2;

/// One thing that happens. What depends on the state (which lease a pod holds) is settled when it does.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Add {
        pod: u8,
        spec: PodSpec,
    },
    Change {
        pod: u8,
        spec: PodSpec,
    },
    Remove(u8),
    Want {
        pod: u8,
        only: Option<u32>,
    },
    WantGone(u8),
    /// The GPU processes of one that runs are gone; if nobody does, of a pod that is believed to.
    Release(u8),
    /// A late word about a lease before the pod's own.
    ReleaseOld(u8),
    Idle {
        pod: u8,
        idle: bool,
    },
    Lost(u32),
    Back(u32),
    AddCard(u32),
    Renumber {
        card: u32,
        index: u32,
    },
    /// On which cards who is: pods, each by its number, and perhaps somebody else.
    Seen(Vec<(u32, Vec<u8>, bool)>),
    Unseen,
    Qos(Qos),
    Tick,
}

/// A node and what happens to it: each op after so many milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    pub(crate) policy: Policy,
    pub(crate) check_requests: bool,
    pub(crate) qos: Qos,
    pub(crate) ops: Vec<(u64, Op)>,
}

impl Story {
    pub(crate) fn pool(&self) -> Pool {
        let mut config = config(self.policy, CARDS);
        config.qos = self.qos;
        config.check_requests = self.check_requests;
        Pool::new(config).unwrap()
    }

    /// Plays the story: `each` is given every event with its moment, and carries it out.
    pub(crate) fn play(&self, pool: &mut Pool, mut each: impl FnMut(&mut Pool, Timestamp, Event)) {
        let mut now = 0;
        for (wait, op) in &self.ops {
            now += wait;
            let event = op.event(pool);
            each(pool, Timestamp(now), event);
        }
    }
}

pub(crate) fn pod(number: u8) -> PodId {
    char::from(b'a' + number).to_string().into()
}

impl Op {
    pub(crate) fn event(&self, pool: &Pool) -> Event {
        match self.clone() {
            Self::Add { pod: number, spec } => Event::PodAdded { pod: pod(number), spec },
            Self::Change { pod: number, spec } => Event::PodChanged { pod: pod(number), spec },
            Self::Remove(number) => Event::PodRemoved { pod: pod(number) },
            Self::Want { pod: number, only } => Event::GpuWanted { pod: pod(number), only: only.map(uuid) },
            Self::WantGone(number) => Event::WantGone { pod: pod(number) },
            Self::Release(number) => {
                let leases: Vec<_> = pool.leases().map(|lease| (lease.pod.clone(), lease.lease)).collect();
                let place = usize::from(number) % leases.len().max(1);
                let (pod, lease) = leases.get(place).cloned().unwrap_or_else(|| (pod(number), LeaseId(0)));
                Event::Released { pod, lease }
            }
            Self::ReleaseOld(number) => {
                let lease =
                    pool.pod(&pod(number)).and_then(|view| view.lease).map_or(1, |lease| lease.lease.0);
                Event::Released { pod: pod(number), lease: LeaseId(lease.saturating_sub(1)) }
            }
            Self::Idle { pod: number, idle } => Event::Idle { pod: pod(number), idle },
            Self::Lost(card) => Event::CardLost { card: uuid(card) },
            Self::Back(card) => Event::CardBack { card: uuid(card) },
            Self::AddCard(index) => Event::CardAdded { card: Card { uuid: uuid(index), index } },
            Self::Renumber { card, index } => Event::CardRenumbered { card: uuid(card), index },
            Self::Seen(cards) => {
                let occupants = |pods: Vec<u8>, strangers| Occupants {
                    pods: pods.into_iter().map(pod).collect(),
                    strangers,
                };
                let cards = cards.into_iter();
                let occupied = cards.map(|(card, pods, strangers)| (uuid(card), occupants(pods, strangers)));
                Event::CardsSeen { occupied: occupied.collect() }
            }
            Self::Unseen => Event::CardsUnseen,
            Self::Qos(qos) => Event::QosChanged { qos },
            Self::Tick => Event::Tick,
        }
    }
}

fn share() -> impl Strategy<Value = Share> {
    let limits = prop_oneof![Just(10_u64), Just(25), Just(34), Just(50), Just(50), Just(67), Just(100)];
    let part = prop_oneof![3 => 1..=10_u64, 1 => 11..=100_u64];
    (limits, part).prop_map(|(limit, part)| {
        let request = (limit * part).div_ceil(100);
        Share::new(Percent::new(request).unwrap(), Percent::new(limit).unwrap()).unwrap()
    })
}

fn spec(policy: Policy) -> impl Strategy<Value = PodSpec> {
    let card = match policy {
        // A card is only named by mistake here.
        Policy::SharePool => prop_oneof![30 => Just(None), 1 => Just(Some(0_u32))].boxed(),
        Policy::Static => proptest::option::of(card()).boxed(),
    };
    let priority = prop_oneof![3 => Just(0), 1 => -1..=1];
    (share(), share(), priority, card).prop_map(|(core, memory, priority, card)| PodSpec {
        core,
        memory,
        priority,
        card: card.map(uuid),
    })
}

fn qos() -> impl Strategy<Value = Qos> {
    let preempt_enabled = prop::bool::weighted(0.8);
    let pod_max_duration = 0..300_u64;
    let grace = prop_oneof![1 => Just(0_u64), 3 => 1..100_u64];
    let idle_release = proptest::option::weighted(0.4, 0..100_u64);
    (preempt_enabled, pod_max_duration, grace, idle_release).prop_map(
        |(preempt_enabled, pod_max_duration, grace, idle_release)| Qos {
            preempt_enabled,
            pod_max_duration: Millis(pod_max_duration),
            grace: Millis(grace),
            idle_release: idle_release.map(Millis),
        },
    )
}

/// Mostly a card that is there.
fn card() -> impl Strategy<Value = u32> {
    prop_oneof![20 => 0..CARDS, 1 => Just(CARDS)]
}

/// Mostly by pods, which a lease's end can make leave.
fn seen() -> impl Strategy<Value = Op> {
    let one = (card(), proptest::collection::vec(0..PODS, 0..3), prop::bool::weighted(0.1));
    proptest::collection::vec(one, 0..3).prop_map(Op::Seen)
}

fn op(policy: Policy) -> impl Strategy<Value = Op> {
    let pod = 0..PODS;
    prop_oneof![
        2 => (pod.clone(), spec(policy)).prop_map(|(pod, spec)| Op::Add { pod, spec }),
        2 => (pod.clone(), spec(policy)).prop_map(|(pod, spec)| Op::Change { pod, spec }),
        1 => pod.clone().prop_map(Op::Remove),
        20 => pod.clone().prop_map(|pod| Op::Want { pod, only: None }),
        2 => (pod.clone(), proptest::option::of(card())).prop_map(|(pod, only)| Op::Want { pod, only }),
        1 => pod.clone().prop_map(Op::WantGone),
        6 => pod.clone().prop_map(Op::Release),
        1 => pod.clone().prop_map(Op::ReleaseOld),
        6 => (pod, prop::bool::weighted(0.8)).prop_map(|(pod, idle)| Op::Idle { pod, idle }),
        1 => card().prop_map(Op::Lost),
        2 => card().prop_map(Op::Back),
        1 => prop_oneof![Just(1_u32), Just(CARDS)].prop_map(Op::AddCard),
        1 => (card(), 0..=CARDS).prop_map(|(card, index)| Op::Renumber { card, index }),
        4 => seen(),
        1 => Just(Op::Unseen),
        1 => qos().prop_map(Op::Qos),
        10 => Just(Op::Tick),
    ]
}

/// Most pods are there from the start.
pub(crate) fn story_of(policy: Policy) -> impl Strategy<Value = Story> {
    let first = proptest::collection::vec(spec(policy), usize::from(PODS));
    let wait = prop_oneof![4 => 0..40_u64, 2 => 40..400_u64, 1 => Just(31_000)];
    let then = proptest::collection::vec((wait, op(policy)), 1..70);
    (any::<bool>(), qos(), first, then).prop_map(move |(check_requests, qos, first, then)| {
        let adds = (0..PODS).zip(first).map(|(pod, spec)| (0, Op::Add { pod, spec }));
        Story { policy, check_requests, qos, ops: adds.chain(then).collect() }
    })
}

pub(crate) fn story() -> impl Strategy<Value = Story> {
    prop_oneof![3 => story_of(Policy::SharePool), 2 => story_of(Policy::Static)]
}
