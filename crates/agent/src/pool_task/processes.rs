//! GPU programs: they introduce themselves, ask for a card, give it back, come again after a pause, and end.
//!
//! A process is over when its pidfd says so, never because its connection is: programs close descriptors that they
//! don't know, and the agent itself may have been away.

use gpupool_core::pool::{CardUuid, Event, Millis, PodId, PodState, Timestamp};
use gpupool_wire::NO_CARD;
use gpupool_wire::ledger::Slot;
use gpupool_wire::message::{self, Hello, RefusalReason};

use super::{Effect, Member, PoolTask, UnservedPrograms};
use crate::environment::ProcessHandle;
use crate::event::{ConnectionId, Frame};
use crate::procfs::ProcessKey;
use crate::registry::{CardUse, PodEntry, Process, Record};

/// How long a process that waited, or was granted a card unheard, may stay away before its place is given up. A
/// waiting program comes back within a second or two.
const CONFIRM_WITHIN: Millis = Millis::from_secs(10);

/// The same after the agent itself was away.
pub(super) const CONFIRM_AFTER_RESTART: Millis = Millis::from_secs(60);

/// How long an agent is there before it says of a process that it belongs to no pod. `gpupool run` looks for a new agent
/// twice a second.
const REGISTERED_WITHIN: Millis = Millis::from_secs(5);

/// Why a program gets no card: the reason on the wire and the sentence that its user reads.
pub(super) struct ProgramRefusal(pub(super) RefusalReason, pub(super) String);

impl PoolTask {
    /// A program's frame. Out of turn, it is rubbish.
    pub(super) fn frame(&mut self, from: ConnectionId, frame: Frame) {
        let Some(connection) = self.connections.get(from) else { return };
        let (key, introduced) = (connection.key, connection.introduced);
        let refused = match frame {
            Frame::Hello(hello) if !introduced => self.hello(from, key, &hello),
            Frame::Foreign(oldest, newest) if !introduced => Err(self.foreign(from, oldest, newest)),
            Frame::Acquire(only) if introduced => self.acquire(key, only),
            Frame::Release if introduced => {
                self.release(key);
                Ok(())
            }
            _ => return self.rubbish(from),
        };
        if let Err(ProgramRefusal(reason, sentence)) = refused {
            self.reports.counters.refusals.inc();
            // What is said to another of its connections is no answer to its question.
            if let Some(member) = self.members.get_mut(&key).filter(|member| member.connection == Some(from))
            {
                member.asked = false;
            }
            let sentence = self.readable(&sentence);
            self.outbox.tell(Effect::Refused { to: from, reason, sentence });
        }
    }

    /// A program whose shim cannot be understood: an agent of another release must have put it there.
    fn foreign(&mut self, from: ConnectionId, oldest: u16, newest: u16) -> ProgramRefusal {
        let speaks = format!(
            "the gpupool library in this program speaks {} of the protocol and the node's agent {}",
            versions(oldest, newest),
            versions(message::OLDEST, message::VERSION)
        );
        if self.settings.unserved == UnservedPrograms::HeldBack {
            let sentence = format!("{speaks}: it gets no card; start its container anew");
            return ProgramRefusal(RefusalReason::Version, sentence);
        }
        if let Some(connection) = self.connections.get_mut(from) {
            connection.unheld = true;
        }
        let sentence = format!("{speaks}: it runs without gpupool, as this node is set");
        ProgramRefusal(RefusalReason::Unheld, sentence)
    }

