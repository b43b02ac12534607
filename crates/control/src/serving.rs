//! The HTTPS server: admission and the scheduler extender answer behind it.
//!
//! It knows nothing of what is asked; a router comes in. Its certificate is made, renewed and made known by
//! [`rotation`] while it serves.

mod credentials;
mod rotation;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use axum::Router;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::http_server::{ConnectionLimits, serve_tls};
pub use credentials::CertificateLifetimes;
use rotation::CertificateRotation;

/// An API server has 200 writes under way at most, unless it is told otherwise, and each may be asked about here at a time.
const CONNECTIONS: ConnectionLimits = ConnectionLimits { total: 768, per_peer: 256 };

/// What the command line says about it.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens. Connections are taken from the moment on at which there is a certificate.
    pub listener: TcpListener,
    /// The rest.
    pub settings: ServingSettings,
}

/// Under which names it serves, and where its certificate is kept.
#[derive(Clone, Debug)]
pub struct ServingSettings {
    /// Names and addresses in the certificate: whoever asks under another one refuses the answer.
    pub names: Vec<String>,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The name of both webhook configurations, which are told which authority to trust.
    pub webhooks: String,
    /// For how long certificates are good.
    pub lifetimes: CertificateLifetimes,
}

impl Serving {
    /// Opens the address. The certificate is for the names of the Service `service` in the namespace, for this machine's
    /// loopback, for the address itself where it is a certain one, and for `names`.
    pub fn open(address: SocketAddr, service: &str, namespace: &str, names: &[String]) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let mut all: Vec<String> = ["", ".cluster.local"]
            .iter()
            .map(|domain| format!("{service}.{namespace}.svc{domain}"))
            .collect();
        all.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        let ip: IpAddr = address.ip();
        all.extend((!ip.is_unspecified() && !ip.is_loopback()).then(|| ip.to_string()));
        all.extend(names.iter().cloned());
        let settings = ServingSettings {
            names: all,
            namespace: namespace.to_owned(),
            secret: format!("{service}-certificate"),
            webhooks: service.to_owned(),
            lifetimes: CertificateLifetimes::default(),
        };
        Ok(Self { listener, settings })
    }

    /// Serves until `stop` says true.
    pub(crate) async fn run(
        self,
        client: &kube::Client,
        leading: watch::Receiver<bool>,
        router: Router,
        mut stop: watch::Receiver<bool>,
    ) {
        let (rotation, mut credentials) = CertificateRotation::new(client, self.settings, leading);
        let mut keeping = JoinSet::new();
        keeping.spawn(rotation.run());
        let tls = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            tls = tls::first(&mut credentials) => tls,
        };
        let Some(tls) = tls else { return };
        keeping.spawn(tls::reload(credentials, tls.clone()));
        let address = self.listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
        info!(address, "serving");
        let served = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => serve_tls(listener, tls, CONNECTIONS, router, stop).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = served {
            warn!(%failure, "the server has ended");
        }
    }
}
