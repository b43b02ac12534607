//! Random lives of a node: programs come, ask, give back, end and are stopped, connections break, the journal fails,
//! the agent starts again. What must always hold is looked at after every step.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use gpupool_core::pool::{CardUuid, LeaseId, PodId};
use rustix::process::Signal;

use super::machine::{Sent, card_uuid};
use super::node::{Node, standing};
use crate::admin_api::{Reply, Request};
use crate::environment::PeerSocket as _;
use crate::log;
use crate::procfs::ProcessKey;
use crate::registry::CardUse;
use crate::usage_audit::TOLERANCE;

const SEEDS: std::ops::Range<u64> = 0..30;
const STEPS: usize = 250;

/// What a life has met, over all seeds: a test that meets nothing tests nothing.
#[derive(Debug, Default)]
struct Met {
    grants: usize,
    refusals: usize,
    kills: usize,
    restarts: usize,
    rewrites: usize,
    failures: u64,
    /// Cards on which somebody was who must not be, and leases that nobody said to use.
    occupied: usize,
    kept: usize,
}

struct Life {
    node: Node,
    random: Rng,
    runs: Vec<(ProcessKey, String)>,
    programs: Vec<ProcessKey>,
    strangers: Vec<ProcessKey>,
    /// Those that were granted before this step.
    leases: BTreeSet<LeaseId>,
    names: usize,
    met: Met,
}

#[test]
fn whatever_happens_leases_queue_and_journal_agree() {
    let mut met = Met::default();
    let seeds = match std::env::var("GPUPOOL_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => SEEDS,
    };
    for seed in seeds {
        // Shown when the test fails; GPUPOOL_SEED runs it alone.
        eprintln!("seed {seed}");
        let one = live(seed);
        met.grants += one.grants;
        met.refusals += one.refusals;
        met.kills += one.kills;
        met.restarts += one.restarts;
        met.rewrites += one.rewrites;
        met.failures += one.failures;
        met.occupied += one.occupied;
        met.kept += one.kept;
    }
    let all = [met.grants, met.refusals, met.kills, met.restarts, met.rewrites, met.occupied, met.kept];
    assert!(all.iter().all(|count| *count > 0) && met.failures > 0, "{met:?}");
}

fn live(seed: u64) -> Met {
    let mut life = Life {
        node: Node::new(),
        random: Rng::with_seed(seed),
        runs: Vec::new(),
        programs: Vec::new(),
        strangers: Vec::new(),
        leases: BTreeSet::new(),
        names: 0,
        met: Met::default(),
    };
    for step in 0..STEPS {
        life.step(step);
        life.obey_signals();
        life.node.close_what_was_cut();
        life.check_grants(step);
        if life.random.bool() {
            life.node.look_if_asked();
            life.check_grants(step);
        }
        life.read();
        life.check(step);
        log::take();
    }
    life.met.rewrites = life.node.machine.state().rewrites;
    life.met
}

fn assert_same(now: &str, before: &str, what: &str) {
    assert!(now == before, "{what}: {now}\nis not as it was: {before}");
}

impl Life {
    fn step(&mut self, step: usize) {
        match self.random.u8(..100) {
            0..10 => self.register(),
            10..25 => self.start_program(),
            25..50 => self.ask(),
            50..60 => self.give_back(),
            60..68 => self.end_somebody(),
            68..74 => {
                if let Some(program) = self.some_program() {
                    self.node.hang_up(program);
                }
            }
            74..79 => self.fail_or_mend_the_journal(),
            79..82 => self.restart(step),
            82..85 => self.stop(),
            85..88 => self.look(),
            88..92 => self.take(),
            92 => self.end_a_stranger(),
            _ => {
                let milliseconds = self.random.u64(1..20_000);
                self.node.wait(milliseconds);
            }
        }
    }

    fn register(&mut self) {
        self.names += 1;
        let name = format!("pod-{}", self.names);
        let request = self.random.u64(1..60);
        let (run, reply) = self.node.register(&name, request);
        match reply {
            Reply::Registered(_) => self.runs.push((run, name)),
            Reply::Refused(_) => self.node.end(run),
            other => panic!("{other:?}"),
        }
    }