    fn hello(&mut self, from: ConnectionId, key: ProcessKey, hello: &Hello) -> Result<(), ProgramRefusal> {
        let known = self.registry.process(key).map(|process| process.pod.clone());
        let pod = match known.or_else(|| self.connections.get(from)?.pod.clone()) {
            Some(pod) => pod,
            None => match self.environment.identity.pod_of(key, None) {
                Ok(pod) => pod,
                // Its pod may be about to register again, with an agent that has lost its journal: it comes again meanwhile.
                Err(_) if self.now() - self.started < REGISTERED_WITHIN => {
                    self.connections.cut(from);
                    return Ok(());
                }
                Err(stranger) => {
                    return Err(ProgramRefusal(RefusalReason::NotRegistered, stranger.to_string()));
                }
            },
        };
        self.check_place(&pod)?;
        if hello.resume().is_none() && self.must_look_first(&pod) {
            // The program comes again at once.
            self.connections.cut(from);
            return Ok(());
        }
        self.prepare_pages(&pod, key, hello.resume().is_some())?;
        let slot = if self.members.contains_key(&key) {
            self.welcome_back(from, key, hello)?
        } else {
            self.welcome_new(from, key, &pod, hello)?
        };
        if let Some(connection) = self.connections.get_mut(from) {
            connection.introduced = true;
        }
        if hello.resume().is_some() {
            self.take_back(key)?;
        }
        self.pages.slot(&pod, slot, |slot: &Slot| slot.set_agents_pid(key.pid));
        self.outbox.tell(Effect::Welcome { to: from, pod, slot });
        Ok(())
    }

    /// Only programs of pods that are in the pool, and stay there, get a card.
    fn check_place(&self, pod: &PodId) -> Result<(), ProgramRefusal> {
        if self.registry.pod(pod).is_some_and(|entry| !entry.stopping) {
            return Ok(());
        }
        if let Some(why) = self.turned_away(pod) {
            return Err(ProgramRefusal(
                RefusalReason::NotRegistered,
                format!("this pod has no share of a card: {}", why.sentence),
            ));
        }
        if self.is_unheard_of(pod) {
            let sentence = format!(
                "the pod with UID {pod} is not known here: it asks for no share of a card, or the API server has not \
                 told of it yet; try again"
            );
            return Err(ProgramRefusal(RefusalReason::NotRegistered, sentence));
        }
        let name = self.name_of(pod);
        Err(ProgramRefusal(
            RefusalReason::Stopped,
            format!("`{name}` is being stopped: its programs get no card any more"),
        ))
    }

    /// A process that the agent does not know yet.
    fn welcome_new(
        &mut self,
        from: ConnectionId,
        key: ProcessKey,
        pod: &PodId,
        hello: &Hello,
    ) -> Result<u32, ProgramRefusal> {
        // One that comes from before a damaged journal keeps the slot that it counts in.
        let resumed = hello.resume().and_then(|_| hello.slot()).filter(|slot| self.is_free(pod, *slot));
        let slot = resumed.or_else(|| self.unused_slot(pod)).ok_or_else(|| {
            ProgramRefusal(
                RefusalReason::NoSlot,
                format!("`{pod}` has as many GPU processes as its ledger counts: end some of them"),
            )
        })?;
        let held = self.connections.get_mut(from).and_then(|connection| connection.held.take());
        let Some(held) = held else {
            return Err(ProgramRefusal(RefusalReason::Malformed, "a second hello".to_owned()));
        };
        let watched = held.watch_exit(self.environment.exits.clone());
        watched.map_err(|failure| {
            ProgramRefusal(
                RefusalReason::Other,
                format!("the agent cannot watch process {}: {failure}", key.pid),
            )
        })?;
        if resumed.is_none() {
            self.pages.assign_slot(pod, slot);
        }
        self.members.insert(key, Member { held, connection: Some(from), asked: false, confirm_by: None });
        self.environment.identity.learn(key, pod);
        let card = self.environment.cards.find_bytes(&hello.card()).map(|card| card.uuid.clone());
        let process = Process { pod: pod.clone(), slot, using: CardUse::Nothing, card };
        self.record(Record::Process { key, process });
        Ok(slot)
    }

