//! With pre-emption on, equal priorities and m healthy cards, the k-th in the queue runs within
//! ⌈k/m⌉ · (podMaxDuration + m · grace), also when every victim uses its whole grace.

use std::collections::BTreeMap;

use gpupool_core::pool::{Action, Event, Millis, PodId, PodSpec, Policy, Pool, Timestamp};
use proptest::prelude::*;

use crate::harness::{config, pod_with};

#[derive(Debug, Clone)]
struct Load {
    cards: u32,
    max_duration: u64,
    grace: u64,
    pods: Vec<Behaviour>,
}

/// A pod that comes again and again.
#[derive(Debug, Clone)]
struct Behaviour {
    core: u32,
    memory: u32,
    /// How long it works; `None`: until it is killed.
    burst: Option<u64>,
    /// Between the end of a lease and the next want.
    think: u64,
}

/// What is known of one run in simulated time.
struct Run {
    pool: Pool,
    load: Load,
    now: u64,
    /// When each pod wants a card, or ends its lease by itself.
    plans: BTreeMap<PodId, u64>,
    /// By when each waiting pod must run: the strictest of what all its positions so far have promised.
    promises: BTreeMap<PodId, u64>,
    preemptions: usize,
}

fn name(number: usize) -> PodId {
    format!("p{number}").into()
}

impl Run {
    fn new(load: Load) -> Self {
        let mut config = config(Policy::SharePool, load.cards);
        config.qos.pod_max_duration = Millis(load.max_duration);
        config.qos.grace = Millis(load.grace);
        config.check_requests = false;
        let mut pool = Pool::new(config).unwrap();
        let mut plans = BTreeMap::new();
        for (number, pod) in load.pods.iter().enumerate() {
            let spec: PodSpec = pod_with(&pod.core.to_string(), &pod.memory.to_string(), 0);
            pool.step(Timestamp(0), Event::PodAdded { pod: name(number), spec }).unwrap();
            plans.insert(name(number), pod.think);
        }
        Self { pool, load, now: 0, plans, promises: BTreeMap::new(), preemptions: 0 }
    }

    fn behaviour(&self, pod: &PodId) -> Behaviour {
        let number = (0..self.load.pods.len()).find(|number| name(*number) == *pod).unwrap();
        self.load.pods[number].clone()
    }

    /// One event, and the releases that its kills bring about.
    fn step(&mut self, event: Event) {
        let actions = self.pool.step(Timestamp(self.now), event).unwrap();
        self.pool.check_invariants().unwrap();
        self.keep_promises();
        for action in actions {
            match action {
                Action::Grant { pod, .. } => {
                    self.promises.remove(&pod);
                    if let Some(burst) = self.behaviour(&pod).burst {
                        self.plans.insert(pod, self.now + burst);
                    }
                }
                Action::Terminate { pod, .. } => {
                    self.preemptions += 1;
                    self.plans.remove(&pod);
                }
                Action::Kill { pod, lease, .. } => self.step(Event::Released { pod, lease }),
                Action::Hibernated { pod, .. } => {
                    let think = self.behaviour(&pod).think;
                    self.plans.insert(pod, self.now + think);
                }
                _ => {}
            }
        }
    }

    fn keep_promises(&mut self) {
        let cards = u64::from(self.load.cards);
        let turn = self.load.max_duration + cards * self.load.grace;
        for entry in self.pool.queue() {
            let bound = self.now + u64::from(entry.position).div_ceil(cards) * turn;
            let promise = self.promises.entry(entry.pod.clone()).or_insert(bound);
            *promise = bound.min(*promise);
        }
    }

    /// To the next thing that happens; false when nothing more will.
    fn advance(&mut self) -> bool {
        let plan = self.plans.iter().map(|(pod, at)| (*at, pod.clone())).min();
        let deadline = self.pool.next_deadline().map(|at| at.0);
        let Some(next) = plan.iter().map(|(at, _)| *at).chain(deadline).min() else { return false };
        for (pod, promise) in &self.promises {
            assert!(next <= *promise, "`{pod}` waits at {next}, and was to run by {promise}");
        }
        self.now = next;
        match plan.filter(|(at, _)| *at == next) {
            None => self.step(Event::Tick),
            Some((_, pod)) => {
                self.plans.remove(&pod);
                let lease = self.pool.pod(&pod).unwrap().lease.map(|lease| lease.lease);
                match lease {
                    Some(lease) => self.step(Event::Released { pod, lease }),
                    None => self.step(Event::GpuWanted { pod, only: None }),
                }
            }
        }
        true
    }
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    let percent = || prop_oneof![Just(10_u32), Just(25), Just(30), Just(50), Just(70), Just(100)];
    let burst = prop_oneof![2 => Just(None), 1 => (1..3_000_u64).prop_map(Some)];
    (percent(), percent(), burst, 0..1_500_u64).prop_map(|(core, memory, burst, think)| Behaviour {
        core,
        memory,
        burst,
        think,
    })
}

fn load() -> impl Strategy<Value = Load> {
    let pods = proptest::collection::vec(behaviour(), 2..12);
    (1..=4_u32, 1..1_000_u64, 0..200_u64, pods).prop_map(|(cards, max_duration, grace, pods)| Load {
        cards,
        max_duration,
        grace,
        pods,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_kth_in_the_queue_runs_in_time(load in load()) {
        let mut run = Run::new(load);
        for _ in 0..150 {
            if !run.advance() {
                break;
            }
        }
    }
}

#[test]
fn the_bound_is_nearly_reached_by_victims_that_use_the_whole_grace() {
    let forever = Behaviour { core: 100, memory: 100, burst: None, think: 0 };
    let mut run = Run::new(Load { cards: 2, max_duration: 1000, grace: 100, pods: vec![forever; 6] });
    while run.now < 20_000 {
        assert!(run.advance());
    }
    // Two cards, a turn of 1000 and the grace of the one told first: the second is told 100 later.
    assert!(run.preemptions >= 2 * 20_000 / 1200 - 2, "{} pre-emptions", run.preemptions);
}

#[test]
fn small_pods_that_never_pause_do_not_starve_a_whole_card_pod() {
    let mut pods = vec![Behaviour { core: 50, memory: 50, burst: Some(100), think: 0 }; 6];
    pods.push(Behaviour { core: 100, memory: 100, burst: Some(100), think: 50 });
    let mut run = Run::new(Load { cards: 2, max_duration: 1000, grace: 30, pods });
    let mut turns = 0;
    while run.now < 10_000 {
        let before = run.pool.state(&name(6));
        assert!(run.advance());
        let runs = run.pool.state(&name(6)) == Some(gpupool_core::pool::PodState::Running);
        turns += usize::from(runs && before != run.pool.state(&name(6)));
    }
    assert!(turns >= 20, "{turns} turns in 10,000 ms");
}
