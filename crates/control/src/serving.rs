//! The HTTPS servers: one for admission, one for the scheduler extender, which takes the scheduler alone.
//!
//! It knows nothing of what is asked; routers come in. Certificates are made, renewed and made known by `rotation` while
//! they are served with; `clients` says whose connections a port takes.

mod certificate_secret;
mod clients;
mod credentials;
mod rotation;
mod scheduler_certificate;
mod scheduler_copy;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use axum::Router;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::http_server::{ConnectionLimits, serve_tls};
use clients::Clients;
pub use clients::TrustedClients;
pub use credentials::CertificateLifetimes;
use credentials::Credentials;
use rotation::CertificateRotation;
pub use scheduler_certificate::SCHEDULER_NAME;
use tls::PortTls;

/// An API server has 200 writes under way at most, unless it is told otherwise, and each may be asked about here at a
/// time.
const ADMISSION_CONNECTIONS: ConnectionLimits = ConnectionLimits { total: 768, per_peer: 256 };
/// The scheduler asks about one pod after the other, and binds some at a time.
const EXTENDER_CONNECTIONS: ConnectionLimits = ConnectionLimits { total: 128, per_peer: 64 };

/// What the command line says about it.
#[derive(Debug)]
pub struct Serving {
    /// Where admission listens. Connections are taken from the moment on at which there is a certificate.
    pub listener: TcpListener,
    /// Who may ask admission; nothing for whoever reaches it.
    pub admission_clients: Option<TrustedClients>,
    /// Where the scheduler extender listens, if it is served.
    pub extender: Option<ExtenderPort>,
    /// The rest.
    pub settings: ServingSettings,
}

/// Where the scheduler extender is served, and to whom.
#[derive(Debug)]
pub struct ExtenderPort {
    /// Where it listens.
    pub listener: TcpListener,
    /// Who may ask it; nothing for whoever has the certificate that is made for the scheduler here.
    pub clients: Option<TrustedClients>,
}

/// Under which names it serves, and where its certificate is kept.
#[derive(Clone, Debug)]
pub struct ServingSettings {
    /// Names and addresses in the certificate: whoever asks under another one refuses the answer.
    pub names: Vec<String>,
    /// The namespace of the Secrets.
    pub namespace: String,
    /// The name of the Secret with the server's certificate.
    pub secret: String,
    /// The name of the Secret with the scheduler's certificate, where one is to be made.
    pub scheduler_secret: Option<String>,
    /// The name of both webhook configurations, which are told which authority to trust.
    pub webhooks: String,
    /// For how long certificates are good.
    pub lifetimes: CertificateLifetimes,
}

/// What is answered on which port.
#[derive(Debug)]
pub(crate) struct ServedRoutes {
    pub(crate) admission: Router,
    pub(crate) extender: Router,
}

impl Serving {
    /// Opens the address for admission. The certificate is for the names of the Service `service` in the namespace, for
    /// this machine's loopback, for the address itself where it is a certain one, and for `names`.
    pub fn open(address: SocketAddr, service: &str, namespace: &str, names: &[String]) -> io::Result<Self> {
        let listener = listen(address)?;
        let mut all: Vec<String> = ["", ".cluster.local"]
            .iter()
            .map(|domain| format!("{service}.{namespace}.svc{domain}"))
            .collect();
        all.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        all.extend(certain(address));
        all.extend(names.iter().cloned());
        let settings = ServingSettings {
            names: all,
            namespace: namespace.to_owned(),
            secret: format!("{service}-certificate"),
            scheduler_secret: None,
            webhooks: service.to_owned(),
            lifetimes: CertificateLifetimes::default(),
        };
        Ok(Self { listener, admission_clients: None, extender: None, settings })
    }

    /// Opens an address for the extender, too. It takes `clients`; without, the one with the certificate that is made for
    /// the scheduler, in the Secret `SERVICE-scheduler`.
    pub fn open_extender(&mut self, address: SocketAddr, clients: Option<TrustedClients>) -> io::Result<()> {
        let settings = &mut self.settings;
        settings.scheduler_secret = clients.is_none().then(|| format!("{}-scheduler", settings.webhooks));
        let certain = certain(address).filter(|address| !settings.names.contains(address));
        settings.names.extend(certain);
        self.extender = Some(ExtenderPort { listener: listen(address)?, clients });
        Ok(())
    }

    /// Serves until `stop` says true. `ready` becomes true when all ports are served.
    pub(crate) async fn run(
        self,
        client: &kube::Client,
        leading: watch::Receiver<bool>,
        routes: ServedRoutes,
        ready: watch::Sender<bool>,
        stop: watch::Receiver<bool>,
    ) {
        let mut ports = vec![Port {
            what: "admission",
            listener: self.listener,
            clients: self.admission_clients.map_or(Clients::Anybody, Clients::Trusted),
            limits: ADMISSION_CONNECTIONS,
            router: routes.admission,
        }];
        ports.extend(self.extender.map(|extender| Port {
            what: "the scheduler extender",
            listener: extender.listener,
            clients: extender.clients.map_or(Clients::OwnScheduler, Clients::Trusted),
            limits: EXTENDER_CONNECTIONS,
            router: routes.extender,
        }));
        let (rotation, credentials) = CertificateRotation::new(client, self.settings, leading);
        let mut keeping = JoinSet::new();
        keeping.spawn(rotation.run());
        let (mut serving, mut missing) = (JoinSet::new(), ports.len());
        let (begun, mut begins) = tokio::sync::mpsc::channel(ports.len());
        for port in ports {
            serving.spawn(port.serve(credentials.clone(), begun.clone(), stop.clone()));
        }
        loop {
            tokio::select! {
                Some(()) = begins.recv() => {
                    missing -= 1;
                    ready.send_if_modified(|ready| missing == 0 && !std::mem::replace(ready, true));
                }
                ended = serving.join_next() => if ended.is_none() { return },
            }
        }
    }
}

/// One port.
struct Port {
    what: &'static str,
    listener: TcpListener,
    clients: Clients,
    limits: ConnectionLimits,
    router: Router,
}

impl Port {
    /// Serves until `stop` says true; tells `begun` when it begins.
    async fn serve(
        self,
        credentials: watch::Receiver<Option<Credentials>>,
        begun: tokio::sync::mpsc::Sender<()>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut port_tls = PortTls::new(self.clients, credentials);
        let tls = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            tls = port_tls.first() => tls,
        };
        let Some(tls) = tls else { return };
        let mut keeping = JoinSet::new();
        keeping.spawn(port_tls.keep(tls.clone()));
        let address = self.listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
        info!(address, "serving {}", self.what);
        let served = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => {
                let _ = begun.send(()).await;
                serve_tls(listener, tls, self.limits, self.router, stop).await
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = served {
            warn!(%failure, "{} is served no more", self.what);
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The address as a name, if it is a certain one.
fn certain(address: SocketAddr) -> Option<String> {
    let ip: IpAddr = address.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then(|| ip.to_string())
}
