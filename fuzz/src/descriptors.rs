//! Packets to the agent with descriptors beside any of them, of kinds whose closing takes as long as their sender likes.
//!
//! They must be closed, all of them, before the receiver is done, and at once: the sockets among them linger for an
//! hour, and the engine takes an input that lasts for seconds as a hang. What it may cost is asserted for each input.

use std::io::{ErrorKind, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Once;
use std::time::Duration;

use gpupool_agent::fuzzing;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair, sockopt,
};

use crate::choices::Choices;
use crate::frames::{is_taken, packet};

/// Most descriptors of one packet.
const MOST: usize = 253;

/// Most descriptors of one input: a user may have only so many under way.
const MOST_IN_ALL: usize = 600;

/// Bytes by which an input may make this process grow: the receiver has one packet's room, and threads of small stacks.
const MOST_BYTES: usize = 16 << 20;

/// How long the sockets linger.
const LINGERS: Duration = Duration::from_hours(1);

/// Sends packets with descriptors to the agent's receiver.
///
/// # Panics
/// Where it takes one, keeps one open, or takes more memory than it may.
pub fn descriptors(data: &[u8]) {
    // What the first runtime of a process opens stays open.
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let (ours, agents) = pair(SocketType::SEQPACKET);
        drop(ours);
        fuzzing::receive(agents);
    });
    let mut choices = Choices::new(data);
    let before = (open_descriptors(), resident_bytes());
    // Their other ends: they read nothing, and are there until all is closed.
    let mut peers = Vec::new();
    let (ours, agents) = pair(SocketType::SEQPACKET);
    let mut taken = Vec::new();
    let (mut sent, mut still_taken) = (0, true);
    for _ in 0..=choices.byte() % 6 {
        let packet = packet(&mut choices);
        let copies = [0, 0, 1, 2, MOST][choices.below(5)].min(MOST_IN_ALL - sent);
        sent += copies;
        // One that is not sent is not made: it would be this thread that closes it.
        let descriptor = (copies > 0).then(|| any_kind(&mut choices, &mut peers));
        send(&ours, &packet, descriptor.as_ref(), copies);
        still_taken = still_taken && is_taken(&packet, copies);
        if still_taken {
            taken.push(packet);
        }
    }
    drop(ours);
    assert_eq!(fuzzing::receive(agents), taken);
    drop(peers);
    assert_eq!(open_descriptors(), before.0, "descriptors stay open");
    let grown = resident_bytes().saturating_sub(before.1);
    assert!(grown < MOST_BYTES, "{grown} bytes more");
}

fn any_kind(choices: &mut Choices<'_>, peers: &mut Vec<OwnedFd>) -> OwnedFd {
    match choices.below(6) {
        0 => lingering(peers),
        1 => {
            // In the queue of another socket: closing that one closes it.
            let (outer, inner) = pair(SocketType::DGRAM);
            send(&outer, b"x", Some(&lingering(peers)), 1);
            peers.push(outer);
            inner
        }
        2 => {
            let (reading, writing) =
                rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap_or_else(never);
            peers.push(reading);
            writing
        }
        3 => rustix::fs::open("/dev/null", rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
            .unwrap_or_else(never),
        kind => {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memory = memfd_create("gpupool-fuzz-descriptors", flags).unwrap_or_else(never);
            ftruncate(&memory, 1 << 20).unwrap_or_else(never);
            if kind == 4 {
                fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).unwrap_or_else(never);
            }
            memory
        }
    }
}

/// A socket whose close waits for a peer that reads nothing.
fn lingering(peers: &mut Vec<OwnedFd>) -> OwnedFd {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap_or_else(never);
    let address = listener.local_addr().unwrap_or_else(never);
    // Little room, so that it is full soon; connections have the listener's.
    sockopt::set_socket_recv_buffer_size(&listener, 1 << 12).unwrap_or_else(never);
    let mut socket = TcpStream::connect(address).unwrap_or_else(never);
    sockopt::set_socket_send_buffer_size(&socket, 1 << 12).unwrap_or_else(never);
    let (peer, _) = listener.accept().unwrap_or_else(never);
    socket.set_nonblocking(true).unwrap_or_else(never);
    let failure = loop {
        if let Err(failure) = socket.write(&[0; 1 << 12]) {
            break failure;
        }
    };
    assert_eq!(failure.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap_or_else(never);
    sockopt::set_socket_linger(&socket, Some(LINGERS)).unwrap_or_else(never);
    peers.push(peer.into());
    socket.into()
}

fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap_or_else(never)
}

fn send(socket: &OwnedFd, packet: &[u8], descriptor: Option<&OwnedFd>, copies: usize) {
    let list: Vec<_> = descriptor.iter().flat_map(|one| vec![one.as_fd(); copies]).collect();
    let mut room = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !list.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&list)));
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL).unwrap_or_else(never);
}

/// What this target asks of the system has no reason to fail.
fn never<T, E: std::fmt::Display>(failure: E) -> T {
    unreachable!("{failure}")
}

/// How many descriptors of the kinds that are sent this process has open. Other threads open files and folders.
fn open_descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let kinds = ["socket:", "pipe:", "/memfd:gpupool-fuzz-descriptors", "/dev/null"];
    let counted = |path: std::path::PathBuf| {
        let path = path.to_string_lossy();
        kinds.iter().any(|kind| path.starts_with(kind))
    };
    all.filter(|one| std::fs::read_link(one.path()).is_ok_and(counted)).count()
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default();
    pages * rustix::param::page_size()
}
