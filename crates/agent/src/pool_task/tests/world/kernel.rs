//! The kernel of the world: the clock, processes and their ends, signals, sockets. The agent reaches it by the traits of
//! its environment, and each effect that it has there passes [`Machine::effect`], where it may be killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpupool_core::pool::{CardUuid, PodId, Timestamp};
use rustix::process::Signal;
use tokio::sync::mpsc;

use super::disk::Disk;
use super::gpus::Gpus;
use crate::admin_api::{Reply, Request};
use crate::environment::{Clock, PeerSocket, ProcessHandle, Processes, UsageMeter};
use crate::event::{ConnectionId, Frame};
use crate::identity::{Identify, Stranger};
use crate::notice::Warrant;
use crate::peer::PeerError;
use crate::procfs::{ProcessKey, ProcessTable, Stat};
use crate::shared_memory::{self, Inode};

/// Packets that a socket holds for a program that does not read.
const UNREAD: usize = 16;

/// How the agent ends when it is killed at one of its effects.
#[derive(Debug)]
pub(super) struct Killed;

/// What somebody says on a connection.
#[derive(Debug)]
pub(super) enum Said {
    Frame(Frame),
    Request(Request),
    /// What is no message.
    Rubbish,
}

/// A packet from the agent, with the second of its descriptors.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) frame: Vec<u8>,
    pub(super) ledger: Option<OwnedFd>,
}

/// How far the agent is with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentsEnd {
    /// It has not accepted it yet.
    Arriving,
    Open(ConnectionId),
    /// Over, and not yet closed.
    Closing(ConnectionId),
    Closed,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) owner: ProcessKey,
    pub(super) user: u32,
    pub(super) agents_end: AgentsEnd,
    /// The agent has shut it down.
    pub(super) cut: bool,
    /// The caller has closed it.
    pub(super) hung_up: bool,
    pub(super) to_agent: VecDeque<Said>,
    pub(super) to_caller: VecDeque<Packet>,
    /// Answers to requests.
    pub(super) replies: VecDeque<Reply>,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) parent: u32,
    /// In a cluster: the pod that its cgroup is of.
    pub(super) cgroup: Option<PodId>,
    pub(super) ended: bool,
    /// By SIGSTOP.
    pub(super) stopped: bool,
    /// The agent that runs waits for its pidfd.
    watched: bool,
    /// The ledger that it has mapped.
    pub(super) ledger: Option<Arc<OwnedFd>>,
    /// What it was sent and has not noticed.
    pub(super) signals: VecDeque<Signal>,
}

/// Everything that outlives the agent.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) now: u64,
    pub(super) boot: u32,
    pub(super) disk: Disk,
    pub(super) gpus: Gpus,
    pub(super) processes: BTreeMap<ProcessKey, Process>,
    /// What their descendants leave behind becomes their own, as with `gpupool run`.
    pub(super) reapers: BTreeSet<ProcessKey>,
    pub(super) sockets: BTreeMap<usize, Socket>,
    next_socket: usize,
    next_pid: u32,
    /// Ends of processes that the agent waits for and has not heard of.
    pub(super) exits: Vec<ProcessKey>,
    /// Every signal that the agent sent since this was looked at.
    pub(super) sent_signals: Vec<(ProcessKey, Signal)>,
    /// After how many more effects the agent is killed.
    pub(super) fuse: Option<u32>,
    /// What each pod may take of its card, in bytes: what its limits page says.
    pub(super) limits: BTreeMap<PodId, u64>,
}

impl Kernel {
    fn new(disk: Disk, cards: u32) -> Self {
        let init = ProcessKey { pid: 1, start: 1 };
        Self {
            now: 1_000_000,
            boot: 0,
            disk,
            gpus: Gpus::new(cards),
            processes: BTreeMap::from([(init, Process::default())]),
            reapers: BTreeSet::new(),
            sockets: BTreeMap::new(),
            next_socket: 0,
            next_pid: 100,
            exits: Vec::new(),
            sent_signals: Vec::new(),
            fuse: None,
            limits: BTreeMap::new(),
        }
    }

    pub(super) fn lives(&self, key: ProcessKey) -> bool {
        self.processes.get(&key).is_some_and(|process| !process.ended)
    }

    /// A new process. Start times are ids, so that children are younger than their parents.
    pub(super) fn spawn(&mut self, parent: u32, cgroup: Option<PodId>) -> ProcessKey {
        self.next_pid += 1;
        let key = ProcessKey { pid: self.next_pid, start: self.next_pid.into() };
        self.processes.insert(key, Process { parent, cgroup, ..Process::default() });
        key
    }

