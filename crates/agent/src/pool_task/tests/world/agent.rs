//! The agent of the world: one life of the real task, with the loop that feeds it and the thread that looks at the cards.
//!
//! Whatever waits for the task comes in any order that the real loop allows: what one connection says in its own, looks in
//! theirs, ends of processes in any.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::Receiver;

use fastrand::Rng;
use gpupool_core::pool::{Config, Millis, PodId, Policy, Pool, Qos};
use tokio::sync::{mpsc, oneshot, watch};

use super::gpus::{self, uuid};
use super::kernel::{AgentsEnd, CgroupsInMemory, Kernel, Machine, Said};
use crate::admin_api::Reply;
use crate::environment::Environment;
use crate::event::{AgentEvent, ConnectionId};
use crate::identity::{Ancestry, Identify};
use crate::journal;
use crate::notice::Notice;
use crate::pod::PodNews;
use crate::pool_task::{Cluster, PoolTask, TaskSettings, UnservedPrograms};
use crate::procfs::ProcessKey;
use crate::registry::Record;
use crate::restart::{self, Recovered, RestartError};
use crate::usage_audit::observe::{Ledgers, LookRequests, Observation, Sighting};

/// Between the regular looks at the cards, in milliseconds.
const SECOND: u64 = 1000;

/// Looks that wait for the task before the observer waits, too.
const WAITING_LOOKS: usize = 3;

/// What is different from one world to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) cards: u32,
    pub(super) in_cluster: bool,
    pub(super) evicts: bool,
}

/// One input of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// This process has ended.
    Exit(ProcessKey),
    Second,
    Moment,
    Look,
    /// What the API server says.
    News,
    /// What a connection brings next.
    Socket(usize),
}

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) task: PoolTask,
    /// Looks that have begun, with what NVML said then; the task has not heard of them.
    looks: VecDeque<Observation>,
    requests: Receiver<u64>,
    answers: u64,
    next_regular: u64,
    next_second: u64,
    /// The cards that it found when it started.
    pub(super) known: Vec<u32>,
    notices: mpsc::Receiver<Notice>,
    /// Pods of the cluster whose owners were told that their programs are ended.
    pub(super) announced: BTreeSet<String>,
    pub(super) news: VecDeque<AgentEvent>,
    /// What the last look showed it: process, card, bytes.
    pub(super) shown: Option<Vec<(ProcessKey, u32, u64)>>,
    pub(super) started: u64,
}

pub(super) fn qos() -> Qos {
    Qos {
        preempt_enabled: true,
        pod_max_duration: Millis(60_000),
        grace: Millis(2000),
        idle_release: Some(Millis(30_000)),
    }
}

fn boot_of(kernel: &Kernel) -> String {
    format!("boot {}", kernel.boot)
}

/// What an agent would know that starts now with these cards.
pub(super) fn recover(kernel: &Kernel, kind: Kind, known: &[u32]) -> Result<Recovered, RestartError> {
    let read = journal::read::<Record>(&kernel.disk.content);
    if let Some(unknown) = read.unknown {
        return Err(restart::refuse(std::path::Path::new("in memory"), &read.records, unknown));
    }
    let records = read.records;
    let cards = gpus::probe(known).for_pool();
    let config = Config { cards, policy: Policy::SharePool, qos: qos(), check_requests: !kind.in_cluster };
    let mut recovered = restart::recover(records, &boot_of(kernel), config.clone())?;
    if recovered.registry.pods().next().is_none() {
        recovered.pool = Pool::new(config)?;
    }
    Ok(recovered)
}

impl Agent {
    /// Starts with what the disk says and the cards that answer.
    pub(super) fn start(machine: &Machine, kind: Kind, recovered: Recovered, known: Vec<u32>) -> Self {
        let settings = TaskSettings {
            node: "node".to_owned(),
            simulated: None,
            user: 0,
            boot: boot_of(&machine.kernel()),
            device_metrics: true,
            most_connections: 1000,
            evict_unaccounted: kind.evicts,
            unserved: UnservedPrograms::HeldBack,
            log_lines_lost: || 0,
            work_conserving: false,
        };
        let (looks, requests) = LookRequests::new();
        let identity: Box<dyn Identify> = if kind.in_cluster {
            Box::new(CgroupsInMemory(machine.clone()))
        } else {
            Box::new(Ancestry::new(machine.clone()))
        };
        let environment = Environment {
            cards: gpus::probe(&known),
            clock: Box::new(machine.clone()),
            journal: Box::new(machine.clone()),
            processes: Box::new(machine.clone()),
            identity,
            meter: Box::new(machine.clone()),
            ledgers: Ledgers::default(),
            looks,
            exits: mpsc::unbounded_channel().0,
        };
        let now = machine.kernel().now;
        let task = PoolTask::new(settings, environment, recovered, qos());
        let (notice, notices) = mpsc::channel(1000);
        let task = if kind.in_cluster {
            task.in_cluster(Cluster::new(notice, watch::channel(Vec::new()).0))
        } else {
            task
        };
        Self {
            task,
            looks: VecDeque::new(),
            requests,
            answers: 0,
            next_regular: now,
            next_second: now,
            known,
            notices,
            announced: BTreeSet::new(),
            news: VecDeque::new(),
            shown: None,
            started: now,
        }
    }

