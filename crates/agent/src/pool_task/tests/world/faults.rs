//! What goes wrong, at any moment.

use fastrand::Rng;

use super::disk::Sickness;
use super::invariants::Violation;
use super::liars::{self, Liar};
use super::programs::Stage;
use super::{World, tell};
use crate::procfs::ProcessKey;
use crate::usage_audit::TOLERANCE;

impl World {
    pub(super) fn something_goes_wrong(&mut self, random: &mut Rng) -> Result<(), Violation> {
        match random.u8(..20) {
            0..3 => return self.end_agent(random),
            3..5 => {
                self.agent_is_stopped = self.agent.is_some() && !self.agent_is_stopped && random.bool();
                tell!(self, "the agent is stopped: {}", self.agent_is_stopped);
            }
            5..8 => self.stop_or_continue_somebody(random),
            8..10 => self.kill_somebody(random),
            10..12 => {
                let mut kernel = self.machine.kernel();
                kernel.disk.sickness = match random.u8(..6) {
                    0 => Some(Sickness::Broken),
                    1 | 2 => Some(Sickness::Full(random.usize(..900))),
                    _ => None,
                };
                let sickness = kernel.disk.sickness;
                drop(kernel);
                tell!(self, "the disk: {sickness:?}");
            }
            12..14 => self.lose_or_find_cards(random),
            14 => {
                let mut kernel = self.machine.kernel();
                let card = random.u32(..kernel.gpus.cards);
                if !kernel.gpus.mute.remove(&card) && random.bool() {
                    kernel.gpus.mute.insert(card);
                }
                let mute = kernel.gpus.mute.clone();
                drop(kernel);
                tell!(self, "NVML says nothing of cards {mute:?}");
                self.end_whom_no_look_shows();
            }
            15..18 => self.a_stranger_comes(random),
            18 if random.u8(..8) == 0 => self.reboot(),
            _ => {}
        }
        Ok(())
    }

    /// The agent is told to end, or is killed while it does nothing.
    fn end_agent(&mut self, random: &mut Rng) -> Result<(), Violation> {
        let Some(agent) = &mut self.agent else { return Ok(()) };
        let is_told = !self.agent_is_stopped && random.u8(..3) == 0;
        if is_told {
            agent.close();
        }
        let before = self.standing_of_agent();
        self.agent_has_ended(if is_told { "ends as it was told" } else { "is killed" });
        if random.u8(..12) == 0 {
            self.damage_the_journal(random);
        }
        if self.machine.kernel().disk.is_behind {
            self.agent_was_lost();
            return Ok(());
        }
        let known = self.standing_on_disk()?;
        if known == before {
            Ok(())
        } else {
            Err(format!("the disk knows\n{known}\nand the agent knew\n{before}"))
        }
    }

    /// The file is gone, or ends earlier, or has a byte that is another.
    fn damage_the_journal(&mut self, random: &mut Rng) {
        let mut kernel = self.machine.kernel();
        let disk = &mut kernel.disk;
        if disk.content.is_empty() {
            return;
        }
        let place = random.usize(..disk.content.len());
        match random.u8(..4) {
            0 => disk.content.clear(),
            1 => disk.content.truncate(place),
            _ => disk.content[place] ^= 1 << random.u8(..8),
        }
        disk.is_behind = true;
        let length = disk.content.len();
        drop(kernel);
        tell!(self, "the journal is damaged at byte {place} and has {length}");
    }

    /// An agent has ended. Where the disk lacks something that programs were told, what no look can show is lost: those who
    /// hold a lease and have nothing on a card yet end with it.
    pub(super) fn agent_was_lost(&mut self) {
        if !std::mem::take(&mut self.machine.kernel().disk.is_behind) {
            return;
        }
        tell!(self, "what it could not write is lost");
        self.pods.values_mut().for_each(|pod| pod.forgotten_until = u64::MAX);
        let mut ending = Vec::new();
        for (key, program) in &mut self.programs {
            let mut kernel = self.machine.kernel();
            let socket = program.socket.and_then(|socket| kernel.sockets.get_mut(&socket));
            let has_mail = socket.is_some_and(|socket| !socket.to_caller.is_empty());
            let is_shown = program.leased.is_some() && program.on_card(&kernel, *key) > TOLERANCE;
            match is_shown {
                true => program.was_forgotten = true,
                false if program.leased.is_some() || has_mail && program.stage == Stage::Asking => {
                    ending.push(*key);
                }
                false => {}
            }
        }
        for key in ending {
            self.end(key);
        }
        self.end_whom_no_look_shows();
    }