    /// Ends a process: its memory and its sockets go first, then its pidfd says so.
    pub(super) fn end(&mut self, key: ProcessKey) {
        let reaper = self.reaper_above(key);
        for child in self.processes.values_mut().filter(|child| child.parent == key.pid) {
            child.parent = reaper;
        }
        self.gpus.forget(key);
        for socket in self.sockets.values_mut().filter(|socket| socket.owner == key) {
            socket.hung_up = true;
        }
        let Some(process) = self.processes.get_mut(&key).filter(|process| !process.ended) else { return };
        (process.ended, process.ledger) = (true, None);
        if std::mem::take(&mut process.watched) {
            self.exits.push(key);
        }
    }

    /// Who becomes the parent of a process's children when it ends.
    fn reaper_above(&self, key: ProcessKey) -> u32 {
        let mut here = key;
        while let Some(process) = self.processes.get(&here) {
            here = ProcessKey { pid: process.parent, start: process.parent.into() };
            if self.reapers.contains(&here) && self.lives(here) {
                return here.pid;
            }
        }
        1
    }

    pub(super) fn connect(&mut self, owner: ProcessKey, user: u32) -> usize {
        self.next_socket += 1;
        let socket = Socket {
            owner,
            user,
            agents_end: AgentsEnd::Arriving,
            cut: false,
            hung_up: false,
            to_agent: VecDeque::new(),
            to_caller: VecDeque::new(),
            replies: VecDeque::new(),
        };
        self.sockets.insert(self.next_socket, socket);
        self.next_socket
    }

    /// Whether the caller can still say something there.
    pub(super) fn is_open(&self, socket: usize) -> bool {
        let is_open = |socket: &Socket| !socket.cut && socket.agents_end != AgentsEnd::Closed;
        self.sockets.get(&socket).is_some_and(is_open)
    }

    /// The caller says something; false when nobody can hear it.
    pub(super) fn say(&mut self, socket: usize, said: Said) -> bool {
        let is_open = self.is_open(socket);
        if let Some(socket) = self.sockets.get_mut(&socket).filter(|_| is_open) {
            socket.to_agent.push_back(said);
        }
        is_open
    }

    pub(super) fn hang_up(&mut self, socket: usize) {
        let Some(open) = self.sockets.get_mut(&socket) else { return };
        open.hung_up = true;
        if open.agents_end == AgentsEnd::Closed {
            self.sockets.remove(&socket);
        }
    }

    /// The agent has ended: nobody waits for pidfds, all its ends of connections are closed.
    pub(super) fn agent_has_ended(&mut self) {
        self.fuse = None;
        self.exits.clear();
        for process in self.processes.values_mut() {
            process.watched = false;
        }
        for socket in self.sockets.values_mut() {
            socket.agents_end = AgentsEnd::Closed;
            socket.to_agent.clear();
        }
        self.sockets.retain(|_, socket| !socket.hung_up);
    }

    /// Nothing of what ran runs any more, and the processes that come have another boot's ids.
    pub(super) fn boot_again(&mut self) {
        let running: Vec<ProcessKey> = self.processes.keys().filter(|key| key.pid != 1).copied().collect();
        for key in running {
            self.end(key);
        }
        self.agent_has_ended();
        self.sockets.clear();
        self.processes.retain(|key, _| key.pid == 1);
        self.boot += 1;
        // Ids are given out again, and the clock begins anew.
        (self.next_pid, self.now) = (100, 20_000);
    }

    /// Drops what nobody can see any more.
    pub(super) fn bury(&mut self) {
        let unheard: BTreeSet<ProcessKey> = self.exits.iter().copied().collect();
        self.processes.retain(|key, process| !process.ended || unheard.contains(key));
    }
}

/// The kernel, as everybody holds it.
#[derive(Debug, Clone)]
pub(super) struct Machine(Arc<Mutex<Kernel>>);

impl Machine {
    pub(super) fn new(disk: Disk, cards: u32) -> Self {
        Self(Arc::new(Mutex::new(Kernel::new(disk, cards))))
    }

    pub(super) fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent is about to do something that others can see. It may not live to see it done.
    pub(super) fn effect(&self) -> MutexGuard<'_, Kernel> {
        let mut kernel = self.kernel();
        match &mut kernel.fuse {
            Some(0) => {
                drop(kernel);
                resume_unwind(Box::new(Killed))
            }
            Some(left) => *left -= 1,
            None => {}
        }
        kernel
    }

    pub(super) fn handle(&self, key: ProcessKey) -> Option<Box<dyn ProcessHandle>> {
        let kernel = self.kernel();
        let process = kernel.processes.get(&key).filter(|process| !process.ended)?;
        Some(Box::new(Handle { machine: self.clone(), key, parent: process.parent }))
    }

    pub(super) fn agents_socket(&self, number: usize) -> Arc<dyn PeerSocket> {
        Arc::new(AgentsSocket { machine: self.clone(), number })
    }
}

