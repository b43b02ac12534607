//! The real socket, clock and pages behind [`AgentLink`].
//!
//! Everything here may lie as zeros: that is what a forked child finds, and it means "nothing yet". Descriptors
//! belong to the program as much as to the shim: it may close them and get the numbers back for its own files. So a
//! number is used only while it still is the file that it was.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use gpupool_wire::limits::LimitsPage;

use super::conversation::{AgentLink, Buffer, Failure, Received, Registration};
use super::pages::Pages;
use crate::sys::{self, FileIdentity, MOST_FDS, Ready};

/// Descriptors are moved to here or above, out of the way of programs that count on low numbers.
const LOWEST_FD: usize = 512;

/// A descriptor that this library keeps open.
#[derive(Debug)]
pub(crate) struct KeptFd {
    /// The number plus one; 0 for none.
    fd_plus_one: i32,
    device: u64,
    inode: u64,
}

impl KeptFd {
    pub(crate) const fn none() -> Self {
        Self { fd_plus_one: 0, device: 0, inode: 0 }
    }

    /// Keeps a fresh descriptor, under a high number if there is one to be had.
    fn keep(&mut self, fd: i32) -> bool {
        let fd = match sys::duplicate_above(fd, LOWEST_FD) {
            Ok(high) => {
                sys::close(fd);
                high
            }
            Err(_) => fd,
        };
        let Ok(identity) = sys::identify(fd) else { return false };
        *self = Self { fd_plus_one: fd + 1, device: identity.device, inode: identity.inode };
        true
    }

    /// The descriptor, if it still is the file that was kept. Otherwise it is forgotten, never touched.
    #[inline(never)]
    fn get(&mut self) -> Option<i32> {
        let fd = self.fd_plus_one - 1;
        if fd < 0 {
            return None;
        }
        match sys::identify(fd) {
            Ok(FileIdentity { device, inode, .. }) if device == self.device && inode == self.inode => {
                Some(fd)
            }
            _ => {
                *self = Self::none();
                None
            }
        }
    }

    #[inline(never)]
    fn close(&mut self) {
        if let Some(fd) = self.get() {
            sys::close(fd);
        }
        *self = Self::none();
    }
}

/// Bytes of the longest path that a socket can have.
const LONGEST_PATH: usize = 108;

/// The path of the agent's socket, kept since the program may change its environment.
#[derive(Debug)]
pub(crate) struct SocketPath {
    words: [AtomicU32; LONGEST_PATH / 4],
    length: AtomicUsize,
}

impl SocketPath {
    /// No path.
    pub(crate) const fn new() -> Self {
        Self { words: [const { AtomicU32::new(0) }; LONGEST_PATH / 4], length: AtomicUsize::new(0) }
    }

    /// Keeps a path.
    pub(crate) fn keep(&self, path: &[u8]) {
        for (word, bytes) in self.words.iter().zip(path.chunks(4)) {
            let mut four = [0; 4];
            for (to, from) in four.iter_mut().zip(bytes) {
                *to = *from;
            }
            word.store(u32::from_ne_bytes(four), Ordering::Relaxed);
        }
        self.length.store(path.len(), Ordering::Relaxed);
    }

    /// Copies the path; its length, which is more than the buffer when no socket can have that path.
    fn copy_to(&self, buffer: &mut [u8; LONGEST_PATH]) -> usize {
        for (word, four) in self.words.iter().zip(buffer.chunks_mut(4)) {
            for (to, from) in four.iter_mut().zip(word.load(Ordering::Relaxed).to_ne_bytes()) {
                *to = from;
            }
        }
        self.length.load(Ordering::Relaxed)
    }
}

