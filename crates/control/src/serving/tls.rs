//! What a port's connections are encrypted with, kept up to date while it serves.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::clients::{Clients, verifier};
use super::credentials::Credentials;
use super::scheduler_certificate::SCHEDULER_NAME;

/// Between two looks at a file with authorities.
const LOOK: Duration = Duration::from_secs(30);

/// Why a port cannot be served with what is there.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("what should be PEM is not: {0}")]
    Pem(#[from] pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("clients cannot be checked: {0}")]
    Verifier(#[from] VerifierBuilderError),
    #[error("{0} is no DNS name; name the client as its certificate does")]
    Name(String),
    #[error("cannot read the clients' authorities in {path}: {source}")]
    Authorities { path: PathBuf, source: io::Error },
}

/// A port's configuration, and what it was made of.
pub(super) struct PortTls {
    clients: Clients,
    credentials: watch::Receiver<Option<Credentials>>,
    made_of: Option<Ingredients>,
}

/// What a configuration is made of: the server's credentials, and the PEM of the clients' authorities.
#[derive(PartialEq)]
struct Ingredients {
    credentials: Credentials,
    authorities: Vec<u8>,
}

impl PortTls {
    pub(super) fn new(clients: Clients, credentials: watch::Receiver<Option<Credentials>>) -> Self {
        Self { clients, credentials, made_of: None }
    }

    /// Waits for what can be served with; nothing if that will not come.
    pub(super) async fn first(&mut self) -> Option<RustlsConfig> {
        loop {
            match self.changed() {
                Ok(Some(configuration)) => return Some(RustlsConfig::from_config(configuration)),
                Ok(None) => {}
                Err(failure) => warn!(%failure, "cannot serve"),
            }
            self.news().await?;
        }
    }

    /// Puts what has changed in force. Connections that are open keep what they began with.
    pub(super) async fn keep(mut self, tls: RustlsConfig) {
        while self.news().await.is_some() {
            match self.changed() {
                Ok(Some(configuration)) => {
                    tls.reload_from_config(configuration);
                    info!("serving with new certificates");
                }
                Ok(None) => {}
                Err(failure) => warn!(%failure, "cannot serve with new certificates; the old ones stay"),
            }
        }
    }

    /// Something may have changed; nothing when no more credentials will come.
    async fn news(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.credentials.changed() => changed.ok(),
            () = sleep(LOOK) => Some(()),
        }
    }

    /// The configuration as it should be, if that is another one than before.
    fn changed(&mut self) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        let Some(credentials) = self.credentials.borrow_and_update().clone() else { return Ok(None) };
        let authorities = match &self.clients {
            Clients::Anybody => Vec::new(),
            Clients::OwnScheduler => credentials.authorities.clone().into_bytes(),
            Clients::Trusted(trusted) => fs::read(&trusted.authorities)
                .map_err(|source| TlsError::Authorities { path: trusted.authorities.clone(), source })?,
        };
        let now = Ingredients { credentials, authorities };
        if self.made_of.as_ref() == Some(&now) {
            return Ok(None);
        }
        let configuration = self.configuration(&now)?;
        self.made_of = Some(now);
        Ok(Some(configuration))
    }

    fn configuration(&self, of: &Ingredients) -> Result<Arc<ServerConfig>, TlsError> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(of.credentials.certificate.as_bytes())
                .collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(of.credentials.key.as_bytes())?;
        let clients = match &self.clients {
            Clients::Anybody => WebPkiClientVerifier::no_client_auth(),
            Clients::OwnScheduler => verifier(&of.authorities, Some(SCHEDULER_NAME))?,
            Clients::Trusted(trusted) => verifier(&of.authorities, trusted.name.as_deref())?,
        };
        let mut configuration =
            ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key)?;
        // Nothing else is served.
        configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(configuration))
    }
}
