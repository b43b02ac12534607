//! A stranger at the agent's socket: connects, sends what comes to its mind, and leaves.

use std::io::IoSlice;

use fastrand::Rng;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, sendmsg,
    socket_with,
};

use crate::scene::Scene;

pub(crate) fn send(node: &Scene, rng: &mut Rng) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) else { return };
    let address = SocketAddrUnix::new(node.socket()).unwrap();
    if connect(&socket, &address).is_err() {
        return;
    }
    for _ in 0..rng.usize(1..200) {
        let packet: Vec<u8> = (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
        // The agent may have hung up: that is its right.
        let _ = sendmsg(
            &socket,
            &[IoSlice::new(&packet)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        );
    }
}