    /// Of whom the journal knows nothing and NVML shows nothing, nobody can know.
    fn end_whom_no_look_shows(&mut self) {
        let kernel = self.machine.kernel();
        let gpus = &kernel.gpus;
        let is_hidden = |card: u32| gpus.lost.contains(&card) || gpus.mute.contains(&card);
        let forgotten =
            self.programs.iter().filter(|(_, program)| program.was_forgotten && is_hidden(program.card()));
        let hidden: Vec<ProcessKey> = forgotten.map(|(key, _)| *key).collect();
        drop(kernel);
        for key in hidden {
            self.end(key);
        }
    }

    fn some_process(&self, random: &mut Rng) -> Option<ProcessKey> {
        let keys: Vec<ProcessKey> = self.programs.keys().chain(self.liars.keys()).copied().collect();
        random.choice(keys)
    }

    fn stop_or_continue_somebody(&mut self, random: &mut Rng) {
        let Some(key) = self.some_process(random) else { return };
        let mut kernel = self.machine.kernel();
        let Some(process) = kernel.processes.get_mut(&key) else { return };
        process.stopped = !process.stopped && random.bool();
        let stopped = process.stopped;
        drop(kernel);
        tell!(self, "process {} is stopped: {stopped}", key.pid);
    }

    fn kill_somebody(&mut self, random: &mut Rng) {
        if let Some(key) = self.some_process(random) {
            tell!(self, "process {} is killed", key.pid);
            self.end(key);
        }
    }

    /// One card, or half of them at once; what was on them is gone, or only out of sight.
    fn lose_or_find_cards(&mut self, random: &mut Rng) {
        let mut kernel = self.machine.kernel();
        let cards = kernel.gpus.cards;
        if !kernel.gpus.lost.is_empty() {
            let found: Vec<u32> = kernel.gpus.lost.iter().copied().filter(|_| random.bool()).collect();
            kernel.gpus.lost.retain(|card| !found.contains(card));
            drop(kernel);
            tell!(self, "cards {found:?} are back");
            return;
        }
        let many = if random.bool() { 1 } else { cards.div_ceil(2) };
        let first = random.u32(..cards);
        let lost: Vec<u32> = (0..many).map(|more| (first + more) % cards).collect();
        kernel.gpus.lost.extend(lost.iter().copied());
        let is_reset = random.bool();
        if is_reset {
            kernel.gpus.taken.retain(|(card, _), _| !lost.contains(card));
        }
        drop(kernel);
        tell!(self, "cards {lost:?} are lost{}", if is_reset { " with all that was on them" } else { "" });
        self.end_whom_no_look_shows();
    }

    fn a_stranger_comes(&mut self, random: &mut Rng) {
        let mut kernel = self.machine.kernel();
        let key = kernel.spawn(1, None);
        liars::take(&mut kernel, key, random);
        drop(kernel);
        self.liars.insert(key, Liar::new(None));
        tell!(self, "process {} of no pod comes", key.pid);
    }

    /// The machine starts again, with the disk that it had.
    fn reboot(&mut self) {
        if self.agent.is_some() {
            self.agent_has_ended("ends with the machine");
        }
        let mut kernel = self.machine.kernel();
        kernel.boot_again();
        (kernel.disk.is_behind, kernel.gpus.lost, kernel.gpus.mute) = Default::default();
        drop(kernel);
        self.programs.clear();
        self.liars.clear();
        for pod in self.pods.values_mut() {
            pod.told_at = None;
        }
        self.watch.ever_lost.clear();
        tell!(self, "the machine has started again");
    }
}
