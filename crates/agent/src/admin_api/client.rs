//! The people's side of a control conversation: blocking, one request at a time.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpupool_wire::message::{self, Message};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use thiserror::Error;

use super::{Assembler, Fragment, LONGEST_PACKET, Reply, Request};

/// Longest answer that is put together, in bytes: a status of tens of thousands of pods.
const LONGEST_REPLY: usize = 256 * 1024 * 1024;

/// Why the agent could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error(
        "no agent answers on {socket}: start one with `gpupool agent` (or `gpupool agent --simulated-cards 2` without a GPU), or say where it is with --socket or GPUPOOL_SOCKET"
    )]
    NoAgent {
        /// Where it was looked for.
        socket: PathBuf,
    },
    /// The socket can't be used.
    #[error("cannot talk to the agent on {socket}: {source}")]
    Socket {
        /// The agent's socket.
        socket: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The agent ended, or dropped the conversation.
    #[error("the agent on {socket} hung up: see what it says on its standard error")]
    HungUp {
        /// The agent's socket.
        socket: PathBuf,
    },
    /// The answer is none of this protocol.
    #[error(
        "the agent on {socket} answers in another language ({what}): use gpupool and agent of the same release"
    )]
    Foreign {
        /// The agent's socket.
        socket: PathBuf,
        /// What was wrong.
        what: String,
    },
}

/// A conversation with the agent.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to the agent's socket.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        Self::open(path, None)
    }

    /// The same for somebody who would rather have no answer than wait longer than this for any step of it.
    pub fn connect_with_patience(path: &Path, patience: Duration) -> Result<Self, ClientError> {
        Self::open(path, Some(patience))
    }

    fn open(path: &Path, patience: Option<Duration>) -> Result<Self, ClientError> {
        let failed = |errno: rustix::io::Errno| match errno {
            rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOTDIR => {
                ClientError::NoAgent { socket: path.to_owned() }
            }
            _ => ClientError::Socket { socket: path.to_owned(), source: errno.into() },
        };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(failed)?;
        for direction in [Timeout::Send, Timeout::Recv] {
            sockopt::set_socket_timeout(&socket, direction, patience).map_err(failed)?;
        }
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        rustix::net::connect(&socket, &address).map_err(failed)?;
        Ok(Self { path: path.to_owned(), socket, buffer: vec![0; LONGEST_PACKET] })
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, ClientError> {
        self.send(request)?;
        self.receive()
    }

    /// Sends a request.
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let packets = super::request_packets(request).map_err(|failure| self.foreign(failure.to_string()))?;
        for packet in packets {
            let pieces = [IoSlice::new(&packet)];
            let sent = rustix::io::retry_on_intr(|| {
                let mut nothing = SendAncillaryBuffer::default();
                rustix::net::sendmsg(&self.socket, &pieces, &mut nothing, SendFlags::NOSIGNAL)
            });
            sent.map_err(|errno| self.failed(errno))?;
        }
        Ok(())
    }

    /// Waits for the next answer.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        let mut assembler = Assembler::default();
        loop {
            let received = rustix::io::retry_on_intr(|| {
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())
            });
            let (length, _) = received.map_err(|errno| self.failed(errno))?;
            if length == 0 {
                return Err(ClientError::HungUp { socket: self.path.clone() });
            }
            let packet = self.buffer.get(..length).unwrap_or_default();
            let body = match message::decode(packet) {
                Ok(Message::Control(body)) => body,
                Ok(other) => return Err(self.foreign(format!("{other:?}"))),
                Err(failure) => return Err(self.foreign(failure.to_string())),
            };
            match assembler.add(body, LONGEST_REPLY) {
                Fragment::More => {}
                Fragment::Rubbish => return Err(self.foreign("a broken packet".to_owned())),
                Fragment::Whole(text) => {
                    return serde_json::from_slice(&text)
                        .map_err(|failure| self.foreign(failure.to_string()));
                }
            }
        }
    }

    fn failed(&self, errno: rustix::io::Errno) -> ClientError {
        match errno {
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => {
                ClientError::HungUp { socket: self.path.clone() }
            }
            _ => ClientError::Socket { socket: self.path.clone(), source: errno.into() },
        }
    }

    fn foreign(&self, what: String) -> ClientError {
        ClientError::Foreign { socket: self.path.clone(), what }
    }
}