#[derive(Debug)]
struct AgentsSocket {
    machine: Machine,
    number: usize,
}

impl PeerSocket for AgentsSocket {
    fn send(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut kernel = self.machine.effect();
        let Some(socket) = kernel.sockets.get_mut(&self.number) else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        if socket.cut || socket.hung_up {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        if socket.to_caller.len() >= UNREAD {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let ledger = descriptors.get(1).map(BorrowedFd::try_clone_to_owned).transpose()?;
        socket.to_caller.push_back(Packet { frame: frame.to_vec(), ledger });
        Ok(())
    }

    fn cut(&self) {
        if let Some(socket) = self.machine.effect().sockets.get_mut(&self.number) {
            socket.cut = true;
        }
    }

    fn is_alive(&self) -> bool {
        let kernel = self.machine.kernel();
        kernel.sockets.get(&self.number).is_some_and(|socket| !socket.cut && !socket.hung_up)
    }
}

#[derive(Debug)]
struct Handle {
    machine: Machine,
    key: ProcessKey,
    parent: u32,
}

impl ProcessHandle for Handle {
    fn key(&self) -> ProcessKey {
        self.key
    }

    fn parent(&self) -> u32 {
        self.parent
    }

    fn has_ended(&self) -> bool {
        !self.machine.kernel().lives(self.key)
    }

    fn signal(&self, warrant: &Warrant) -> std::io::Result<bool> {
        let signal = warrant.signal();
        let mut kernel = self.machine.effect();
        let Some(process) = kernel.processes.get_mut(&self.key).filter(|process| !process.ended) else {
            return Ok(false);
        };
        process.signals.push_back(signal);
        kernel.sent_signals.push((self.key, signal));
        Ok(true)
    }

    fn watch_exit(&self, _exits: mpsc::UnboundedSender<ProcessKey>) -> std::io::Result<()> {
        let mut kernel = self.machine.kernel();
        let kernel = &mut *kernel;
        match kernel.processes.get_mut(&self.key).filter(|process| !process.ended) {
            Some(process) => process.watched = true,
            None if kernel.exits.contains(&self.key) => {}
            None => kernel.exits.push(self.key),
        }
        Ok(())
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp(self.kernel().now)
    }
}

impl ProcessTable for Machine {
    fn stat(&self, pid: u32) -> Option<Stat> {
        let kernel = self.kernel();
        let key = ProcessKey { pid, start: pid.into() };
        let process = kernel.processes.get(&key).filter(|process| !process.ended)?;
        Some(Stat { key, parent: process.parent })
    }
}

impl Processes for Machine {
    fn hold(&self, key: ProcessKey) -> Result<Box<dyn ProcessHandle>, PeerError> {
        self.handle(key).ok_or(PeerError::Gone)
    }

    fn descendants(&self, ancestor: ProcessKey) -> Vec<ProcessKey> {
        let kernel = self.kernel();
        let mut found = vec![ancestor];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            next += 1;
            let living = kernel.processes.iter().filter(|(_, process)| !process.ended);
            found.extend(living.filter(|(_, child)| child.parent == parent.pid).map(|(key, _)| *key));
        }
        found.remove(0);
        found
    }

    fn open_shared(&self, pid: u32, inode: Inode) -> Option<OwnedFd> {
        let kernel = self.kernel();
        let process = kernel.processes.get(&ProcessKey { pid, start: pid.into() })?;
        let ledger = process.ledger.as_ref()?;
        let is_it = shared_memory::inode(ledger.as_fd()).ok() == Some(inode);
        is_it.then(|| ledger.try_clone().ok())?
    }
}

impl UsageMeter for Machine {
    fn read_cards(&mut self, _cards: BTreeSet<CardUuid>) {}
}

/// A cluster's identity: the cgroup says it.
#[derive(Debug)]
pub(super) struct CgroupsInMemory(pub(super) Machine);

impl Identify for CgroupsInMemory {
    fn pod_of(&self, caller: ProcessKey, _parent: Option<u32>) -> Result<PodId, Stranger> {
        let kernel = self.0.kernel();
        let process = kernel.processes.get(&caller).filter(|process| !process.ended);
        let process = process.ok_or(Stranger::Gone(caller.pid))?;
        process.cgroup.clone().ok_or(Stranger::NoPod(caller.pid))
    }
}
