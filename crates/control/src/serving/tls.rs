//! What a port's connections are encrypted with, and whom it asks for a certificate.

use std::sync::Arc;

use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tracing::{info, warn};

use super::credentials::Credentials;

/// Why a port cannot be served with what is there.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error("the Secret holds no usable PEM: {0}")]
    Pem(#[from] pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

fn configuration(credentials: &Credentials) -> Result<Arc<ServerConfig>, TlsError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(credentials.certificate.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes())?;
    let mut configuration = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    // Nothing else is served.
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(configuration))
}

/// Waits for credentials that can be used; nothing if none will come.
pub(super) async fn first(credentials: &mut watch::Receiver<Option<Credentials>>) -> Option<RustlsConfig> {
    loop {
        credentials.changed().await.ok()?;
        let Some(now) = credentials.borrow_and_update().clone() else { continue };
        match configuration(&now) {
            Ok(tls) => return Some(RustlsConfig::from_config(tls)),
            Err(failure) => warn!(%failure, "cannot serve with the certificate in the Secret"),
        }
    }
}

/// Connections that are open keep the certificate that they began with.
pub(super) async fn reload(mut credentials: watch::Receiver<Option<Credentials>>, tls: RustlsConfig) {
    while credentials.changed().await.is_ok() {
        let Some(now) = credentials.borrow_and_update().clone() else { continue };
        match configuration(&now) {
            Ok(now) => {
                tls.reload_from_config(now);
                info!("serving with a new certificate");
            }
            Err(failure) => warn!(%failure, "cannot serve with the new certificate; the old one stays"),
        }
    }
}