    /// Begins a look at the cards if one is due.
    pub(super) fn look(&mut self, kernel: &Kernel) -> bool {
        let regular = kernel.now >= self.next_regular;
        if self.looks.len() >= WAITING_LOOKS {
            return false;
        }
        let asked = self.requests.try_iter().last();
        if !regular && asked.is_none() {
            return false;
        }
        self.answers = asked.unwrap_or(self.answers);
        if regular {
            self.next_regular = kernel.now + SECOND;
        }
        self.looks.push_back(kernel.look(&self.known, self.answers, regular));
        true
    }

    /// What may come next.
    pub(super) fn inputs(&self, kernel: &Kernel) -> Vec<Input> {
        let mut inputs: Vec<Input> = kernel.exits.iter().map(|key| Input::Exit(*key)).collect();
        if kernel.now >= self.next_second {
            inputs.push(Input::Second);
        }
        if !self.looks.is_empty() {
            inputs.push(Input::Look);
        }
        if !self.news.is_empty() {
            inputs.push(Input::News);
        }
        for (number, socket) in &kernel.sockets {
            let has_input = match socket.agents_end {
                AgentsEnd::Arriving | AgentsEnd::Closing(_) => true,
                AgentsEnd::Open(_) => !socket.to_agent.is_empty() || socket.cut || socket.hung_up,
                AgentsEnd::Closed => false,
            };
            if has_input {
                inputs.push(Input::Socket(*number));
            }
        }
        inputs
    }

    /// Whether the task wants to be told the time by now.
    pub(super) fn is_impatient(&self) -> bool {
        self.task.patience() == 0
    }

    /// Takes one input in.
    pub(super) fn take(&mut self, machine: &Machine, input: Input) {
        match input {
            Input::Exit(key) => {
                machine.kernel().exits.retain(|exit| *exit != key);
                self.task.ended(key);
            }
            Input::Second => {
                self.next_second = machine.kernel().now + SECOND;
                self.task.tick(true);
            }
            Input::Moment => self.task.tick(false),
            Input::Look => {
                if let Some(observation) = self.looks.pop_front() {
                    let seen = observation.sightings.iter();
                    let shown = |seen: &Sighting| {
                        Some((seen.key, self.card_index(&seen.process.card), seen.process.bytes?))
                    };
                    self.shown = Some(seen.filter_map(shown).collect());
                    self.task.handle(AgentEvent::Looked(observation));
                }
            }
            Input::News => {
                if let Some(news) = self.news.pop_front() {
                    self.task.handle(news);
                }
            }
            Input::Socket(number) => self.serve(machine, number),
        }
    }

    /// The next thing that a connection brings.
    fn serve(&mut self, machine: &Machine, number: usize) {
        let (agents_end, owner, user, said) = {
            let mut kernel = machine.kernel();
            let Some(socket) = kernel.sockets.get_mut(&number) else { return };
            let said = matches!(socket.agents_end, AgentsEnd::Open(_))
                .then(|| socket.to_agent.pop_front())
                .flatten();
            (socket.agents_end, socket.owner, socket.user, said)
        };
        match (agents_end, said) {
            (AgentsEnd::Arriving, _) => self.accept(machine, number, owner, user),
            (AgentsEnd::Open(from), Some(said)) => self.hear(machine, number, from, said),
            (AgentsEnd::Open(from), None) => {
                set_end(machine, number, AgentsEnd::Closing(from));
                let (let_go, _gone) = oneshot::channel();
                self.task.handle(AgentEvent::Over { from, let_go });
            }
            (AgentsEnd::Closing(from), _) => {
                close(machine, number);
                self.task.handle(AgentEvent::Closed { from });
            }
            (AgentsEnd::Closed, _) => {}
        }
    }

