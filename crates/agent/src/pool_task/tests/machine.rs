//! A machine in memory: a clock that is set, a journal that can be told to fail, processes and sockets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use gpupool_core::pool::{Card, CardUuid, Config, LeaseId, Millis, Policy, Qos, Timestamp};
use gpupool_wire::message::{self, Message};
use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::cards::watch::Look;
use crate::environment::{Clock, JournalWriter, PeerSocket, ProcessHandle, Processes, UsageMeter};
use crate::journal::JournalError;
use crate::notice::Warrant;
use crate::peer::PeerError;
use crate::procfs::{ProcessKey, ProcessTable, Stat};
use crate::registry::Record;
use crate::restart::{self, Recovered};
use crate::shared_memory::{self, Inode};
use crate::usage_audit::observe::{LookRequests, Observation, Regular, Sighting};
use crate::usage_audit::{GpuProcess, WhyNotHeld};

pub(super) const BOOT: &str = "a boot in memory";

/// Bytes that a record counts in the journal: enough of them that a long run writes it anew now and then.
const RECORD_BYTES: u64 = 16 << 10;

/// What the agent sent on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Welcome,
    Granted,
    Refused(message::RefusalReason),
}

#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) parent: u32,
    pub(super) ended: bool,
    watched: bool,
    /// The pod's ledger, which it has mapped.
    ledger: Option<OwnedFd>,
    /// Its slot there, and the lease it was told of last.
    pub(super) slot: Option<u32>,
    pub(super) lease: Option<u64>,
    pub(super) signals: Vec<Signal>,
}

#[derive(Debug)]
struct Socket {
    owner: ProcessKey,
    open: bool,
    received: VecDeque<Sent>,
}

/// Everything that outlives the agent, and what was cut by it.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) now: u64,
    pub(super) journal: Vec<Record>,
    pub(super) journal_fails: bool,
    /// The journal lacks something that was decided, because a write failed.
    pub(super) journal_is_behind: bool,
    pub(super) processes: BTreeMap<ProcessKey, Process>,
    sockets: Vec<Socket>,
    pub(super) metered: BTreeSet<CardUuid>,
    /// What each process takes of each card, by NVML: card and bytes.
    pub(super) taken: BTreeMap<(ProcessKey, u32), u64>,
    /// What the agent that runs was last shown of that; nothing before its first look.
    pub(super) shown: Option<Vec<(ProcessKey, u32, u64)>>,
    /// Where it asks for looks.
    requests: Option<std::sync::mpsc::Receiver<u64>>,
    answered: u64,
}

impl State {
    /// What an agent would know that starts now.
    pub(super) fn recover(&self) -> Recovered {
        restart::recover(self.journal.clone(), BOOT, config()).expect("the journal is read")
    }

    /// The ledger that the process has mapped.
    pub(super) fn ledger_of(&self, key: ProcessKey) -> Option<OwnedFd> {
        self.processes[&key].ledger.as_ref().map(|ledger| ledger.try_clone().expect("a descriptor"))
    }

    fn write(&mut self, change: impl FnOnce(&mut Vec<Record>)) -> Result<(), JournalError> {
        if self.journal_fails {
            self.journal_is_behind = true;
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(JournalError::File { action: "write to", path: "in memory".into(), source });
        }
        change(&mut self.journal);
        Ok(())
    }

    /// Nothing is told before it is written.
    fn check_written(&self, owner: ProcessKey, frame: &Message<'_>) {
        if self.journal_is_behind {
            return;
        }
        let known = self.recover();
        match frame {
            Message::Welcome(welcome) => {
                let process = known.registry.process(owner).expect("a welcomed process is in the journal");
                assert_eq!(process.slot, welcome.slot());
            }
            Message::Granted(granted) => {
                let lease = LeaseId(granted.lease());
                assert!(
                    known.pool.leases().any(|known| known.lease == lease),
                    "{lease:?} is not in the journal"
                );
            }
            _ => {}
        }
    }

