//! Nothing goes wrong any more: the queue must move.
//!
//! First liars and strangers stay where they are, and whoever is next must get a card that has room and on which nobody is
//! without a right. Then they go, everybody else finishes, and nothing may be left.

use std::collections::BTreeSet;

use fastrand::Rng;
use gpupool_core::pool::PodId;

use super::agent::Input;
use super::gpus::uuid;
use super::invariants::Violation;
use super::programs::{Did, Stage};
use super::{World, tell};
use crate::procfs::ProcessKey;

/// How long the world is left alone before a look at its queue, in milliseconds: longer than anybody may stay away.
const CALM: u64 = 75_000;

/// Inputs of one moment, of which none can be the last.
const RESTLESS: u32 = 5000;

/// By when everybody must have had their turn: each pod's time on a card and its end, one after the other.
const LONGEST: u64 = 30 * 100_000;

impl World {
    /// What must come of it when nothing goes wrong any more.
    pub(super) fn calm_down(&mut self, random: &mut Rng) -> Result<(), Violation> {
        self.mend()?;
        let end = self.machine.kernel().now + CALM;
        while self.machine.kernel().now < end {
            self.calm_moment(random, 1000, false)?;
        }
        self.the_head_has_what_it_can_have()?;
        tell!(self, "liars and strangers end");
        let liars: Vec<ProcessKey> = self.liars.keys().copied().collect();
        for key in liars {
            self.end(key);
        }
        if self.kind.in_cluster {
            self.list_pods();
        }
        let end = self.machine.kernel().now + LONGEST;
        while !self.is_over() {
            if self.machine.kernel().now > end {
                return Err(format!("somebody waits for ever: {}", self.standing_of_agent()));
            }
            self.calm_moment(random, 500, true)?;
        }
        self.nothing_is_left()
    }

    fn mend(&mut self) -> Result<(), Violation> {
        tell!(self, "nothing goes wrong any more");
        self.agent_is_stopped = false;
        let mut kernel = self.machine.kernel();
        kernel.disk.sickness = None;
        (kernel.gpus.lost, kernel.gpus.mute) = (BTreeSet::new(), BTreeSet::new());
        for process in kernel.processes.values_mut() {
            process.stopped = false;
        }
        drop(kernel);
        // One that was started when some cards were lost has never heard of those.
        if let Some(agent) = &self.agent
            && agent.known.len() < self.kind.cards as usize
        {
            self.agent_has_ended("is started again");
            self.agent_was_lost();
        }
        self.start_agent(None)
    }

    /// Everything that can happen by itself within a moment.
    fn calm_moment(&mut self, random: &mut Rng, milliseconds: u64, ending: bool) -> Result<(), Violation> {
        for key in self.programs.keys().copied().collect::<Vec<_>>() {
            self.finish_program(key, random, ending)?;
        }
        if ending {
            self.end_runs();
        }
        self.kubelet_ends_what_was_deleted();
        self.let_agent_work(random)?;
        self.runs_register(random);
        self.check()?;
        self.obey_signals(random);
        self.bury();
        self.machine.kernel().now += milliseconds;
        Ok(())
    }

    /// The agent takes in all there is.
    fn let_agent_work(&mut self, random: &mut Rng) -> Result<(), Violation> {
        self.agent_looks();
        for inputs in 0.. {
            if inputs > RESTLESS {
                return Err("the agent never comes to rest".to_owned());
            }
            let Some(agent) = &self.agent else { return Ok(()) };
            let inputs = agent.inputs(&self.machine.kernel());
            let Some(input) = super::choose(&inputs, random) else { break };
            self.feed(input, None)?;
            self.check()?;
        }
        self.machine.kernel().now += 3;
        self.feed(Input::Moment, None)?;
        self.agent_looks();
        Ok(())
    }