    fn start_program(&mut self) {
        let Some((run, _)) = self.random.choice(&self.runs).cloned() else { return };
        let program = self.node.spawn(run);
        self.programs.push(program);
        self.node.hello(program);
    }

    fn some_program(&mut self) -> Option<ProcessKey> {
        self.random.choice(&self.programs).copied()
    }

    /// A program comes (back) and asks for a card.
    fn ask(&mut self) {
        let Some(program) = self.some_program() else { return };
        if !self.node.lines.contains_key(&program) {
            self.node.hello(program);
        }
        if self.node.lines[&program].socket.is_alive() {
            self.node.acquire(program);
        }
    }

    fn give_back(&mut self) {
        let Some(program) = self.some_program() else { return };
        let holds = self.node.machine.state().processes[&program].lease.is_some();
        if holds && self.node.lines.get(&program).is_some_and(|line| line.socket.is_alive()) {
            self.node.release(program);
        }
    }

    fn end_somebody(&mut self) {
        let runs = self.runs.iter().map(|(run, _)| *run);
        let all: Vec<ProcessKey> = runs.chain(self.programs.iter().copied()).collect();
        if let Some(process) = self.random.choice(&all).copied() {
            self.end(process);
        }
    }

    fn end(&mut self, process: ProcessKey) {
        self.runs.retain(|(run, _)| *run != process);
        self.programs.retain(|program| *program != process);
        self.node.end(process);
    }

    fn fail_or_mend_the_journal(&mut self) {
        let mut state = self.node.machine.state();
        state.journal_fails = !state.journal_fails && self.random.bool();
    }

    /// An agent that starts with a journal that lacks something is another test's.
    fn restart(&mut self, step: usize) {
        self.met.failures += self.node.task.reports.counters.journal_failures.get();
        let behind = self.node.machine.state().journal_is_behind;
        if behind {
            self.node.machine.state().journal_fails = false;
            self.node.task.close();
        }
        // An agent starts only with cards that answer.
        self.show_cards(None);
        self.check_grants(step);
        let before = self.node.standing();
        self.node.restart();
        self.met.restarts += 1;
        assert_same(&self.node.standing(), &before, "restarted");
    }

    fn stop(&mut self) {
        let Some((run, name)) = self.random.choice(&self.runs).cloned() else { return };
        let asker = self.node.spawn(ProcessKey { pid: 1, start: 1 });
        let line = self.node.connect(asker);
        let refused = matches!(self.node.request(&line, Request::Stop { name }), Some(Reply::Refused(_)));
        assert!(!refused, "the pod of {run:?} can be stopped");
        self.node.end(asker);
    }

    /// NVML shows the cards, one of them perhaps lost.
    fn look(&mut self) {
        let lost = self.random.u32(0..6);
        self.show_cards(Some(lost));
    }

    fn show_cards(&mut self, lost: Option<u32>) {
        let (observation, _) = self.node.machine.look(lost);
        self.node.show(observation);
    }

    /// Somebody takes memory of a card or lets it go: mostly a program of what it was granted, at times more, on another
    /// card, without a lease, or as nobody's process.
    fn take(&mut self) {
        let Some(program) = self.some_program() else { return };
        let leased = self.node.card_of(program);
        let (process, card, bytes) = match self.random.u8(0..10) {
            0 => (self.node.spawn(ProcessKey { pid: 1, start: 1 }), self.random.u32(0..2), 1 << 30),
            1 => (program, self.random.u32(0..2), 20 << 30),
            2..5 => (program, leased.unwrap_or(0), 0),
            _ => (program, leased.unwrap_or(0), self.random.u64(0..4) << 30),
        };
        if !self.programs.contains(&process) {
            self.strangers.push(process);
        }
        self.node.take(process, card, bytes);
    }

    fn end_a_stranger(&mut self) {
        if !self.strangers.is_empty() {
            let place = self.random.usize(..self.strangers.len());
            let stranger = self.strangers.swap_remove(place);
            self.node.end(stranger);
        }
    }

