//! A world under one seed: the agent's whole task among honest and lying programs, people, a disk and a kernel, where
//! everything may happen at any moment and in any order. What must hold is read from the simulated NVML.
//!
//! - [`kernel`]: the clock, processes, signals, sockets; [`gpus`]: the cards and who is on them; [`disk`]: the journal's bytes
//! - [`agent`]: the real task with the loop around it; it may be killed at each effect that it has outside itself
//! - [`programs`]: honest programs, as the shim makes them; [`liars`]: the others; [`people`]: who starts and ends pods
//! - [`faults`]: what goes wrong; [`invariants`]: what must hold all the same; [`calm`]: the queue moves when nothing goes wrong
//! - [`search`]: many seeds, and the shortest life that shows a failure
//!
//! A life is a list of steps, each with a random generator of its own, made of the seed and the step's number: so a step
//! can be left out, and the others do what they did.

mod agent;
mod calm;
mod disk;
mod faults;
mod gpus;
mod invariants;
mod kernel;
mod liars;
mod people;
mod programs;
mod search;
mod trace;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;
use gpupool_core::pool::PodId;
use gpupool_wire::message::RefusalReason;
use rustix::process::Signal;

use super::node::standing;
use crate::event::AgentEvent;
use crate::pod::PodNews;
use crate::procfs::ProcessKey;
use agent::{Agent, Input, Kind, choose, recover};
use disk::Disk;
use invariants::{Violation, Watch};
use kernel::{Killed, Machine};
use liars::Liar;
use people::Pod;
use programs::{Did, Program};
use trace::Trace;

/// What lives have met: a test that meets nothing tests nothing.
#[derive(Debug, Default, Clone, Copy)]
struct Met {
    grants: usize,
    told: usize,
    kills: usize,
    restarts: usize,
    killed_at_effects: usize,
    refusals: usize,
}

impl Met {
    fn add(&mut self, one: &Self) {
        self.grants += one.grants;
        self.told += one.told;
        self.kills += one.kills;
        self.restarts += one.restarts;
        self.killed_at_effects += one.killed_at_effects;
        self.refusals += one.refusals;
    }

    fn is_all(&self) -> bool {
        let all = [self.grants, self.told, self.kills, self.restarts, self.killed_at_effects, self.refusals];
        all.iter().all(|count| *count > 0)
    }
}

struct World {
    kind: Kind,
    machine: Machine,
    agent: Option<Agent>,
    /// How many agents there were.
    lives: u32,
    /// By SIGSTOP.
    agent_is_stopped: bool,
    pods: BTreeMap<PodId, Pod>,
    programs: BTreeMap<ProcessKey, Program>,
    liars: BTreeMap<ProcessKey, Liar>,
    made: usize,
    watch: Watch,
    trace: Trace,
    met: Met,
}

/// Writes a line of the trace, if somebody reads it.
macro_rules! tell {
    ($world:expr, $($what:tt)*) => {
        if $world.trace.is_kept() {
            let now = $world.machine.kernel().now;
            $world.trace.line(now, format_args!($($what)*));
        }
    };
}
use tell;

impl World {
    fn new(seed: u64, is_traced: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let kind = Kind { cards: random.u32(1..=4), in_cluster: random.bool(), evicts: random.bool() };
        let mut world = Self {
            kind,
            machine: Machine::new(Disk::default(), kind.cards),
            agent: None,
            lives: 0,
            agent_is_stopped: false,
            pods: BTreeMap::new(),
            programs: BTreeMap::new(),
            liars: BTreeMap::new(),
            made: 0,
            watch: Watch::default(),
            trace: Trace::new(is_traced),
            met: Met::default(),
        };
        tell!(world, "{kind:?}");
        world
    }

    /// One thing happens.
    fn step(&mut self, random: &mut Rng) -> Result<(), Violation> {
        match random.u8(..100) {
            0..45 => self.agent_acts(random)?,
            45..50 => self.agent_looks(),
            50..76 => self.program_acts(random)?,
            76..83 => self.liar_acts(random),
            83..91 => self.time_passes(random),
            91..96 => self.people_act(random),
            _ => self.something_goes_wrong(random)?,
        }
        self.check()?;
        self.obey_signals(random);
        self.bury();
        Ok(())
    }

