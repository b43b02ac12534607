//! How many connections there may be: all together, and from one address.
//!
//! One that is too many is closed before anything of it is read. An address is a host or a pod, so that whoever opens
//! as many as it can takes its own places and nobody else's.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most connections at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// All together.
    pub(crate) total: usize,
    /// From one address.
    pub(crate) per_peer: usize,
}

/// Lets connections in. Clones are the same gate.
#[derive(Clone, Debug)]
pub(super) struct ConnectionGate {
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl ConnectionGate {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        // Nothing in here can be left half done by a panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address, if there is one.
    fn enter(&self, peer: IpAddr) -> Option<Place> {
        let mut open = self.open();
        if open.total >= self.limits.total {
            return None;
        }
        let of_peer = open.by_peer.entry(peer).or_default();
        if *of_peer >= self.limits.per_peer {
            return None;
        }
        *of_peer += 1;
        open.total += 1;
        Some(Place { gate: self.clone(), peer })
    }
}

/// A connection's place, free again when this is dropped.
#[derive(Debug)]
struct Place {
    gate: ConnectionGate,
    peer: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.gate.open();
        open.total = open.total.saturating_sub(1);
        if let Some(of_peer) = open.by_peer.get_mut(&self.peer) {
            *of_peer = of_peer.saturating_sub(1);
            if *of_peer == 0 {
                open.by_peer.remove(&self.peer);
            }
        }
    }
}

impl<S> Accept<TcpStream, S> for ConnectionGate {
    type Stream = CountedStream;
    type Service = S;
    type Future = Ready<io::Result<(CountedStream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(stream.peer_addr().and_then(|peer| {
            let place = self.enter(peer.ip()).ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok((CountedStream { stream, _place: place }, service))
        }))
    }
}

/// A connection that has a place for as long as it is open.
#[derive(Debug)]
pub(super) struct CountedStream {
    stream: TcpStream,
    _place: Place,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_its_own_places_only_and_gives_them_back() {
        let gate = ConnectionGate::new(ConnectionLimits { total: 3, per_peer: 2 });
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        let first = [gate.enter(address(1)).unwrap(), gate.enter(address(1)).unwrap()];
        assert!(gate.enter(address(1)).is_none());
        let second = gate.enter(address(2)).unwrap();
        assert!(gate.enter(address(2)).is_none() && gate.enter(address(3)).is_none());
        drop(first);
        assert!(gate.enter(address(1)).is_some());
        drop(second);
        let open = gate.open();
        assert!(open.total == 0 && open.by_peer.is_empty(), "{open:?}");
    }
}
