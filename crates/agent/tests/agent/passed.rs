//! Descriptors that strangers pass, each of a kind whose closing or reading can take long.

use std::io::{ErrorKind, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, MemfdFlags, Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::program::Program;

/// Most descriptors of one packet.
pub(crate) const MOST: usize = 253;

/// A descriptor to pass, with what keeps it as it is.
pub(crate) struct Passed {
    pub(crate) kind: &'static str,
    /// Goes first: without it nothing is left to wait for.
    #[allow(dead_code, reason = "it is there, and reads nothing")]
    peer: Option<TcpStream>,
    pub(crate) descriptor: OwnedFd,
}

/// One of each kind. `folder` is for the FIFO.
pub(crate) fn kinds(folder: &Path) -> Vec<Passed> {
    let plain = |kind, descriptor| Passed { kind, descriptor, peer: None };
    let fifo = folder.join("fifo");
    if !fifo.exists() {
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    let fifo = rustix::fs::open(&fifo, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let memory = rustix::fs::memfd_create("passed", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
    let nested = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    );
    let (inner, outer) = nested.unwrap();
    // A socket in whose queue another descriptor lies: closing one closes the other.
    let lingering = lingering(Duration::from_hours(1));
    assert!(send(inner.as_fd(), b"x", &[lingering.descriptor.as_fd()]).is_ok());
    vec![
        self::lingering(Duration::from_hours(1)),
        plain("FIFO", fifo),
        plain("memory", memory),
        Passed { kind: "socket with a lingering one in its queue", descriptor: outer, peer: lingering.peer },
    ]
}

/// A TCP socket whose close waits so long for a peer that reads nothing.
pub(crate) fn lingering(time: Duration) -> Passed {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let chunk = vec![0; 1 << 16];
    let full = loop {
        if let Err(failure) = socket.write(&chunk) {
            break failure;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    // It waits also where it does not block.
    socket.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&socket, Some(time)).unwrap();
    Passed { kind: "lingering socket", descriptor: socket.into(), peer: Some(peer) }
}

/// Sends a packet with descriptors.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut ancillary, flags)
}

/// Whether this machine's kernel can refuse descriptors (`SO_PASSRIGHTS`, Linux 6.16).
pub(crate) fn kernel_can_refuse() -> bool {
    const SO_PASSRIGHTS: i32 = 83;
    let pair = std::os::unix::net::UnixStream::pair().unwrap().0;
    let off = 0_i32;
    // SAFETY: the pointer is to a live value of the type and the size that this option reads.
    let answer = unsafe {
        libc::setsockopt(pair.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), 4)
    };
    answer == 0
}

/// Passes what is given on a connection: so many copies in each of so many packets. The program keeps none.
pub(crate) fn pass(program: &Program, packet: &[u8], passed: &Passed, copies: usize, packets: usize) {
    let list = vec![passed.descriptor.as_fd(); copies];
    for _ in 0..packets {
        // Refused where the kernel can; not taken any more where the agent has hung up or reads nothing.
        let _ = send(program.socket(), packet, &list);
    }
}

#[test]
fn closing_a_lingering_socket_takes_as_long_as_its_owner_chose() {
    let lingers = Duration::from_millis(600);
    let Passed { descriptor, peer: _peer, .. } = lingering(lingers);
    let begin = Instant::now();
    std::thread::spawn(move || drop(descriptor)).join().unwrap();
    assert!(begin.elapsed() >= lingers, "it closed at once: none of these tests means anything");
}
