//! How many events a second the pool decides: 1,000 pods on 16 cards, a fixed mix of events.
//!
//! `cargo run --release -p gpupool-core --example pool_events [EVENTS]` prints the rate. Each event is followed by
//! a look at the next deadline, as the agent does it. The same number of events gives the same decisions, whose
//! count is printed too.

use std::collections::VecDeque;
use std::time::Instant;

use gpupool_core::pool::{
    Action, Card, Config, Event, LeaseId, Millis, PodId, PodSpec, PodState, Policy, Pool, Qos, Refusal,
    Timestamp,
};
use gpupool_core::share::{Share, ShareError};

const PODS: u64 = 1_000;
const CARDS: u32 = 16;
const EVENTS: u64 = 1_000_000;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the number of events is not a number: {0}")]
    Usage(#[from] std::num::ParseIntError),
    #[error(transparent)]
    Share(#[from] ShareError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

#[allow(clippy::print_stdout, reason = "printing the figures is what the example is for")]
fn main() -> Result<(), Failure> {
    let events = std::env::args().nth(1).map_or(Ok(EVENTS), |text| text.parse())?;
    let mut node = Node::new()?;
    let start = Instant::now();
    for _ in 0..events {
        node.step()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.0} events/s", f64::from(u32::try_from(events).unwrap_or(u32::MAX)) / seconds);
    println!("{events} events in {seconds:.3} s: {} actions, {} of them grants", node.actions, node.grants);
    Ok(())
}

struct Node {
    pool: Pool,
    pods: Vec<PodId>,
    /// Holding a card, and not told to go.
    held: Vec<(PodId, LeaseId)>,
    /// Told to go, and not gone yet; the earliest first.
    going: VecDeque<(PodId, LeaseId)>,
    now: u64,
    dice: u64,
    actions: usize,
    grants: usize,
}

impl Node {
    fn new() -> Result<Self, Failure> {
        let cards = (0..CARDS).map(|index| Card { uuid: format!("GPU-{index:08}").into(), index }).collect();
        let qos = Qos {
            preempt_enabled: true,
            pod_max_duration: Millis(1_000),
            grace: Millis(200),
            idle_release: None,
        };
        let config = Config { cards, policy: Policy::SharePool, qos, check_requests: false };
        let mut node = Self {
            pool: Pool::new(config)?,
            pods: (0..PODS).map(|pod| format!("pod-{pod:04}").into()).collect(),
            held: Vec::new(),
            going: VecDeque::new(),
            now: 0,
            dice: 0x9E37_79B9_7F4A_7C15,
            actions: 0,
            grants: 0,
        };
        for pod in node.pods.clone() {
            let share: Share = ["1:25", "1:50", "1:100"][node.roll(3)].parse()?;
            let spec = PodSpec { core: share, memory: share, priority: 0, card: None };
            node.pool.step(Timestamp(0), Event::PodAdded { pod, spec })?;
        }
        Ok(node)
    }

    /// A number below `sides`, by xorshift.
    fn roll(&mut self, sides: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        usize::try_from(self.dice >> 33).unwrap_or(0) % sides
    }

    fn step(&mut self) -> Result<(), Refusal> {
        self.now += 1 + self.roll(10) as u64;
        let event = self.next_event();
        let actions = self.pool.step(Timestamp(self.now), event)?;
        self.actions += actions.len();
        for action in actions {
            match action {
                Action::Grant { pod, lease, .. } => {
                    self.grants += 1;
                    self.held.push((pod, lease));
                }
                Action::Terminate { pod, lease, .. } => {
                    self.held.retain(|(_, held)| *held != lease);
                    self.going.push_back((pod, lease));
                }
                _ => {}
            }
        }
        std::hint::black_box(self.pool.next_deadline());
        Ok(())
    }

    /// Of 16 events, four end a lease, two confirm that a pod has gone that was told to, and ten are about a pod
    /// picked by chance: it wants a card, gives up waiting, or is idle.
    fn next_event(&mut self) -> Event {
        match self.roll(16) {
            0..4 if !self.held.is_empty() => {
                let place = self.roll(self.held.len());
                let (pod, lease) = self.held.swap_remove(place);
                Event::Released { pod, lease }
            }
            4..6 if let Some((pod, lease)) = self.going.pop_front() => Event::Released { pod, lease },
            _ => {
                let place = self.roll(self.pods.len());
                let pod = self.pods[place].clone();
                let gives_up = self.roll(4) == 0;
                match self.pool.state(&pod) {
                    Some(PodState::Running) => Event::Idle { pod, idle: gives_up },
                    Some(PodState::Ready) if gives_up => Event::WantGone { pod },
                    Some(PodState::Ready) => Event::Tick,
                    _ => Event::GpuWanted { pod, only: None },
                }
            }
        }
    }
}
