//! Whether this process lives and is ready, for the kubelet.
//!
//! A port of its own: whoever fills the others up does not make the process look dead, and the kubelet needs no
//! certificate. It says nothing but "ok", over plain HTTP.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::http_server::{ConnectionLimits, serve_plain};

/// A probe is one connection now and then.
const CONNECTIONS: ConnectionLimits = ConnectionLimits { total: 64, per_peer: 16 };

/// `/ready`: whether all ports are served; `/healthz`: that the process gets round to answering.
#[derive(Debug)]
pub struct HealthPage {
    listener: TcpListener,
}

impl HealthPage {
    /// Opens the page.
    pub async fn open(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// Where it is, with the port that was chosen if none was asked for.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves it until `stop` says true; `ready` says whether the process is.
    pub(crate) async fn serve(
        self,
        ready: watch::Receiver<bool>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let answer = move || {
            let ready = *ready.borrow();
            async move {
                if ready {
                    (StatusCode::OK, "ok\n")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "not all ports are served yet\n")
                }
            }
        };
        let router = Router::new().route("/ready", get(answer)).route("/healthz", get(|| async { "ok\n" }));
        serve_plain(self.listener, CONNECTIONS, router, stop).await
    }
}