    /// A slot for a new process: one in which nobody counts, since a process that a lost journal does not know may do so.
    fn unused_slot(&self, pod: &PodId) -> Option<u32> {
        let is_empty = |slot: &u32| self.pages.slot(pod, *slot, Slot::is_empty).unwrap_or(true);
        let mut free = self.registry.free_slots(pod);
        free.find(is_empty).or_else(|| self.registry.free_slots(pod).next())
    }

    /// A process that has introduced itself before: its connection broke, the agent was away, or it has become
    /// another program by `exec`, which gives back all that the old one held.
    fn welcome_back(
        &mut self,
        from: ConnectionId,
        key: ProcessKey,
        hello: &Hello,
    ) -> Result<u32, ProgramRefusal> {
        let (Some(member), Some(process)) = (self.members.get(&key), self.registry.process(key).cloned())
        else {
            return Err(ProgramRefusal(
                RefusalReason::Other,
                format!("process {} is not known any more", key.pid),
            ));
        };
        if member.connection.is_some_and(|old| self.connections.is_alive(old)) {
            return Err(ProgramRefusal(
                RefusalReason::Malformed,
                format!("process {} is connected already", key.pid),
            ));
        }
        let leftover = self.has_memory(&process.pod, process.slot);
        // The journal may be older than what the process was granted last.
        let known = self.lease_of(&process.pod).map(|(_, lease)| lease.0);
        let has_another =
            process.using == CardUse::Holding && hello.resume().is_some_and(|lease| known != Some(lease));
        let confirm_by = (process.using != CardUse::Nothing).then(|| self.now() + CONFIRM_WITHIN);
        let member = Member {
            connection: Some(from),
            asked: false,
            confirm_by: confirm_by.filter(|_| hello.resume().is_none()),
            ..self
                .members
                .remove(&key)
                .ok_or_else(|| ProgramRefusal(RefusalReason::Other, "no such process".to_owned()))?
        };
        self.members.insert(key, member);
        if hello.resume().is_none() && leftover {
            self.pages.assign_slot(&process.pod, process.slot);
            self.stop_using(key);
        }
        if has_another {
            self.stop_using(key);
        }
        self.rebind(key, hello);
        Ok(process.slot)
    }

    /// A process says that it holds a lease. Where the agent does not know of one (its journal was damaged), the pod
    /// queues up for the card that the process uses already: nobody is let in beside it for longer than can be helped.
    fn take_back(&mut self, key: ProcessKey) -> Result<(), ProgramRefusal> {
        match self.registry.process(key).cloned() {
            Some(process) if process.using == CardUse::Nothing => {
                let card = process.card.clone();
                self.want(key, process, card.as_ref())
            }
            _ => Ok(()),
        }
    }

    /// A process that uses no card says itself which one it is bound to: after `exec` it is none any more.
    fn rebind(&mut self, key: ProcessKey, hello: &Hello) {
        let card = self.environment.cards.find_bytes(&hello.card()).map(|card| card.uuid.clone());
        let Some(process) = self.registry.process(key).cloned() else { return };
        if process.using == CardUse::Nothing && process.card != card {
            self.record(Record::Process { key, process: Process { card, ..process } });
        }
    }

    fn acquire(&mut self, key: ProcessKey, only: gpupool_wire::CardUuid) -> Result<(), ProgramRefusal> {
        let Some(process) = self.registry.process(key).cloned() else { return Ok(()) };
        if let Some(member) = self.members.get_mut(&key) {
            member.confirm_by = None;
            member.asked = true;
        }
        let only = match self.environment.cards.find_bytes(&only) {
            Some(card) => Some(card.uuid.clone()),
            None if only == NO_CARD => None,
            None => {
                return Err(ProgramRefusal(
                    RefusalReason::CardGone,
                    "the card of this process is not on this machine any more".into(),
                ));
            }
        };
        let pod = process.pod.clone();
        match process.using {
            CardUse::Waiting => Ok(()),
            CardUse::Holding => {
                if let Some((card, lease)) = self.lease_of(&pod) {
                    self.grant_to(key, &pod, &card, lease);
                }
                Ok(())
            }
            CardUse::Nothing => self.want(key, process, only.as_ref()),
        }
    }