    fn receive(&mut self, socket: usize, frame: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let owner = self.sockets[socket].owner;
        let frame = message::decode(frame).expect("the agent sends messages");
        self.check_written(owner, &frame);
        let process = self.processes.get_mut(&owner).expect("a socket's owner");
        let sent = match frame {
            Message::Welcome(welcome) => {
                let [_limits, ledger, _cards] = descriptors else {
                    panic!("a welcome brings three descriptors")
                };
                process.ledger = Some(ledger.try_clone_to_owned().expect("a descriptor"));
                process.slot = Some(welcome.slot());
                Sent::Welcome
            }
            Message::Granted(granted) => {
                process.lease = Some(granted.lease());
                Sent::Granted
            }
            Message::Refused(refused) => Sent::Refused(refused.reason()),
            other => panic!("the agent sends no {other:?}"),
        };
        self.sockets[socket].received.push_back(sent);
    }
}

/// The machine, as each of its parts holds it.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine(Arc<Mutex<State>>);

impl Machine {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }

    /// Starts a process; the start time is its id, so that children are younger than their parents.
    pub(super) fn spawn(&self, pid: u32, parent: u32) -> ProcessKey {
        let key = ProcessKey { pid, start: pid.into() };
        self.state().processes.insert(key, Process { parent, ..Process::default() });
        key
    }

    /// The process has the ledger mapped no more.
    pub(super) fn hide_ledger(&self, key: ProcessKey) {
        self.state().processes.get_mut(&key).expect("a process").ledger = None;
    }

    /// Ends a process; true when the agent watches it and hears of it.
    pub(super) fn end(&self, key: ProcessKey) -> bool {
        let mut state = self.state();
        for child in state.processes.values_mut().filter(|child| child.parent == key.pid) {
            child.parent = 1;
        }
        let process = state.processes.get_mut(&key).expect("a process");
        (process.ended, process.ledger) = (true, None);
        std::mem::take(&mut process.watched)
    }

    pub(super) fn connect(&self, owner: ProcessKey) -> FakeSocket {
        let mut state = self.state();
        state.sockets.push(Socket { owner, open: true, received: VecDeque::new() });
        FakeSocket { machine: self.clone(), number: state.sockets.len() - 1 }
    }

    /// The asking end of a new agent.
    pub(super) fn look_requests(&self) -> LookRequests {
        let (looks, requests) = LookRequests::new();
        let mut state = self.state();
        (state.requests, state.answered, state.shown) = (Some(requests), 0, None);
        looks
    }

    /// What NVML shows now; lost cards show nothing. True in the second value when somebody has asked for it.
    pub(super) fn look(&self, lost: Option<u32>) -> (Observation, bool) {
        let mut state = self.state();
        let asked = state.requests.as_ref().and_then(|requests| requests.try_iter().last());
        state.answered = asked.unwrap_or(state.answered);
        let living = state.taken.iter().filter(|((key, _), _)| !state.processes[key].ended);
        let there = living.filter(|((_, card), _)| Some(*card) != lost);
        let sighting = |((key, card), bytes): (&(ProcessKey, u32), &u64)| Sighting {
            key: *key,
            process: GpuProcess { pid: key.pid, card: card_uuid(*card).as_str().into(), bytes: Some(*bytes) },
            why_not_held: WhyNotHeld::ShimNotLoaded,
        };
        let look = |index| Look {
            card: card_uuid(index).as_str().into(),
            lost: Some(index) == lost,
            utilisation: Some(0),
            processes: None,
            utilisation_of: None,
        };
        let observation = Observation {
            began: Timestamp(state.now),
            seen: [0, 1].map(|index| card_uuid(index).as_str().into()).into(),
            sightings: there.map(sighting).collect(),
            answers: state.answered,
            regular: Some(Regular { looks: vec![look(0), look(1)], counted: BTreeMap::new() }),
        };
        (observation, asked.is_some())
    }

    pub(super) fn handle(&self, key: ProcessKey) -> Box<dyn ProcessHandle> {
        Box::new(FakeHandle { machine: self.clone(), key, parent: self.state().processes[&key].parent })
    }
}