    /// A program goes on to its end: it waits for its turn, uses its card for a while, and ends.
    fn finish_program(&mut self, key: ProcessKey, random: &mut Rng, ending: bool) -> Result<(), Violation> {
        let Some(program) = self.programs.get(&key) else { return Ok(()) };
        let does_nothing = program.leased.is_none() && program.stage != Stage::Asking;
        if ending && (program.leased.is_some() && random.u8(..4) == 0 || does_nothing && random.u8(..8) == 0)
        {
            self.end(key);
            return Ok(());
        }
        let is_over = random.u8(..3) > 0;
        let did = {
            let mut kernel = self.machine.kernel();
            let program = self.programs.get_mut(&key).expect("a program");
            match program.read(&mut kernel, key) {
                Did::Nothing if program.leased.is_some() && program.stage == Stage::Known && is_over => {
                    Did::Nothing
                }
                Did::Nothing => program.act(&mut kernel, key, random, true),
                read => read,
            }
        };
        if let Did::Something(what) = &did {
            tell!(self, "process {} {what}", key.pid);
        }
        if did == Did::Ended {
            self.end(key);
        }
        self.see_refusal(key)
    }

    /// Runs end with the last of their programs, and objects go.
    fn end_runs(&mut self) {
        let busy: BTreeSet<PodId> = self.programs.values().map(|program| program.pod.clone()).collect();
        for (id, pod) in self.pods.iter_mut().filter(|(id, _)| !busy.contains(*id)) {
            if let Some(run) = &pod.run {
                self.machine.kernel().end(run.key);
            }
            if let (Some(object), Some(agent)) = (pod.object.take(), &mut self.agent) {
                pod.was_stopped = true;
                agent.says_gone(id, object.reference.uid);
            }
        }
    }

    /// The kubelet ends the containers of pods that are no more.
    fn kubelet_ends_what_was_deleted(&mut self) {
        let is_deleted =
            |pod: &PodId| self.pods.get(pod).is_none_or(|pod| pod.run.is_none() && pod.object.is_none());
        let programs =
            self.programs.iter().filter(|(_, program)| is_deleted(&program.pod)).map(|(key, _)| *key);
        for key in programs.collect::<Vec<_>>() {
            self.end(key);
        }
    }

    fn is_over(&self) -> bool {
        let Some(agent) = &self.agent else { return false };
        self.programs.is_empty() && self.pods.is_empty() && agent.task.registry.pods().next().is_none()
    }

    fn nothing_is_left(&self) -> Result<(), Violation> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let pool = &agent.task.pool;
        let is_empty =
            pool.leases().next().is_none() && pool.queue().next().is_none() && pool.pods().next().is_none();
        if is_empty { Ok(()) } else { Err(format!("something is left: {}", self.standing_of_agent())) }
    }

    /// Nobody waits who fits on a card on which, by NVML, nobody is without a right.
    fn the_head_has_what_it_can_have(&self) -> Result<(), Violation> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let kernel = self.machine.kernel();
        let pool = &agent.task.pool;
        for card in pool.cards().filter(|card| !card.lost) {
            let index = agent.card_index(card.uuid);
            let strangers = kernel.gpus.on(index).filter(|(key, taken)| {
                let pod = self.pod_of(*key).and_then(|pod| pool.pod(pod)?.lease);
                let is_leased = pod.is_some_and(|lease| lease.card == card.uuid);
                taken.bytes > 0 && !is_leased
            });
            let is_over_limit = |pod: &PodId| {
                let mine = kernel.gpus.on(index).filter(|(key, _)| self.pod_of(*key) == Some(pod));
                mine.map(|(_, taken)| taken.bytes).sum::<u64>() > kernel.limits.get(pod).copied().unwrap_or(0)
            };
            if strangers.count() > 0 || card.pods.iter().any(|pod| is_over_limit(pod)) {
                continue;
            }
            let head = pool.queue().find(|waiting| {
                let view = pool.pod(waiting.pod);
                view.is_some_and(|view| view.only.is_none_or(|only| *only == uuid(index)))
            });
            let Some(head) = head else { continue };
            let Some(limits) = pool.pod(head.pod).map(|view| view.spec.limits()) else { continue };
            let fits = card.core_used + u32::from(limits.core.get()) <= 100
                && card.memory_used + u32::from(limits.memory.get()) <= 100;
            if fits && pool.queue().next().is_some_and(|first| first.pod == head.pod) {
                return Err(format!(
                    "{} waits, and card {index} has room: {}",
                    head.pod,
                    self.standing_of_agent()
                ));
            }
        }
        Ok(())
    }
}
