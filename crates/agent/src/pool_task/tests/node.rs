//! The pool's task on a machine in memory, with the programs that call it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpupool_core::pool::{CardUuid, Policy};
use gpupool_core::share::{Percent, Share};
use gpupool_wire::NO_CARD;
use gpupool_wire::message::Hello;
use tokio::sync::{mpsc, oneshot, watch};

use super::machine::{BOOT, FakeSocket, Machine, card_uuid, qos};
use crate::admin_api::{Register, Reply, Request};
use crate::cards::{Cards, Probe, ProbedCard};
use crate::environment::{Environment, PeerSocket as _};
use crate::event::{AgentEvent, ConnectionId, Frame};
use crate::identity::Ancestry;
use crate::notice::Notice;
use crate::pool_task::{Cluster, PoolTask, TaskSettings, UnservedPrograms};
use crate::procfs::ProcessKey;
use crate::usage_audit::observe::{Ledgers, Observation};

/// A connection as its caller holds it.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) id: ConnectionId,
    pub(super) socket: FakeSocket,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) machine: Machine,
    pub(super) task: PoolTask,
    pub(super) lines: BTreeMap<ProcessKey, Line>,
    next_pid: u32,
    /// Whether the agent serves a node of a cluster.
    clustered: bool,
    /// Whether it ends who takes more than its limit.
    pub(super) evicts: bool,
    /// What the owners of pods are told.
    notices: Option<mpsc::Receiver<Notice>>,
}

impl Node {
    pub(super) fn new() -> Self {
        let machine = Machine::default();
        machine.state().now = 1_000_000;
        machine.spawn(1, 0);
        let task = start(&machine, false);
        let mut node = Self {
            machine,
            task,
            lines: BTreeMap::new(),
            next_pid: 100,
            clustered: false,
            evicts: false,
            notices: None,
        };
        node.look();
        node
    }

    /// The same on a node of a cluster that shares its cards as a pool.
    pub(super) fn in_cluster() -> Self {
        let mut node = Self { clustered: true, ..Self::new() };
        node.restart();
        node.look();
        node
    }

    /// The agent is killed and started again; every connection breaks. It has not looked at the cards yet.
    pub(super) fn restart(&mut self) {
        self.lines.clear();
        self.task = start(&self.machine, self.evicts);
        if self.clustered {
            let blank = std::mem::replace(&mut self.task, start(&Machine::default(), false));
            let (notices, told) = mpsc::channel(64);
            self.notices = Some(told);
            self.task = blank.in_cluster(Cluster::new(notices, watch::channel(Vec::new()).0));
            self.task.handle(AgentEvent::Sharing { policy: Some(Policy::SharePool), qos: None });
        }
    }

    /// What the owners of pods have been told since this was last asked.
    pub(super) fn told(&mut self) -> Vec<Notice> {
        let mut told = Vec::new();
        while let Some(notice) = self.notices.as_mut().and_then(|notices| notices.try_recv().ok()) {
            told.push(notice);
        }
        told
    }

    /// NVML shows who is on the cards.
    pub(super) fn look(&mut self) {
        let (observation, _) = self.machine.look(None);
        self.show(observation);
    }

    pub(super) fn show(&mut self, observation: Observation) {
        let card = |uuid: &CardUuid| u32::from(uuid.as_str() == card_uuid(1));
        let sightings = observation.sightings.iter();
        let shown = sightings
            .filter_map(|seen| Some((seen.key, card(&seen.process.card), seen.process.bytes?)))
            .collect();
        self.machine.state().shown = Some(shown);
        self.task.handle(AgentEvent::Looked(observation));
    }

    /// The observer does what it was asked to, a moment later.
    pub(super) fn look_if_asked(&mut self) {
        self.wait(2);
        if let (observation, true) = self.machine.look(None) {
            self.show(Observation { regular: None, ..observation });
        }
    }

    /// A process takes so many bytes of a card, whatever it has said.
    pub(super) fn take(&mut self, process: ProcessKey, card: u32, bytes: u64) {
        let taken = &mut self.machine.state().taken;
        taken.retain(|(key, on), _| (*key, *on) != (process, card));
        if bytes > 0 {
            taken.insert((process, card), bytes);
        }
    }

    pub(super) fn spawn(&mut self, parent: ProcessKey) -> ProcessKey {
        self.next_pid += 1;
        self.machine.spawn(self.next_pid, parent.pid)
    }

    /// Starts a `gpupool run` for a pod of this name and says what the agent answered it.
    pub(super) fn register(&mut self, name: &str, request: u64) -> (ProcessKey, Reply) {
        let run = self.spawn(ProcessKey { pid: 1, start: 1 });
        let line = self.connect(run);
        let share = Share::new(Percent::new(request).unwrap(), Percent::WHOLE).unwrap();
        let register = Register { name: name.to_owned(), core: share, memory: share, priority: 0 };
        let reply = self.request(&line, Request::Register(register)).expect("answered at once");
        (run, reply)
    }

    pub(super) fn request(&mut self, line: &Line, request: Request) -> Option<Reply> {
        let (answer, mut reply) = oneshot::channel();
        self.task.handle(AgentEvent::Request { from: line.id, request, answer });
        reply.try_recv().ok()
    }