    /// Starts an agent, if none runs; whoever starts it does so again when it was killed.
    fn start_agent(&mut self, fuse: Option<u32>) -> Result<(), Violation> {
        let known = self.machine.kernel().gpus.healthy();
        if self.agent.is_some() || known.is_empty() {
            return Ok(());
        }
        let recovered = recover(&self.machine.kernel(), self.kind, &known)
            .map_err(|refusal| format!("it does not start: {refusal}"))?;
        self.machine.kernel().disk.drop_damage();
        self.watch_from(recovered.pool.leases().map(|lease| lease.lease).collect());
        (self.met.restarts, self.lives) = (self.met.restarts + 1, self.lives + 1);
        tell!(self, "an agent starts with cards {known:?}");
        self.machine.kernel().fuse = fuse;
        let (machine, kind) = (self.machine.clone(), self.kind);
        match catch_unwind(AssertUnwindSafe(|| Agent::start(&machine, kind, recovered, known))) {
            Ok(mut agent) => {
                self.machine.kernel().fuse = None;
                if kind.in_cluster {
                    let policy = Some(gpupool_core::pool::Policy::SharePool);
                    agent.news.push_back(AgentEvent::Sharing { policy, qos: None });
                }
                self.agent = Some(agent);
                if kind.in_cluster {
                    self.list_pods();
                }
                self.check()?;
            }
            Err(end) if end.is::<Killed>() => self.agent_has_ended("is killed as it starts"),
            Err(panic) => resume_unwind(panic),
        }
        Ok(())
    }

    /// The API server says which pods there are.
    fn list_pods(&mut self) {
        let listed = self.pods.values().filter_map(|pod| pod.object.clone()).collect();
        if let Some(agent) = &mut self.agent {
            agent.news.push_back(AgentEvent::Pods(PodNews::Listed(listed)));
        }
    }

    fn agent_has_ended(&mut self, how: &str) {
        tell!(self, "the agent {how}");
        (self.agent, self.agent_is_stopped) = (None, false);
        self.machine.kernel().agent_has_ended();
    }

    fn agent_acts(&mut self, random: &mut Rng) -> Result<(), Violation> {
        if self.agent.is_none() {
            let fuse = (random.u8(..8) == 0).then(|| random.u32(..12));
            return if random.u8(..4) == 0 { self.start_agent(fuse) } else { Ok(()) };
        }
        if self.agent_is_stopped {
            return Ok(());
        }
        let Some(input) = self.next_input(random) else { return self.program_acts(random) };
        let fuse = (random.u8(..40) == 0).then(|| random.u32(..8));
        self.feed(input, fuse)
    }

    fn next_input(&self, random: &mut Rng) -> Option<Input> {
        let agent = self.agent.as_ref()?;
        let kernel = self.machine.kernel();
        let inputs = agent.inputs(&kernel);
        drop(kernel);
        if agent.is_impatient() && (inputs.is_empty() || random.bool()) {
            return Some(Input::Moment);
        }
        choose(&inputs, random)
    }