    /// Who is told to terminate does so, or waits to be killed.
    fn obey_signals(&mut self) {
        loop {
            let mut ending = Vec::new();
            for (key, process) in &mut self.node.machine.state().processes {
                let signals = std::mem::take(&mut process.signals);
                let killed = signals.contains(&Signal::KILL);
                self.met.kills += usize::from(killed);
                if !process.ended && (killed || (!signals.is_empty() && self.random.bool())) {
                    ending.push(*key);
                }
            }
            if ending.is_empty() {
                return;
            }
            for process in ending {
                self.end(process);
            }
        }
    }

    fn read(&mut self) {
        for line in self.node.lines.values() {
            while let Some(sent) = line.socket.receive() {
                self.met.grants += usize::from(sent == Sent::Granted);
                self.met.refusals += usize::from(matches!(sent, Sent::Refused(_)));
            }
        }
    }

    fn check(&self, step: usize) {
        let task = &self.node.task;
        task.pool.check_invariants().unwrap_or_else(|violation| panic!("step {step}: {violation}"));
        assert_eq!(task.reports.counters.disagreements.get(), 0, "step {step}: {:?}", log::take());
        for lease in task.pool.leases() {
            let holders = task.registry.members_using(lease.pod, CardUse::Holding);
            let has_left = task.presence.has_left(lease.pod, lease.card);
            assert!(!holders.is_empty() || !has_left, "step {step}: nobody holds the lease of {}", lease.pod);
        }
        for waiting in task.pool.queue() {
            let members = task.registry.members_using(waiting.pod, CardUse::Waiting);
            assert!(!members.is_empty(), "step {step}: nobody of {} waits", waiting.pod);
        }
        for (key, _) in task.registry.processes() {
            assert!(!self.node.machine.state().processes[&key].ended, "step {step}: {key:?} has ended");
        }
        let state = self.node.machine.state();
        if !state.journal_is_behind {
            let known = state.recover();
            let known = standing(&known.pool, &known.registry);
            assert_same(&standing(&task.pool, &task.registry), &known, "the journal");
        }
    }

    /// Nobody is granted a card that was not looked at, or on which NVML last showed others who must not be there,
    /// whatever was said to the agent.
    fn check_grants(&mut self, step: usize) {
        let task = &self.node.task;
        let leases: BTreeSet<LeaseId> = task.pool.leases().map(|lease| lease.lease).collect();
        for lease in task.pool.leases().filter(|lease| !self.leases.contains(&lease.lease)) {
            let others = self.without_right(lease.card);
            let alone = others.iter().all(|(pod, _)| pod.as_ref() == Some(lease.pod));
            assert!(alone, "step {step}: {} was let in on {} beside {others:?}", lease.pod, lease.card);
        }
        for card in task.pool.cards() {
            self.met.occupied += usize::from(!card.occupants.is_empty());
        }
        let users = |pod: &PodId| task.registry.members_using(pod, CardUse::Holding).len();
        self.met.kept += task.pool.leases().filter(|lease| users(lease.pod) == 0).count();
        self.leases = leases;
    }

    /// Pods, and nobody's processes, that were last shown with more on a card than they may, and live.
    fn without_right(&self, card: &CardUuid) -> BTreeMap<Option<PodId>, u64> {
        let task = &self.node.task;
        let state = self.node.machine.state();
        let shown = state.shown.as_ref().expect("nothing is granted before the first look");
        let mut taken: BTreeMap<Option<PodId>, u64> = BTreeMap::new();
        for (key, on, bytes) in shown.iter().filter(|(key, ..)| !state.processes[key].ended) {
            if card_uuid(*on) == card.as_str() {
                let member = task.registry.process(*key).map(|process| process.pod.clone());
                *taken.entry(member).or_default() += bytes;
            }
        }
        let limit = |pod: &Option<PodId>| {
            let lease = task.pool.pod(pod.as_ref()?)?.lease.filter(|lease| lease.card == card)?;
            Some((16 << 30) / 100 * u64::from(lease.limits.memory.get()))
        };
        taken.retain(|pod, bytes| *bytes > limit(pod).unwrap_or(0) + TOLERANCE);
        taken
    }
}
