//! An agent of one pod that does what a test tells it to.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use gpupool_wire::bucket::Rate;
use gpupool_wire::ledger::{self, Ledger};
use gpupool_wire::limits::{self, Limits, LimitsPage, PodState};
use gpupool_wire::message::{Granted, MAX_FRAME, Message, RefusalReason, Refused, Welcome, decode};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use zerocopy::IntoBytes;

use super::table::Table;

/// Longest that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a process told the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Hello { pid: u32, resume: Option<u64>, with_descriptor: bool },
    Acquire { pid: u32, only: bool },
    Release { pid: u32 },
}

/// How the agent answers a wish for a card.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// At once, with the card at this index of the table.
    Grant(u32),
    /// When the test says so.
    Later,
    /// Never.
    Refuse,
}

struct Pages {
    limits_fd: OwnedFd,
    ledger_fd: OwnedFd,
    table_fd: OwnedFd,
    limits: &'static LimitsPage,
    ledger: Ledger<'static>,
}

struct State {
    heard: Vec<Heard>,
    answer: Answer,
    turned_away: Option<RefusalReason>,
    waiting: Vec<(u32, Arc<OwnedFd>)>,
    connections: Vec<Arc<OwnedFd>>,
    slots: HashMap<u32, u32>,
    next_slot: u32,
    next_lease: u64,
    alive: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pages: Pages,
    table: Table,
}

/// The agent.
pub(crate) struct Agent {
    shared: Arc<Shared>,
    path: PathBuf,
}

/// A file in memory that cannot change its size, mapped here.
fn memory(name: &str, length: usize) -> (OwnedFd, *mut std::ffi::c_void) {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, length as u64).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, never taken away.
    let start = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &fd, 0) }.unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    (fd, start)
}

impl Pages {
    fn new(table: &Table) -> Self {
        let bytes = table.bytes();
        let (table_fd, start) = memory("cards", bytes.len());
        // SAFETY: the mapping has that length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
        let (limits_fd, start) = memory("limits", limits::FILE_LENGTH);
        let first = Limits {
            core_percent: 100,
            core_rate: Rate::UNLIMITED,
            memory_bytes: table.cards[0].total_memory / 2,
            context_reserve_bytes: 64 << 20,
            state: PodState::Hibernating,
            position: 0,
            card: 0,
        };
        // SAFETY: the mapping has that length and stays.
        let page = unsafe { LimitsPage::create(start, limits::FILE_LENGTH, &first) }.unwrap();
        fcntl_add_seals(&limits_fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL).unwrap();
        let (ledger_fd, start) = memory("ledger", ledger::FILE_LENGTH);
        // SAFETY: the mapping has that length and stays.
        let ledger = unsafe { Ledger::create(start, ledger::FILE_LENGTH) }.unwrap();
        Self { limits_fd, ledger_fd, table_fd, limits: page, ledger }
    }
}

impl Agent {
    /// Listens at `path` for a pod with half of the first card's memory.
    pub(crate) fn start(path: &Path, table: Table) -> Self {
        let shared = Arc::new(Shared {
            pages: Pages::new(&table),
            table,
            changed: Condvar::new(),
            state: Mutex::new(State {
                heard: Vec::new(),
                answer: Answer::Grant(0),
                turned_away: None,
                waiting: Vec::new(),
                connections: Vec::new(),
                slots: HashMap::new(),
                next_slot: 0,
                next_lease: 1,
                alive: false,
            }),
        });
        let agent = Self { shared, path: path.to_owned() };
        agent.revive();
        agent
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.path
    }

    pub(crate) fn table(&self) -> &Table {
        &self.shared.table
    }