    /// The agent takes one input in; with a fuse it is killed after so many effects.
    fn feed(&mut self, input: Input, fuse: Option<u32>) -> Result<(), Violation> {
        if self.trace.is_kept() {
            let what = agent::describe(&self.machine.kernel(), input);
            tell!(self, "the agent hears {what}{}", fuse.map_or("", |_| ", and may be killed meanwhile"));
        }
        let before = fuse.map(|_| self.standing_on_disk()).transpose()?;
        self.machine.kernel().fuse = fuse;
        let machine = self.machine.clone();
        let Some(agent) = &mut self.agent else { return Ok(()) };
        match catch_unwind(AssertUnwindSafe(|| agent.take(&machine, input))) {
            Ok(()) => {
                machine.kernel().fuse = None;
                Ok(())
            }
            Err(end) if end.is::<Killed>() => {
                self.met.killed_at_effects += 1;
                let after = self.standing_of_agent();
                self.agent_has_ended("is killed in the middle of this");
                let now = self.standing_on_disk()?;
                let is_behind = self.machine.kernel().disk.is_behind;
                if is_behind || before.as_ref() == Some(&now) || after == now {
                    self.agent_was_lost();
                    return Ok(());
                }
                Err(format!(
                    "what is on the disk is neither what was before nor what came of it:\n{now}\nafter:\n{after}"
                ))
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Who holds what and who waits, by what the disk says.
    fn standing_on_disk(&self) -> Result<String, Violation> {
        let kernel = self.machine.kernel();
        let known = kernel.gpus.healthy();
        let known = if known.is_empty() { vec![0] } else { known };
        let recovered = recover(&kernel, self.kind, &known).map_err(|refusal| refusal.to_string())?;
        Ok(standing(&recovered.pool, &recovered.registry))
    }

    fn standing_of_agent(&self) -> String {
        self.agent.as_ref().map(|agent| standing(&agent.task.pool, &agent.task.registry)).unwrap_or_default()
    }

    fn agent_looks(&mut self) {
        let Some(agent) = self.agent.as_mut().filter(|_| !self.agent_is_stopped) else { return };
        let looks = agent.look(&self.machine.kernel());
        if looks {
            tell!(self, "the agent looks at the cards");
        }
    }

    fn program_acts(&mut self, random: &mut Rng) -> Result<(), Violation> {
        if random.u8(..3) == 0 {
            self.runs_register(random);
        }
        let keys: Vec<ProcessKey> = self.programs.keys().copied().collect();
        match random.choice(keys) {
            Some(key) => self.act(key, random),
            None => Ok(()),
        }
    }

    /// Every `gpupool run` goes on with its registration, and starts its command after it.
    fn runs_register(&mut self, random: &mut Rng) {
        let agent = self.agent.as_ref().map(|_| self.lives);
        let pods: Vec<PodId> = self.pods.keys().cloned().collect();
        for id in pods {
            let what = self.pods.get_mut(&id).and_then(|pod| pod.register(&mut self.machine.kernel(), agent));
            let Some(what) = what else { continue };
            tell!(self, "the run of {id} {what}");
            let has_programs = self.programs.values().any(|program| program.pod == id);
            if !has_programs && self.pods[&id].is_there(&self.machine.kernel()) {
                self.start_program(&id, None, random);
            }
        }
    }

    /// One honest program does something.
    fn act(&mut self, key: ProcessKey, random: &mut Rng) -> Result<(), Violation> {
        let serves = self.agent.is_some();
        let (did, pod) = {
            let mut kernel = self.machine.kernel();
            if kernel.processes.get(&key).is_none_or(|process| process.ended || process.stopped) {
                return Ok(());
            }
            let program = self.programs.get_mut(&key).expect("a program");
            let did = match program.read(&mut kernel, key) {
                Did::Nothing => program.act(&mut kernel, key, random, serves),
                read => read,
            };
            (did, program.pod.clone())
        };
        if let Did::Something(what) = &did {
            tell!(self, "process {} of {pod} {what}", key.pid);
        }
        match did {
            Did::Ended => self.end(key),
            Did::Forked => self.start_program(&pod, Some(key), random),
            Did::Nothing | Did::Something(_) => {}
        }
        self.see_refusal(key)
    }

    /// Nobody is told that it does not belong here who does.
    fn see_refusal(&mut self, key: ProcessKey) -> Result<(), Violation> {
        let Some(program) = self.programs.get(&key) else { return Ok(()) };
        let Some(refusal) = program.refused.clone() else { return Ok(()) };
        let entry = self.pods.get(&program.pod);
        let is_forgotten = entry.is_some_and(|pod| {
            refusal.greeted_at <= pod.forgotten_until && pod.is_there(&self.machine.kernel())
        });
        if refusal.reason == RefusalReason::NotRegistered && is_forgotten {
            // Its run is about to say whose it is.
            self.programs.get_mut(&key).expect("a program").refused = None;
            return Ok(());
        }
        self.met.refusals += 1;
        tell!(self, "process {} ends, since: {}", key.pid, refusal.sentence);
        let pod = program.pod.clone();
        self.end(key);
        let is_there =
            self.pods.get(&pod).is_some_and(|pod| pod.is_there(&self.machine.kernel()) && !pod.was_stopped);
        match refusal.reason {
            RefusalReason::NotRegistered if is_there && !self.kind.in_cluster => {
                Err(format!("a program of {pod} was told: {}", refusal.sentence))
            }
            _ => Ok(()),
        }
    }

    fn liar_acts(&mut self, random: &mut Rng) {
        let keys: Vec<ProcessKey> = self.liars.keys().copied().collect();
        let Some(key) = random.choice(keys) else { return };
        let serves = self.agent.is_some();
        let did = {
            let mut kernel = self.machine.kernel();
            if kernel.processes.get(&key).is_none_or(|process| process.ended || process.stopped) {
                return;
            }
            self.liars.get_mut(&key).expect("a liar").act(&mut kernel, key, random, serves)
        };
        let pod = self.liars[&key].pod.clone();
        if let Did::Something(what) = &did {
            tell!(self, "process {} of {pod:?}, which lies, {what}", key.pid);
        }
        match (did, pod) {
            (Did::Ended, _) => self.end(key),
            (Did::Forked, Some(pod)) => self.start_program(&pod, Some(key), random),
            _ => {}
        }
    }

    fn time_passes(&mut self, random: &mut Rng) {
        let milliseconds = match random.u8(..40) {
            0..26 => random.u64(1..60),
            26..36 => random.u64(60..1500),
            36..39 => random.u64(1500..14_000),
            _ if random.u8(..8) == 0 => 3_600_000,
            _ => random.u64(14_000..90_000),
        };
        self.machine.kernel().now += milliseconds;
        tell!(self, "{milliseconds} ms have passed");
    }

    /// A program of a pod, below its run or below one of its own.
    fn start_program(&mut self, pod: &PodId, parent: Option<ProcessKey>, random: &mut Rng) {
        let Some(entry) = self.pods.get(pod) else { return };
        let mut kernel = self.machine.kernel();
        let parent = parent.or_else(|| entry.run.as_ref().map(|run| run.key)).map_or(1, |key| key.pid);
        let key = kernel.spawn(parent, self.kind.in_cluster.then(|| pod.clone()));
        drop(kernel);
        let lies = entry.lies && random.bool();
        if lies {
            self.liars.insert(key, Liar::new(Some(pod.clone())));
        } else {
            self.programs.insert(key, Program::new(pod.clone()));
        }
        tell!(self, "process {} of {pod} starts{}", key.pid, if lies { ", and lies" } else { "" });
    }

    fn end(&mut self, key: ProcessKey) {
        self.machine.kernel().end(key);
        if self.programs.remove(&key).is_some() || self.liars.remove(&key).is_some() {
            tell!(self, "process {} ends", key.pid);
        }
    }

    /// Who is killed ends; who is told to terminate does so, or not.
    fn obey_signals(&mut self, random: &mut Rng) {
        let mut ending = Vec::new();
        for (key, process) in &mut self.machine.kernel().processes {
            let Some(signal) = process.signals.front().copied() else { continue };
            // The end of a process may take its time.
            if process.ended || random.u8(..3) == 0 || process.stopped && signal != Signal::KILL {
                continue;
            }
            process.signals.pop_front();
            let obeys = signal == Signal::KILL || !self.liars.contains_key(key) && random.u8(..4) > 0;
            if obeys {
                ending.push(*key);
            }
        }
        for key in ending {
            tell!(self, "process {} obeys a signal", key.pid);
            self.end(key);
        }
    }

    /// Forgets pods that are over and processes of which nobody can hear any more.
    fn bury(&mut self) {
        let mut kernel = self.machine.kernel();
        kernel.bury();
        let keeps = |pod: &Pod| match &pod.run {
            Some(run) => kernel.lives(run.key),
            None => pod.object.is_some(),
        };
        let over: Vec<PodId> =
            self.pods.iter().filter(|(_, pod)| !keeps(pod)).map(|(id, _)| id.clone()).collect();
        let has_members = |pod: &PodId| {
            self.programs.values().any(|program| program.pod == *pod)
                || self.liars.values().any(|liar| liar.pod.as_ref() == Some(pod))
        };
        for pod in over.into_iter().filter(|pod| !has_members(pod)) {
            self.pods.remove(&pod);
            kernel.limits.remove(&pod);
        }
    }
}
