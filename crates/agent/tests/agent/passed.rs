//! Descriptors that strangers pass, each of a kind whose closing or reading can take long.

use std::io::{ErrorKind, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, MemfdFlags, Mode, OFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::program::Program;

/// Most descriptors of one packet.
pub(crate) const MOST: usize = 253;

/// A descriptor to pass, with what keeps it as it is.
pub(crate) struct Passed {
    /// Goes first: without it nothing is left to wait for.
    peer: Option<TcpStream>,
    pub(crate) descriptor: OwnedFd,
}

/// A kind of descriptor, and how one is made.
pub(crate) type Kind = (&'static str, fn() -> Passed);

/// All kinds.
pub(crate) const KINDS: [Kind; 4] = [
    ("lingering socket", lingering_long),
    ("FIFO", fifo),
    ("memory", memory),
    ("socket with a lingering one in its queue", nested),
];

/// A socket that lingers for longer than any test.
pub(crate) fn lingering_long() -> Passed {
    lingering(Duration::from_hours(1))
}

/// A socket that lingers for much longer than the agent may take to answer, and that a test can wait for.
pub(crate) fn lingering_briefly() -> Passed {
    lingering(Duration::from_secs(2))
}

fn fifo() -> Passed {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let descriptor = rustix::fs::open(&fifo, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    Passed { peer: None, descriptor }
}

fn memory() -> Passed {
    let descriptor = rustix::fs::memfd_create("passed", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&descriptor, 1 << 20).unwrap();
    Passed { peer: None, descriptor }
}

/// Closing the socket closes what lies in its queue.
fn nested() -> Passed {
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (inner, descriptor) = pair.unwrap();
    let Passed { peer, descriptor: lingering } = lingering_long();
    assert!(send(inner.as_fd(), b"x", &[lingering.as_fd()]).is_ok());
    Passed { peer, descriptor }
}

/// A TCP socket whose close waits so long for a peer that reads nothing.
pub(crate) fn lingering(time: Duration) -> Passed {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Little room, so that it is full soon; connections have the listener's.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1 << 12).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 1 << 12).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let chunk = [0; 1 << 12];
    let full = loop {
        if let Err(failure) = socket.write(&chunk) {
            break failure;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    // It waits also where it does not block.
    socket.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&socket, Some(time)).unwrap();
    Passed { descriptor: socket.into(), peer: Some(peer) }
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

/// What an attack leaves open at its own end: without it nothing would linger.
pub(crate) type Peers = Vec<TcpStream>;

/// Makes a descriptor and passes it on a connection: so many copies in each of so many packets. Where any of them is on
/// its way, the sender keeps none, so whoever drops the packets closes it. The agent must not run meanwhile.
pub(crate) fn pass(
    program: &Program,
    packet: &[u8],
    make: fn() -> Passed,
    copies: usize,
    packets: usize,
) -> Peers {
    let passed = make();
    let list = vec![passed.descriptor.as_fd(); copies];
    // Refused where the kernel can; not taken any more where the agent has hung up or reads nothing.
    let sent = (0..packets).filter(|_| send(program.socket(), packet, &list).is_ok()).count();
    let Passed { peer, descriptor } = passed;
    if sent == 0 {
        // It is closed right here, and must not wait.
        drop(peer);
        return Peers::new();
    }
    drop(descriptor);
    peer.into_iter().collect()
}

#[test]
fn closing_a_lingering_socket_takes_as_long_as_its_owner_chose() {
    let lingers = Duration::from_millis(600);
    let Passed { descriptor, peer: _peer } = lingering(lingers);
    let begin = Instant::now();
    std::thread::spawn(move || drop(descriptor)).join().unwrap();
    assert!(begin.elapsed() >= lingers, "it closed at once: none of these tests means anything");
}