    pub(crate) fn ledger(&self) -> Ledger<'static> {
        self.shared.pages.ledger
    }

    pub(crate) fn limits(&self) -> Limits {
        self.shared.pages.limits.read()
    }

    /// Changes what the limits page says.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.limits();
        change(&mut limits);
        self.shared.pages.limits.publish(&limits);
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.shared.state.lock().unwrap().answer = answer;
    }

    /// From now on nobody is taken in.
    pub(crate) fn turn_away(&self, reason: RefusalReason) {
        self.shared.state.lock().unwrap().turned_away = Some(reason);
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.shared.state.lock().unwrap().heard.clone()
    }

    /// Waits until what the agent has heard is as `enough` wants it.
    pub(crate) fn wait_until(&self, enough: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
        let state = self.shared.state.lock().unwrap();
        let wanting = |state: &mut State| !enough(&state.heard);
        let (state, time) = self.shared.changed.wait_timeout_while(state, PATIENCE, wanting).unwrap();
        assert!(!time.timed_out(), "heard only {:?}", state.heard);
        state.heard.clone()
    }

    /// Waits until the agent has heard `count` things that `which` looks for.
    pub(crate) fn wait_for(&self, count: usize, which: impl Fn(&Heard) -> bool) -> Vec<Heard> {
        self.wait_until(|heard| heard.iter().filter(|heard| which(heard)).count() >= count)
    }

    /// Grants the first process that waits the card at `card` of the table.
    pub(crate) fn grant(&self, card: u32) -> u32 {
        let state = self.shared.state.lock().unwrap();
        let nobody = |state: &mut State| state.waiting.is_empty();
        let (mut state, time) = self.shared.changed.wait_timeout_while(state, PATIENCE, nobody).unwrap();
        assert!(!time.timed_out(), "nobody waits");
        let (pid, connection) = state.waiting.remove(0);
        self.shared.give(&mut state, &connection, card);
        pid
    }

    /// Takes the slot of a dead process back, as the real agent does when its pidfd says so.
    pub(crate) fn bury(&self, pid: u32) -> u64 {
        let slot = self.shared.state.lock().unwrap().slots.remove(&pid).unwrap();
        self.ledger().reclaim(slot).unwrap()
    }

    /// Takes back the slots of all processes, which must be dead.
    pub(crate) fn bury_all(&self) {
        for (_, slot) in self.shared.state.lock().unwrap().slots.drain() {
            self.ledger().reclaim(slot).unwrap();
        }
    }

    /// Dies: the socket is gone, every connection ends. Pages stay, as a restarted agent takes them back.
    pub(crate) fn die(&self) {
        let mut state = self.shared.state.lock().unwrap();
        std::fs::remove_file(&self.path).unwrap();
        state.alive = false;
        for connection in state.connections.drain(..) {
            let _ = rustix::net::shutdown(&*connection, Shutdown::Both);
        }
        state.waiting.clear();
    }

    /// Comes back at the same path.
    pub(crate) fn revive(&self) {
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&*self.path).unwrap()).unwrap();
        rustix::net::listen(&listener, 64).unwrap();
        self.shared.state.lock().unwrap().alive = true;
        let (shared, path) = (Arc::clone(&self.shared), self.path.clone());
        thread::spawn(move || {
            while path.exists() {
                let mut set = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
                let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                if rustix::event::poll(&mut set, Some(&tick)).unwrap_or(0) == 0 {
                    continue;
                }
                let Ok(connection) = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC) else {
                    continue;
                };
                let connection = Arc::new(connection);
                let mut state = shared.state.lock().unwrap();
                if !state.alive {
                    break;
                }
                state.connections.push(Arc::clone(&connection));
                drop(state);
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(&connection));
            }
        });
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.path.exists() {
            self.die();
        }
    }
}

impl Shared {
    fn note(&self, state: &mut State, heard: Heard) {
        state.heard.push(heard);
        self.changed.notify_all();
    }

    fn give(&self, state: &mut State, connection: &OwnedFd, card: u32) {
        let lease = state.next_lease;
        state.next_lease += 1;
        let mut limits = self.pages.limits.read();
        limits.card = card;
        limits.state = PodState::Running;
        limits.position = 0;
        self.pages.limits.publish(&limits);
        let uuid = self.table.cards[card as usize].uuid;
        send(connection, Granted::new(lease, uuid, card).as_bytes(), &[]);
    }

    fn serve(&self, connection: &Arc<OwnedFd>) {
        let peer = rustix::net::sockopt::socket_peercred(&**connection).unwrap();
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap();
        let mut packet = [0_u8; MAX_FRAME];
        while let Some((length, with_descriptor)) = receive(connection, &mut packet) {
            let mut state = self.state.lock().unwrap();
            match decode(&packet[..length]).unwrap() {
                Message::Hello(hello) => {
                    if state.turned_away.is_none() {
                        let next = state.next_slot;
                        let slot = *state.slots.entry(pid).or_insert(next);
                        if slot == next {
                            state.next_slot += 1;
                            self.pages.ledger.assign(slot).unwrap().set_agents_pid(pid);
                        }
                        let fds = [&self.pages.limits_fd, &self.pages.ledger_fd, &self.pages.table_fd];
                        send(connection, Welcome::new(slot, "lab/pod").as_bytes(), &fds);
                    } else {
                        let reason = state.turned_away.unwrap_or(RefusalReason::Other);
                        let no = Refused::new(reason, "This process belongs to no pod.");
                        send(connection, no.as_bytes(), &[]);
                    }
                    self.note(&mut state, Heard::Hello { pid, resume: hello.resume(), with_descriptor });
                }
                Message::Acquire(acquire) => {
                    let only = acquire.only() != gpupool_wire::NO_CARD;
                    match state.answer {
                        Answer::Grant(card) => self.give(&mut state, connection, card),
                        Answer::Later => state.waiting.push((pid, Arc::clone(connection))),
                        Answer::Refuse => {
                            let no =
                                Refused::new(RefusalReason::CardGone, "The card of this process is lost.");
                            send(connection, no.as_bytes(), &[]);
                        }
                    }
                    self.note(&mut state, Heard::Acquire { pid, only });
                }
                Message::Release(_) => self.note(&mut state, Heard::Release { pid }),
                other => panic!("the shim sent {other:?}"),
            }
        }
    }
}

fn send(connection: &OwnedFd, packet: &[u8], fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    // A process that has died meanwhile does not read it.
    let _ = rustix::net::sendmsg(connection, &[IoSlice::new(packet)], &mut beside, SendFlags::NOSIGNAL);
}

fn receive(connection: &OwnedFd, packet: &mut [u8]) -> Option<(usize, bool)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let answer = rustix::net::recvmsg(
        connection,
        &mut [IoSliceMut::new(packet)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    );
    let length = answer.ok()?.bytes;
    let with_fd = beside.drain().next().is_some();
    (length > 0).then_some((length, with_fd))
}