    /// A process wants a card and has none: it joins its pod's lease, or its pod queues up.
    fn want(
        &mut self,
        key: ProcessKey,
        process: Process,
        only: Option<&CardUuid>,
    ) -> Result<(), ProgramRefusal> {
        let pod = process.pod.clone();
        let bound = self.only_card(&pod).or_else(|| only.cloned());
        if let Some((card, lease)) = self.lease_of(&pod).filter(|_| !self.is_ending(&pod)) {
            if bound.as_ref().is_some_and(|bound| *bound != card) {
                let sentence = format!(
                    "this process has used card {} and `{pod}` runs on card {}: start it again",
                    self.card_name(bound.as_ref().unwrap_or(&card)),
                    self.card_name(&card)
                );
                return Err(ProgramRefusal(RefusalReason::Other, sentence));
            }
            let process = Process { using: CardUse::Holding, card: Some(card.clone()), ..process };
            self.record(Record::Process { key, process });
            self.grant_to(key, &pod, &card, lease);
            return Ok(());
        }
        let before = process.clone();
        self.record(Record::Process { key, process: Process { using: CardUse::Waiting, ..process } });
        if let Err(refusal) = self.step(&Event::GpuWanted { pod, only: bound }) {
            self.record(Record::Process { key, process: before });
            return Err(ProgramRefusal(RefusalReason::Other, refusal.to_string()));
        }
        Ok(())
    }

    /// A process says that it needs no card any more. It is believed when its slot says the same.
    fn release(&mut self, key: ProcessKey) {
        let Some(process) = self.registry.process(key) else { return };
        if !self.pages.slot(&process.pod, process.slot, Slot::is_empty).unwrap_or(true) {
            self.reports.counters.rubbish.inc();
            return;
        }
        self.stop_using(key);
    }

    /// A living process neither waits nor holds any more, by its own word. Its pod's place ends when it was the last,
    /// and its lease when NVML shows that too.
    pub(super) fn stop_using(&mut self, key: ProcessKey) {
        let Some(process) = self.registry.process(key).cloned() else { return };
        if process.using == CardUse::Nothing {
            return;
        }
        let pod = process.pod.clone();
        if process.using == CardUse::Holding {
            self.must_be_seen_to_leave(key, &pod);
        }
        self.record(Record::Process { key, process: Process { using: CardUse::Nothing, ..process } });
        self.settle(&pod);
    }

    /// Tells the pool what is left of a pod after one of its processes went or gave up.
    fn settle(&mut self, pod: &PodId) {
        self.end_lease_if_unused(pod);
        let is_ready = self.pool.state(pod) == Some(PodState::Ready);
        if self.registry.members_using(pod, CardUse::Waiting).is_empty() {
            let comes_again =
                self.pool.pod(pod).and_then(|view| view.lease).is_some_and(|lease| lease.wants_again);
            if is_ready || comes_again {
                self.apply(&Event::WantGone { pod: pod.clone() });
            }
            return;
        }
        if !is_ready {
            return;
        }
        // The process that bound the pod to a card may have been the one that went.
        let only = self.only_card(pod);
        if self.pool.pod(pod).is_some_and(|view| view.only != only.as_ref()) {
            self.apply(&Event::GpuWanted { pod: pod.clone(), only });
        }
    }

