//! Ports on 127.0.0.1 that stay ours from the moment they are chosen.
//!
//! A port that is merely found free can be taken by anybody before the component listens on it. So it is bound
//! here with `SO_REUSEPORT`, without listening, for the cluster's whole life; the components share it by
//! `--permit-port-sharing`, and nobody else gets it while a component is being restarted.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

use crate::Error;

/// A port on 127.0.0.1 that is kept as long as this lives.
#[derive(Debug)]
pub(crate) struct HeldPort {
    /// Bound, never listening: a connection reaches the component or is refused.
    _socket: OwnedFd,
    number: u16,
}

impl HeldPort {
    /// Takes a port that was free.
    pub(crate) fn take() -> Result<Self, Error> {
        Self::bind_free().map_err(|error| Error::Port(error.into()))
    }

    /// The port's number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn bind_free() -> rustix::io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let number = SocketAddrV4::try_from(getsockname(&socket)?)?.port();
        Ok(Self { _socket: socket, number })
    }
}