    fn accept(&mut self, machine: &Machine, number: usize, owner: ProcessKey, user: u32) {
        let Some(held) = machine.handle(owner) else { return close(machine, number) };
        let (accepted, mut answer) = oneshot::channel();
        let socket = machine.agents_socket(number);
        self.task.handle(AgentEvent::Connected { socket, user, held, accepted });
        match answer.try_recv().ok().flatten() {
            Some(accepted) => set_end(machine, number, AgentsEnd::Open(accepted.id)),
            None => close(machine, number),
        }
    }

    fn hear(&mut self, machine: &Machine, number: usize, from: ConnectionId, said: Said) {
        match said {
            Said::Frame(frame) => {
                let (done, _dealt_with) = oneshot::channel();
                self.task.handle(AgentEvent::Frame { from, frame, done });
            }
            Said::Request(request) => {
                let (answer, mut reply) = oneshot::channel();
                self.task.handle(AgentEvent::Request { from, request, answer });
                if let Ok(reply) = reply.try_recv() {
                    answer_with(machine, number, reply);
                }
            }
            Said::Rubbish => {
                self.task.handle(AgentEvent::Rubbish { from });
                set_end(machine, number, AgentsEnd::Closing(from));
                let (let_go, _gone) = oneshot::channel();
                self.task.handle(AgentEvent::Over { from, let_go });
            }
        }
    }

    /// Hears what the owners of pods are told.
    pub(super) fn hear_notices(&mut self) {
        while let Ok(notice) = self.notices.try_recv() {
            match notice {
                Notice::Preempted { victim: pod, .. } | Notice::Ended { pod, .. } => {
                    self.announced.insert(pod.uid);
                }
                _ => {}
            }
        }
    }

    /// Ends as it does when it is told to.
    pub(super) fn close(&mut self) {
        self.task.close();
    }

    /// The API server says that a pod has gone.
    pub(super) fn says_gone(&mut self, id: &PodId, uid: String) {
        self.news.push_back(AgentEvent::Pods(PodNews::Gone { id: id.clone(), uid }));
    }

    pub(super) fn card_index(&self, card: &gpupool_core::pool::CardUuid) -> u32 {
        self.known.iter().copied().find(|index| uuid(*index) == *card).unwrap_or(u32::MAX)
    }
}

/// The answer to a person's request, which goes past the task.
fn answer_with(machine: &Machine, number: usize, reply: Reply) {
    let mut kernel = machine.effect();
    if let Some(socket) = kernel.sockets.get_mut(&number) {
        socket.replies.push_back(reply);
    }
}

fn set_end(machine: &Machine, number: usize, agents_end: AgentsEnd) {
    if let Some(socket) = machine.kernel().sockets.get_mut(&number) {
        socket.agents_end = agents_end;
    }
}

fn close(machine: &Machine, number: usize) {
    let mut kernel = machine.kernel();
    let Some(socket) = kernel.sockets.get_mut(&number) else { return };
    (socket.agents_end, socket.cut) = (AgentsEnd::Closed, true);
    if socket.hung_up {
        kernel.sockets.remove(&number);
    }
}

/// One of the inputs, ends of processes mostly first, as in the real loop.
pub(super) fn choose(inputs: &[Input], random: &mut Rng) -> Option<Input> {
    let exits = inputs.iter().take_while(|input| matches!(input, Input::Exit(_))).count();
    if exits > 0 && random.bool() {
        return Some(inputs[random.usize(..exits)]);
    }
    random.choice(inputs).copied()
}

/// An input in words.
pub(super) fn describe(kernel: &Kernel, input: Input) -> String {
    match input {
        Input::Exit(key) => format!("that process {} has ended", key.pid),
        Input::Second => "that a second has passed".to_owned(),
        Input::Moment => "that time has passed".to_owned(),
        Input::Look => "what NVML showed".to_owned(),
        Input::News => "from the API server".to_owned(),
        Input::Socket(number) => {
            let Some(socket) = kernel.sockets.get(&number) else { return "nothing".to_owned() };
            let pid = socket.owner.pid;
            match (socket.agents_end, socket.to_agent.front()) {
                (AgentsEnd::Arriving, _) => format!("that process {pid} connects"),
                (AgentsEnd::Open(_), Some(said)) => format!("from process {pid}: {said:?}"),
                (AgentsEnd::Open(_), None) => format!("that a connection of process {pid} is over"),
                _ => format!("that a connection of process {pid} is closed"),
            }
        }
    }
}