/// What this process has of the agent.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: KeptFd,
    /// Only kept open: an agent that is not root's finds it here when it starts again.
    ledger: KeptFd,
    /// What the process is to the agent.
    pub(crate) me: Registration,
    /// The agent was away when a lease ended, and has not heard of it yet.
    pub(crate) owes_release: bool,
    /// Descriptors that came with the last packet, plus one; 0 for none.
    arrived: [i32; MOST_FDS],
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            socket: KeptFd::none(),
            ledger: KeptFd::none(),
            me: Registration::new(),
            owes_release: false,
            arrived: [0; MOST_FDS],
        }
    }

    fn drop_arrived(&mut self) {
        for fd in &mut self.arrived {
            if *fd > 0 {
                sys::close(*fd - 1);
            }
            *fd = 0;
        }
    }

    /// Whether the connection stands, looked at without waiting.
    pub(crate) fn stands(&mut self) -> bool {
        let Some(fd) = self.socket.get() else { return false };
        match sys::poll(fd, libc::POLLIN, 0) {
            Ok(Ready::No) => true,
            Ok(Ready::Yes) => {
                let mut buffer = [0; size_of::<Buffer>()];
                self.take(fd, &mut buffer) != Received::Gone
            }
            Err(_) => false,
        }
    }

    #[inline(never)]
    fn take(&mut self, fd: i32, buffer: &mut Buffer) -> Received {
        self.drop_arrived();
        match sys::receive(fd, buffer) {
            Ok(packet) if packet.length > 0 => {
                self.arrived = packet.fds.map(|fd| fd + 1);
                Received::Packet(packet.length)
            }
            Err(libc::EAGAIN | libc::EINTR) => Received::Nothing,
            _ => {
                self.socket.close();
                Received::Gone
            }
        }
    }

    /// Sends a packet; whether it went out.
    pub(crate) fn send(&mut self, packet: &[u8]) -> bool {
        let Some(fd) = self.socket.get() else { return false };
        if sys::send(fd, packet).is_ok() {
            return true;
        }
        self.socket.close();
        false
    }
}

/// A connection, with where to make a new one and where the pages go that come with it.
pub(crate) struct SocketLink<'a> {
    /// The connection, which may be none yet.
    pub(crate) connection: &'a mut Connection,
    /// The agent's socket.
    pub(crate) path: &'a SocketPath,
    /// Where pages are kept.
    pub(crate) pages: &'a Pages,
}

impl AgentLink for SocketLink<'_> {
    fn now(&mut self) -> u64 {
        sys::milliseconds()
    }

    fn connect(&mut self) -> Result<(), Failure> {
        self.connection.socket.close();
        self.connection.drop_arrived();
        let mut path = [0; LONGEST_PATH];
        let length = self.path.copy_to(&mut path);
        let fd = sys::packet_socket().map_err(|_| Failure::Unable)?;
        if let Err(error) = sys::connect(fd, path.get(..length).unwrap_or_default()) {
            sys::close(fd);
            // Not there (yet), or busy; anything else is a rule that keeps this process from it.
            let forbidden = matches!(error, libc::EPERM | libc::EACCES | libc::ENOSYS | libc::ENAMETOOLONG);
            return Err(if forbidden { Failure::Unable } else { Failure::Away });
        }
        if self.connection.socket.keep(fd) { Ok(()) } else { Err(Failure::Unable) }
    }

    fn connected(&mut self) -> bool {
        self.connection.socket.get().is_some()
    }

    fn send(&mut self, packet: &[u8]) -> bool {
        self.connection.send(packet)
    }

    fn receive(&mut self, buffer: &mut Buffer, milliseconds: u64) -> Received {
        // The number is looked at again after each wait: the program may have closed it meanwhile.
        let Some(fd) = self.connection.socket.get() else { return Received::Gone };
        match sys::poll(fd, libc::POLLIN, milliseconds.min(1_000)) {
            Ok(Ready::No) => Received::Nothing,
            Ok(Ready::Yes) => match self.connection.socket.get() {
                Some(fd) => self.connection.take(fd, buffer),
                None => Received::Gone,
            },
            Err(_) => {
                self.connection.socket = KeptFd::none();
                Received::Gone
            }
        }
    }

    fn adopt(&mut self, slot: u32) -> bool {
        let [limits, ledger, table] = self.connection.arrived.map(|fd| fd - 1);
        let mut complete = self.pages.adopt_limits(limits) && self.pages.adopt_table(table);
        // Who comes back with a lease keeps the ledger that its memory is charged in.
        if complete && self.connection.me.lease == 0 {
            complete = self.pages.adopt_ledger(ledger, slot);
            if complete {
                self.connection.me.slot = slot;
                self.connection.ledger.close();
                self.connection.arrived = [limits + 1, 0, table + 1];
                complete = self.connection.ledger.keep(ledger);
            }
        }
        self.connection.drop_arrived();
        complete
    }

    fn position(&mut self) -> u32 {
        self.pages.limits().map_or(0, LimitsPage::position)
    }

    fn say(&mut self, line: &[u8]) {
        sys::say(line);
    }

    fn pause(&mut self, milliseconds: u64) {
        sys::sleep_microseconds(milliseconds * 1000);
    }
}
