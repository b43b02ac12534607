//! A node for tests: a pool, driven by short sentences, whose invariants are checked after every event.

use gpupool_core::pool::{
    Action, Card, CardUuid, Config, Event, LeaseId, Millis, PodId, PodSpec, Policy, Pool, Qos, Refusal,
    Timestamp,
};

/// One hour.
pub(crate) const MAX_DURATION: u64 = 3_600_000;
/// Thirty seconds.
pub(crate) const GRACE: u64 = 30_000;

pub(crate) fn card(index: u32) -> Card {
    Card { uuid: uuid(index), index }
}

pub(crate) fn uuid(index: u32) -> CardUuid {
    format!("GPU-{index}").into()
}

pub(crate) fn qos() -> Qos {
    Qos {
        preempt_enabled: true,
        pod_max_duration: Millis(MAX_DURATION),
        grace: Millis(GRACE),
        idle_release: None,
    }
}

pub(crate) fn config(policy: Policy, cards: u32) -> Config {
    Config { cards: (0..cards).map(card).collect(), policy, qos: qos(), check_requests: true }
}

/// A pod that asks for `core` and `memory`, written as people write them.
pub(crate) fn pod_with(core: &str, memory: &str, priority: i32) -> PodSpec {
    PodSpec { core: core.parse().unwrap(), memory: memory.parse().unwrap(), priority, card: None }
}

/// A pod that asks for the same in both dimensions: a request of 1, so that many find room on the node.
pub(crate) fn pod_of(limit: u32) -> PodSpec {
    let share = format!("1:{limit}");
    pod_with(&share, &share, 0)
}

pub(crate) struct Node {
    pub(crate) pool: Pool,
}

impl Node {
    pub(crate) fn share_pool(cards: u32) -> Self {
        Self::with(config(Policy::SharePool, cards))
    }

    pub(crate) fn fixed(cards: u32) -> Self {
        Self::with(config(Policy::Static, cards))
    }

    pub(crate) fn with(config: Config) -> Self {
        Self { pool: Pool::new(config).unwrap() }
    }

    /// One event that must be accepted.
    pub(crate) fn step(&mut self, now: u64, event: Event) -> Vec<Action> {
        self.try_step(now, event).unwrap()
    }

    /// One event that may be refused; a refused one must change nothing.
    pub(crate) fn try_step(&mut self, now: u64, event: Event) -> Result<Vec<Action>, Refusal> {
        let before = self.pool.snapshot();
        let outcome = self.pool.step(Timestamp(now), event);
        self.pool.check_invariants().unwrap();
        if outcome.is_err() {
            assert_eq!(self.pool.snapshot(), before, "a refused event changed something");
        }
        outcome
    }

    pub(crate) fn refused(&mut self, now: u64, event: Event) -> Refusal {
        self.try_step(now, event).unwrap_err()
    }

    pub(crate) fn add(&mut self, name: &str, spec: PodSpec) {
        let now = self.pool.now().0;
        self.step(now, Event::PodAdded { pod: name.into(), spec });
    }

    pub(crate) fn remove(&mut self, now: u64, name: &str) -> Vec<Action> {
        self.step(now, Event::PodRemoved { pod: name.into() })
    }

    pub(crate) fn want(&mut self, now: u64, name: &str) -> Vec<Action> {
        self.step(now, Event::GpuWanted { pod: name.into(), only: None })
    }

    pub(crate) fn want_only(&mut self, now: u64, name: &str, card: u32) -> Vec<Action> {
        self.step(now, Event::GpuWanted { pod: name.into(), only: Some(uuid(card)) })
    }

    /// A pod that is added and wants a card at once.
    pub(crate) fn start(&mut self, now: u64, name: &str, spec: PodSpec) -> Vec<Action> {
        self.add(name, spec);
        self.want(now, name)
    }

    pub(crate) fn idle(&mut self, now: u64, name: &str) -> Vec<Action> {
        self.step(now, Event::Idle { pod: name.into(), idle: true })
    }

    pub(crate) fn release(&mut self, now: u64, name: &str) -> Vec<Action> {
        let event = self.release_of(name);
        self.step(now, event)
    }

    pub(crate) fn release_of(&self, name: &str) -> Event {
        Event::Released { pod: name.into(), lease: self.lease(name) }
    }

    pub(crate) fn tick(&mut self, now: u64) -> Vec<Action> {
        self.step(now, Event::Tick)
    }

    pub(crate) fn lease(&self, name: &str) -> LeaseId {
        self.pool.pod(&name.into()).unwrap().lease.unwrap().lease
    }

    pub(crate) fn card_of(&self, name: &str) -> Option<u32> {
        let pod = PodId::from(name);
        self.pool.cards().find(|card| card.pods.contains(&&pod)).map(|card| card.index)
    }

    pub(crate) fn queue(&self) -> Vec<String> {
        self.pool.queue().map(|entry| entry.pod.to_string()).collect()
    }

    pub(crate) fn set_qos(&mut self, now: u64, change: impl FnOnce(&mut Qos)) -> Vec<Action> {
        let mut qos = self.pool.qos();
        change(&mut qos);
        self.step(now, Event::QosChanged { qos })
    }
}

/// The names of those who are granted a card, in order.
pub(crate) fn granted(actions: &[Action]) -> Vec<String> {
    let pods = actions.iter().filter_map(|action| match action {
        Action::Grant { pod, .. } => Some(pod.to_string()),
        _ => None,
    });
    pods.collect()
}

/// The names of those who are told to go, in order.
pub(crate) fn terminated(actions: &[Action]) -> Vec<String> {
    let pods = actions.iter().filter_map(|action| match action {
        Action::Terminate { pod, .. } => Some(pod.to_string()),
        _ => None,
    });
    pods.collect()
}

/// The names of those who are killed, in order.
pub(crate) fn killed(actions: &[Action]) -> Vec<String> {
    let pods = actions.iter().filter_map(|action| match action {
        Action::Kill { pod, .. } => Some(pod.to_string()),
        _ => None,
    });
    pods.collect()
}
