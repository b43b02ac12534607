//! Whose connections a port takes: anybody's, or those with a certificate of an authority, for a name.
//!
//! A stranger is turned away in the handshake, before anything that it asks is read.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::tls::TlsError;

/// Clients that somebody else's authority vouches for.
#[derive(Clone, Debug)]
pub struct TrustedClients {
    /// A PEM file with the authorities' certificates. It is read again when it changes.
    pub authorities: PathBuf,
    /// The DNS name that a client's certificate must be for; nothing where any of the authority's will do.
    pub name: Option<String>,
}

/// Whom a port takes.
#[derive(Clone, Debug)]
pub(super) enum Clients {
    /// Whoever reaches it.
    Anybody,
    /// The scheduler, by the certificate that was made for it here.
    OwnScheduler,
    /// These.
    Trusted(TrustedClients),
}

/// Asks every client for a certificate of these authorities (PEM), for the name if there is one.
pub(super) fn verifier(
    authorities: &[u8],
    name: Option<&str>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate?)?;
    }
    let signed = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
    let Some(name) = name else { return Ok(signed) };
    let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
    Ok(Arc::new(NamedClient { signed, name }))
}

/// Takes a certificate that another verifier takes, if it is for the name.
#[derive(Debug)]
struct NamedClient {
    signed: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(certificate, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
