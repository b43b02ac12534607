//! The agent's Unix socket for packets, and the descriptors that strangers pass beside theirs.
//!
//! The agent takes no descriptors from anybody. One that is sent all the same lies in the receiving queue, and the last
//! to hold it closes it: whoever receives the packet, or closes the connection before. That can take as long as its
//! sender has chosen (a TCP socket with `SO_LINGER`), so it must happen to nobody else:
//!
//! - Kernels from Linux 6.16 on refuse such packets for a socket with `SO_PASSRIGHTS` off. They never arrive.
//! - On older ones they are recognised without being received, end the conversation, and are closed with the connection,
//!   in a thread of its own that is interrupted until it is done.
//!
//! Nothing here knows what the packets say, or who sends them.

use std::io::{IoSliceMut, Result};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::sync::{Semaphore, oneshot};
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

/// `SO_PASSRIGHTS` of `<asm-generic/socket.h>`, Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Connections that the kernel keeps until they are accepted: few, since whoever comes next waits for all of them. More
/// wait in their `connect`, in turn.
const BACKLOG: i32 = 128;

/// Threads that close connections at the same time, at most: more than the connections that one pod may have.
const MOST_CLOSING: usize = 2048;

/// Stack of such a thread, in bytes. It makes one system call.
const STACK: usize = 64 << 10;

/// How soon a thread that closes is interrupted, and the longest time from one interruption to the next.
const FIRST_INTERRUPTION: Duration = Duration::from_millis(1);
const LONGEST_BETWEEN: Duration = Duration::from_millis(100);

/// The signal that interrupts it. It is ignored where nobody handles it, and so does no harm if it comes late.
const INTERRUPTION: libc::c_int = libc::SIGURG;

/// Whether packets with descriptors reach a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedDescriptors {
    /// The kernel refuses to send them.
    Refused,
    /// They may lie in any packet.
    MayArrive,
}

/// What a packet is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// One of this length, in bytes.
    Packet(usize),
    /// Longer than any packet may be, or with descriptors.
    Rubbish,
    /// The other end has hung up.
    HungUp,
}

/// Where connections come in.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixSeqpacketListener,
    descriptors: PassedDescriptors,
}

impl Listener {
    /// Listens at `path`, where nothing may be yet. Descriptors may arrive where the kernel can't refuse them, and where
    /// `wanted` says so.
    pub(crate) fn bind(path: &Path, wanted: PassedDescriptors) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Connections have it from here, those that nobody has accepted yet included.
        let descriptors = match wanted {
            PassedDescriptors::Refused if refuse_descriptors(&socket) => PassedDescriptors::Refused,
            _ => PassedDescriptors::MayArrive,
        };
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        if descriptors == PassedDescriptors::MayArrive {
            handle_interruptions()?;
        }
        Ok(Self { socket: socket.try_into()?, descriptors })
    }

    /// The next connection.
    pub(crate) async fn accept(&mut self) -> Result<PacketSocket> {
        let socket = self.socket.accept().await?;
        Ok(PacketSocket { socket: Arc::new(socket), descriptors: self.descriptors })
    }
}

/// A connection. It must be [closed](PacketSocket::close), not dropped, while the agent runs.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: Arc<UnixSeqpacket>,
    descriptors: PassedDescriptors,
}

impl PacketSocket {
    /// A connection that was made otherwise, on which descriptors may arrive.
    pub(crate) fn of(socket: OwnedFd) -> Result<Self> {
        handle_interruptions()?;
        let socket = Arc::new(UnixSeqpacket::try_from(socket)?);
        Ok(Self { socket, descriptors: PassedDescriptors::MayArrive })
    }

    /// The socket, for those who send on it. They must have dropped it when the connection is closed.
    pub(crate) fn shared(&self) -> Arc<UnixSeqpacket> {
        Arc::clone(&self.socket)
    }

    /// Waits for the next packet. Descriptors beside it are not taken: it stays where it is.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> Result<Received> {
        loop {
            let mut ready = self.socket.as_async_fd().readable().await?;
            if let Ok(received) = ready.try_io(|socket| self.receive_now(socket, buffer)) {
                return received;
            }
        }
    }

    fn receive_now(&self, socket: impl AsFd, buffer: &mut [u8]) -> Result<Received> {
        let mut receive = |flags| {
            rustix::net::recvmsg(
                &socket,
                &mut [IoSliceMut::new(buffer)],
                &mut RecvAncillaryBuffer::default(),
                flags | RecvFlags::DONTWAIT,
            )
        };
        // Without room for descriptors a look says whether there are any, and the packet goes on holding them.
        if self.descriptors == PassedDescriptors::MayArrive
            && receive(RecvFlags::PEEK)?.flags.contains(ReturnFlags::CTRUNC)
        {
            return Ok(Received::Rubbish);
        }
        let received = receive(RecvFlags::empty())?;
        Ok(match received.bytes {
            0 => Received::HungUp,
            _ if received.flags.contains(ReturnFlags::TRUNC) => Received::Rubbish,
            length => Received::Packet(length),
        })
    }

    /// Hangs up and closes the connection with all that lies unread in it. It may take its time, but only this task's.
    pub(crate) async fn close(self) {
        // Nothing more arrives from here on. It may be gone at the other end already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        // Somebody who sends still has it only when the agent goes down.
        let Some(socket) = Arc::into_inner(self.socket) else { return };
        let socket = OwnedFd::from(socket);
        if self.descriptors == PassedDescriptors::MayArrive {
            close_apart(socket).await;
        }
    }
}

/// Whether the kernel now refuses to send descriptors to this socket.
fn refuse_descriptors(socket: impl AsFd) -> bool {
    let off: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the pointer is to a live value of the type and the size that this option reads.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            length,
        )
    };
    answer == 0
}

/// Closes a descriptor in a thread of its own, and waits until that is done.
async fn close_apart(descriptor: OwnedFd) {
    static CLOSING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(MOST_CLOSING));
    // The semaphore itself is never closed.
    let Ok(_one_of_them) = CLOSING.acquire().await else { return };
    let descriptor = Arc::new(Mutex::new(Some(descriptor)));
    let (thread, mut end) = loop {
        match spawn_closing(Arc::clone(&descriptor)) {
            Ok(spawned) => break spawned,
            // There is no thread to be had; the descriptor waits here for one.
            Err(_) => tokio::time::sleep(LONGEST_BETWEEN).await,
        }
    };
    let mut patience = FIRST_INTERRUPTION;
    while tokio::time::timeout(patience, &mut end).await.is_err() {
        patience = LONGEST_BETWEEN.min(patience * 2);
        // SAFETY: the thread is neither joined nor detached before `thread` is dropped, so its id is its own.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), INTERRUPTION) };
    }
}

/// A thread that closes what it is given, and what says when it has.
fn spawn_closing(
    descriptor: Arc<Mutex<Option<OwnedFd>>>,
) -> Result<(std::thread::JoinHandle<()>, oneshot::Receiver<()>)> {
    let (closed, end) = oneshot::channel();
    let close = move || {
        drop(descriptor.lock().unwrap_or_else(PoisonError::into_inner).take());
        // Nobody waits for it when the agent goes down.
        let _ = closed.send(());
    };
    let thread = std::thread::Builder::new().name("close".to_owned()).stack_size(STACK).spawn(close)?;
    Ok((thread, end))
}

/// From now on the signal interrupts the system call of the thread that gets it, and does nothing else.
fn handle_interruptions() -> Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: all of the structure may be zero, and a function that does nothing may be called at any moment.
    let answer = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(INTERRUPTION, &raw const action, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