    /// A process has ended. It may be a program, a `gpupool run`, or somebody that is being stopped.
    pub(super) fn process_ended(&mut self, key: ProcessKey) {
        self.environment.identity.forget(key);
        self.presence.forget_process(key);
        if let Some(connection) = self.members.remove(&key).and_then(|member| member.connection) {
            self.connections.cut(connection);
        }
        if let Some(process) = self.registry.process(key).cloned() {
            self.pages.reclaim_slot(&process.pod, process.slot, key.pid);
            self.record(Record::ProcessGone { key });
            self.settle(&process.pod);
            self.retire(&process.pod);
        }
        if let Some(pod) = self.members.remove_run(key) {
            if let Some(entry) = self.registry.pod(&pod).cloned() {
                let entry = PodEntry { run: None, ..entry };
                self.record(Record::Pod { pod: pod.clone(), entry });
            }
            self.retire(&pod);
        }
        // It may have used its pod's card without ever having said so.
        self.end_leases_that_were_left();
        self.target_ended(key);
    }

    /// A pod goes when its `gpupool run`, or in a cluster its object, all its GPU processes and its lease have gone.
    pub(super) fn retire(&mut self, pod: &PodId) {
        let Some(entry) = self.registry.pod(pod) else { return };
        let is_on_a_card = self.lease_of(pod).is_some();
        if entry.stays() || is_on_a_card || !self.registry.members_of(pod).is_empty() {
            return;
        }
        if self.pool.state(pod).is_some() {
            self.apply(&Event::PodRemoved { pod: pod.clone() });
        }
        self.record(Record::PodGone { pod: pod.clone() });
        self.pages.remove(pod);
        self.reports.waiting_since.remove(pod);
        self.terminations.remove(pod);
    }

    /// A connection is over. Who waits on it has a while to come back; everybody else is watched by pidfd.
    pub(super) fn over(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.over(id) else { return };
        let waits =
            self.registry.process(connection.key).is_some_and(|process| process.using == CardUse::Waiting);
        let confirm_by = waits.then(|| self.now() + CONFIRM_WITHIN);
        let Some(member) = self.members.get_mut(&connection.key) else { return };
        if member.connection == Some(id) {
            member.connection = None;
            member.confirm_by = confirm_by;
        }
    }

    /// A connection brought rubbish.
    pub(super) fn rubbish(&mut self, from: ConnectionId) {
        self.reports.counters.rubbish.inc();
        self.connections.cut(from);
    }

    /// Gives up the places of those that have not come back in time.
    pub(super) fn give_up_the_silent(&mut self, now: Timestamp) {
        for key in self.members.take_silent(now) {
            let Some(process) = self.registry.process(key) else { continue };
            // A process that took memory was there to do so: only the agent did not hear of it.
            if process.using == CardUse::Waiting || !self.has_memory(&process.pod, process.slot) {
                self.stop_using(key);
            }
        }
    }

    /// Holds a process of an earlier agent again.
    pub(super) fn hold_again(
        &mut self,
        key: ProcessKey,
        held: Box<dyn ProcessHandle>,
    ) -> std::io::Result<()> {
        held.watch_exit(self.environment.exits.clone())?;
        let waits = self.registry.process(key).is_some_and(|process| process.using == CardUse::Waiting);
        let confirm_by = waits.then(|| self.now() + CONFIRM_AFTER_RESTART);
        self.members.insert(key, Member { held, connection: None, asked: false, confirm_by });
        Ok(())
    }

    fn is_free(&self, pod: &PodId, slot: u32) -> bool {
        let members = self.registry.members_of(pod);
        (slot as usize) < gpupool_wire::ledger::SLOTS
            && !members
                .iter()
                .any(|key| self.registry.process(*key).is_some_and(|process| process.slot == slot))
    }

    /// Whether the process has memory or contexts on a card. What it has only announced does not count: it announces
    /// while it waits for its card.
    fn has_memory(&self, pod: &PodId, slot: u32) -> bool {
        self.pages.slot(pod, slot, |slot| slot.committed() > 0 || slot.contexts() > 0).unwrap_or(false)
    }
}

fn versions(oldest: u16, newest: u16) -> String {
    if oldest == newest { format!("version {newest}") } else { format!("versions {oldest} to {newest}") }
}
