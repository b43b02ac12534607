//! Serving HTTP to whoever reaches the port: connections, times and bodies are bounded here, before anybody looks at
//! what is asked.
//!
//! Connections are counted, all together and by the address they come from (`connections`); a handshake, a request's
//! head and its body have their time; bodies are read by `request_bodies`. It is HTTP/1.1 only: one request at a time on
//! a connection, so that the bound on connections is one on requests. It must not know what is served.

mod connections;
mod request_bodies;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use tokio::net::TcpListener;
use tokio::sync::watch;

use connections::ConnectionGate;
pub(crate) use connections::ConnectionLimits;
pub(crate) use request_bodies::RequestBodies;

/// From a connection's start to the end of its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From there to the end of its first request's head.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// From one request to the end of the next one's head. Longer than the 90 seconds for which Go's clients keep a
/// connection: whoever closes first loses a request that the other is just sending.
const NEXT_REQUEST: Duration = Duration::from_secs(100);
/// The largest head of a request, and how much of a body is read ahead, in bytes.
const READ_AHEAD: usize = 16 << 10;
/// How long answers under way may take when the process is asked to end.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Serves HTTPS until `stop` says true.
pub(crate) async fn serve_tls(
    listener: TcpListener,
    tls: RustlsConfig,
    limits: ConnectionLimits,
    router: Router,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
    let handle = Handle::new();
    let server = bounded(listener, acceptor.acceptor(ConnectionGate::new(limits))).handle(handle.clone());
    tokio::select! {
        ended = server.serve(router.into_make_service()) => ended,
        never = end_with(stop, handle) => match never {},
    }
}

/// Serves HTTP until `stop` says true.
pub(crate) async fn serve_plain(
    listener: TcpListener,
    limits: ConnectionLimits,
    router: Router,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let handle = Handle::new();
    let server = bounded(listener, ConnectionGate::new(limits)).handle(handle.clone());
    tokio::select! {
        ended = server.serve(router.into_make_service()) => ended,
        never = end_with(stop, handle) => match never {},
    }
}

fn bounded<A>(listener: TcpListener, acceptor: A) -> Server<SocketAddr, A> {
    let mut server =
        Server::from_listener(listener).acceptor(acceptor).http1_only().first_request_timeout(FIRST_REQUEST);
    server.http_builder().http1().header_read_timeout(NEXT_REQUEST).max_buf_size(READ_AHEAD);
    server
}

/// Ends the server when it is time; goes on waiting for ever, since the server itself knows when it has ended.
async fn end_with(mut stop: watch::Receiver<bool>, handle: Handle<SocketAddr>) -> Infallible {
    // Whoever could say so is gone: the process is ending.
    let _ = stop.wait_for(|stop| *stop).await;
    handle.graceful_shutdown(Some(LAST_ANSWERS));
    pending().await
}