#[derive(Debug, Clone)]
pub(super) struct FakeSocket {
    machine: Machine,
    number: usize,
}

impl FakeSocket {
    /// The oldest message that was not yet read.
    pub(super) fn receive(&self) -> Option<Sent> {
        self.machine.state().sockets[self.number].received.pop_front()
    }
}

impl PeerSocket for FakeSocket {
    fn send(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        if !self.is_alive() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        self.machine.state().receive(self.number, frame, descriptors);
        Ok(())
    }

    fn cut(&self) {
        self.machine.state().sockets[self.number].open = false;
    }

    fn is_alive(&self) -> bool {
        self.machine.state().sockets[self.number].open
    }
}

#[derive(Debug)]
struct FakeHandle {
    machine: Machine,
    key: ProcessKey,
    parent: u32,
}

impl ProcessHandle for FakeHandle {
    fn key(&self) -> ProcessKey {
        self.key
    }

    fn parent(&self) -> u32 {
        self.parent
    }

    fn has_ended(&self) -> bool {
        self.machine.state().processes[&self.key].ended
    }

    fn signal(&self, warrant: &Warrant) -> std::io::Result<bool> {
        let mut state = self.machine.state();
        let process = state.processes.get_mut(&self.key).expect("a held process");
        if !process.ended {
            process.signals.push(warrant.signal());
        }
        Ok(!process.ended)
    }

    fn watch_exit(&self, _exits: mpsc::UnboundedSender<ProcessKey>) -> std::io::Result<()> {
        self.machine.state().processes.get_mut(&self.key).expect("a held process").watched = true;
        Ok(())
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp(self.state().now)
    }
}

impl JournalWriter for Machine {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.state().write(|journal| journal.extend_from_slice(records))
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let mut state = self.state();
        state.write(|journal| *journal = records.to_vec())?;
        state.journal_is_behind = false;
        Ok(())
    }

    fn length(&self) -> u64 {
        self.state().journal.len() as u64 * RECORD_BYTES
    }
}

impl ProcessTable for Machine {
    fn stat(&self, pid: u32) -> Option<Stat> {
        let state = self.state();
        let (key, process) =
            state.processes.iter().find(|(key, process)| key.pid == pid && !process.ended)?;
        Some(Stat { key: *key, parent: process.parent })
    }
}

impl Processes for Machine {
    fn hold(&self, key: ProcessKey) -> Result<Box<dyn ProcessHandle>, PeerError> {
        if self.state().processes.get(&key).is_none_or(|process| process.ended) {
            return Err(PeerError::Gone);
        }
        Ok(self.handle(key))
    }

    fn descendants(&self, ancestor: ProcessKey) -> Vec<ProcessKey> {
        let state = self.state();
        let living = || state.processes.iter().filter(|(_, process)| !process.ended);
        let mut found = vec![ancestor];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            next += 1;
            found.extend(living().filter(|(_, child)| child.parent == parent.pid).map(|(key, _)| *key));
        }
        found.remove(0);
        found
    }

    fn open_shared(&self, pid: u32, inode: Inode) -> Option<OwnedFd> {
        let key = self.stat(pid)?.key;
        self.state().ledger_of(key).filter(|ledger| shared_memory::inode(ledger.as_fd()).ok() == Some(inode))
    }
}

impl UsageMeter for Machine {
    fn read_cards(&mut self, cards: BTreeSet<CardUuid>) {
        self.state().metered = cards;
    }
}

/// The pool of a new journal: two cards that are shared in turns.
pub(super) fn config() -> Config {
    let card = |index| Card { uuid: card_uuid(index).as_str().into(), index };
    Config { cards: vec![card(0), card(1)], policy: Policy::SharePool, qos: qos(), check_requests: true }
}

pub(super) fn card_uuid(index: u32) -> String {
    format!("GPU-11111111-2222-3333-4444-55555555555{index}")
}

pub(super) fn qos() -> Qos {
    Qos {
        preempt_enabled: true,
        pod_max_duration: Millis(60_000),
        grace: Millis(2000),
        idle_release: Some(Millis(30_000)),
    }
}
