//! The real socket, clock and pages behind [`Surroundings`].
//!
//! Everything here may lie as zeros: that is what a forked child finds, and it means "nothing yet". Descriptors
//! belong to the program as much as to the shim: it may close them and get the numbers back for its own files. So a
//! number is used only while it still is the file that it was.

use core::sync::atomic::Ordering;

use gpupool_wire::cards::{CardTable, MAX_CARDS, table_length};
use gpupool_wire::ledger::{self, Ledger};
use gpupool_wire::limits::{self, LimitsPage};

use crate::client::{Buffer, Failure, Myself, Received, Surroundings};
use crate::process::{PROCESS, socket_path};
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

/// What this process has of the agent.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: KeptFd,
    ledger: KeptFd,
    /// What the process is to the agent.
    pub(crate) me: Myself,
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
            me: Myself::new(),
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

    fn adopt_limits(fd: i32) -> bool {
        let Some(memory) = map_file(fd, limits::FILE_LENGTH, false) else { return false };
        // SAFETY: a mapping of that length that is never taken away, of a file that cannot shrink.
        let Ok(page) = (unsafe { LimitsPage::open(memory, limits::FILE_LENGTH) }) else { return false };
        PROCESS.limits.store(core::ptr::from_ref(page).cast_mut(), Ordering::Release);
        true
    }

    fn adopt_table(fd: i32) -> bool {
        let Ok(identity) = sys::identify(fd) else { return false };
        let length = usize::try_from(identity.size).unwrap_or(0).min(table_length(MAX_CARDS));
        let Some(memory) = map_file(fd, length, false) else { return false };
        // SAFETY: a mapping of that length that is never taken away, of a sealed file.
        let bytes = unsafe { core::slice::from_raw_parts(memory.cast::<u8>(), length) };
        if CardTable::parse(bytes).is_err() {
            return false;
        }
        PROCESS.table_length.store(0, Ordering::Release);
        PROCESS.table.store(memory.cast(), Ordering::Release);
        PROCESS.table_length.store(length, Ordering::Release);
        true
    }

    fn adopt_ledger(&mut self, fd: i32, slot: u32) -> bool {
        let Some(memory) = map_file(fd, ledger::FILE_LENGTH, true) else { return false };
        // SAFETY: a mapping of that length that is never taken away, of a file that cannot shrink.
        let Ok(ledger) = (unsafe { Ledger::open(memory, ledger::FILE_LENGTH) }) else { return false };
        let Some(own) = ledger.slot(slot) else { return false };
        own.set_pid(sys::own_pid());
        let flag = core::ptr::from_ref(own.submitted_flag());
        PROCESS.submitted.store(flag.expose_provenance(), Ordering::Release);
        PROCESS.slot.store(slot, Ordering::Release);
        PROCESS.ledger.store(memory.cast(), Ordering::Release);
        self.me.slot = slot;
        self.ledger.close();
        true
    }
}

#[inline(never)]
fn map_file(fd: i32, length: usize, writable: bool) -> Option<*mut core::ffi::c_void> {
    let size = usize::try_from(sys::identify(fd).ok()?.size).ok()?;
    if length == 0 || size < length {
        return None;
    }
    sys::map_shared(fd, length, writable).ok()
}

impl Surroundings for Connection {
    fn now(&mut self) -> u64 {
        sys::milliseconds()
    }

    fn connect(&mut self) -> Result<(), Failure> {
        self.socket.close();
        self.drop_arrived();
        let mut path = [0; 108];
        let length = socket_path(&mut path);
        let fd = sys::packet_socket().map_err(|_| Failure::Unable)?;
        if let Err(error) = sys::connect(fd, path.get(..length).unwrap_or_default()) {
            sys::close(fd);
            // Not there (yet), or busy; anything else is a rule that keeps this process from it.
            let forbidden = matches!(error, libc::EPERM | libc::EACCES | libc::ENOSYS | libc::ENAMETOOLONG);
            return Err(if forbidden { Failure::Unable } else { Failure::Away });
        }
        if self.socket.keep(fd) { Ok(()) } else { Err(Failure::Unable) }
    }

    fn connected(&mut self) -> bool {
        self.socket.get().is_some()
    }

    fn send(&mut self, packet: &[u8], with_ledger: bool) -> bool {
        let Some(fd) = self.socket.get() else { return false };
        let beside = if with_ledger { self.ledger.get() } else { None };
        if sys::send(fd, packet, beside).is_ok() {
            return true;
        }
        self.socket.close();
        false
    }

    fn receive(&mut self, buffer: &mut Buffer, milliseconds: u64) -> Received {
        // The number is looked at again after each wait: the program may have closed it meanwhile.
        let Some(fd) = self.socket.get() else { return Received::Gone };
        match sys::poll(fd, libc::POLLIN, milliseconds.min(1_000)) {
            Ok(Ready::No) => Received::Nothing,
            Ok(Ready::Yes) => match self.socket.get() {
                Some(fd) => self.take(fd, buffer),
                None => Received::Gone,
            },
            Err(_) => {
                self.socket = KeptFd::none();
                Received::Gone
            }
        }
    }

    fn adopt(&mut self, slot: u32) -> bool {
        let [limits, ledger, table] = self.arrived.map(|fd| fd - 1);
        let mut complete = Self::adopt_limits(limits) && Self::adopt_table(table);
        // Who comes back with a lease keeps the ledger that its memory is charged in.
        if complete && self.me.lease == 0 {
            complete = self.adopt_ledger(ledger, slot);
            if complete {
                self.arrived = [limits + 1, 0, table + 1];
                complete = self.ledger.keep(ledger);
            }
        }
        self.drop_arrived();
        complete
    }

    fn position(&mut self) -> u32 {
        crate::process::limits().map_or(0, LimitsPage::position)
    }

    fn say(&mut self, line: &[u8]) {
        sys::say(line);
    }

    fn pause(&mut self, milliseconds: u64) {
        sys::sleep_microseconds(milliseconds * 1000);
    }
}