    pub(super) fn connect(&mut self, caller: ProcessKey) -> Line {
        let socket = self.machine.connect(caller);
        let (accepted, mut answer) = oneshot::channel();
        let held = self.machine.handle(caller);
        self.task.handle(AgentEvent::Connected {
            socket: Arc::new(socket.clone()),
            user: 1000,
            held,
            accepted,
        });
        let id = answer.try_recv().unwrap().expect("there is room").id;
        let line = Line { id, socket };
        self.lines.insert(caller, line.clone());
        line
    }

    /// Connects and says hello: with its lease, where it holds one.
    pub(super) fn hello(&mut self, program: ProcessKey) -> Line {
        let line = self.connect(program);
        let (lease, slot) = {
            let state = self.machine.state();
            let process = &state.processes[&program];
            (process.lease, process.slot)
        };
        let card = self.task.registry.process(program).and_then(|process| process.card.clone());
        let card =
            card.and_then(|card| Some(self.task.environment.cards.find(&card)?.1.bytes)).unwrap_or(NO_CARD);
        let hello = match (lease, slot) {
            (Some(lease), Some(slot)) => Hello::resuming(lease, card, slot),
            _ => Hello::fresh(card),
        };
        self.frame(&line, Frame::Hello(hello));
        line
    }

    /// Connects and says hello in versions that nobody knows here.
    pub(super) fn foreign_hello(&mut self, program: ProcessKey) -> Line {
        let line = self.connect(program);
        self.frame(&line, Frame::Foreign(900, 901));
        line
    }

    pub(super) fn acquire(&mut self, program: ProcessKey) {
        let line = self.lines[&program].clone();
        self.frame(&line, Frame::Acquire(NO_CARD));
    }

    pub(super) fn release(&mut self, program: ProcessKey) {
        self.machine.state().processes.get_mut(&program).expect("a program").lease = None;
        let line = self.lines[&program].clone();
        self.frame(&line, Frame::Release);
    }

    fn frame(&mut self, line: &Line, frame: Frame) {
        let (done, mut dealt_with) = oneshot::channel();
        self.task.handle(AgentEvent::Frame { from: line.id, frame, done });
        dealt_with.try_recv().expect("a frame is dealt with at once");
    }

    pub(super) fn end(&mut self, process: ProcessKey) {
        if self.machine.end(process) {
            self.task.ended(process);
        }
        self.hang_up(process);
    }

    pub(super) fn hang_up(&mut self, caller: ProcessKey) {
        if let Some(line) = self.lines.remove(&caller) {
            line.socket.cut();
            let (let_go, mut gone) = oneshot::channel();
            self.task.handle(AgentEvent::Over { from: line.id, let_go });
            gone.try_recv().expect("a connection that is over is let go at once");
            self.task.handle(AgentEvent::Closed { from: line.id });
        }
    }

    /// Lets the tasks of connections that the agent has cut notice it.
    pub(super) fn close_what_was_cut(&mut self) {
        let cut = self.lines.iter().filter(|(_, line)| !line.socket.is_alive()).map(|(key, _)| *key);
        for caller in cut.collect::<Vec<_>>() {
            self.hang_up(caller);
        }
    }

    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.machine.state().now += milliseconds;
        if milliseconds >= 1000 {
            self.look();
        }
        self.task.tick(milliseconds >= 1000);
    }

    /// Leases and queue, and what each process does, as text.
    pub(super) fn standing(&self) -> String {
        standing(&self.task.pool, &self.task.registry)
    }
}

/// Who holds what, who waits in which order, and what each process does.
pub(super) fn standing(pool: &gpupool_core::pool::Pool, registry: &crate::registry::Registry) -> String {
    let leases: Vec<_> = pool.leases().collect();
    let queue: Vec<_> = pool.queue().collect();
    format!("{leases:#?} {queue:#?} {registry:#?}")
}

fn start(machine: &Machine, evict_unaccounted: bool) -> PoolTask {
    let settings = TaskSettings {
        node: "node".to_owned(),
        simulated: None,
        user: 0,
        boot: BOOT.to_owned(),
        device_metrics: true,
        most_connections: 1000,
        evict_unaccounted,
        unserved: UnservedPrograms::HeldBack,
        log_lines_lost: || 0,
        work_conserving: false,
    };
    let environment = Environment {
        cards: cards(),
        clock: Box::new(machine.clone()),
        journal: Box::new(machine.clone()),
        processes: Box::new(machine.clone()),
        identity: Box::new(Ancestry::new(machine.clone())),
        meter: Box::new(machine.clone()),
        ledgers: Ledgers::default(),
        looks: machine.look_requests(),
        exits: mpsc::unbounded_channel().0,
    };
    let recovered = machine.state().recover();
    PoolTask::new(settings, environment, recovered, qos())
}

fn cards() -> Cards {
    let card = |index| ProbedCard {
        uuid: card_uuid(index),
        name: "a card in memory".to_owned(),
        total_memory: 16 << 30,
        pci_domain: 0,
        pci_bus: index,
        pci_device: 0,
        cc_major: 9,
        cc_minor: 0,
        attributes: Vec::new(),
        context_bytes: Some(256 << 20),
    };
    Cards::new(&Probe { driver_version: 13_000, driver: None, cards: vec![card(0), card(1)] }, &[0, 1])
        .expect("a table")
}
