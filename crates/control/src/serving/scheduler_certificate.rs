//! The certificate by which this server knows the scheduler.
//!
//! It lies in a Secret of its own, with the authorities by which the scheduler knows this server: all that the scheduler's
//! configuration asks for, and nothing by which certificates are signed. A new one is made when a third of the old one's
//! life is left, and with a new authority; the old one stays good for as long as it says.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;

use super::certificate_secret::{
    self, AUTHORITIES, CERTIFICATE, KEY, NAMES, RENEW_CERTIFICATE, annotation, text,
};
use super::credentials::{self, CertificateLifetimes, Credentials, renewal};

/// The name that the scheduler's certificate is for.
pub const SCHEDULER_NAME: &str = "gpupool-scheduler";

/// What is in the Secret. All of it is PEM.
#[derive(Clone, PartialEq)]
pub(super) struct SchedulerCertificate {
    authorities: String,
    certificate: String,
    key: String,
    name: String,
    renew: Timestamp,
}

impl SchedulerCertificate {
    /// What should be in the Secret now: what is there, as long as that is good; else a new certificate.
    pub(super) fn due(
        there: Option<&Self>,
        credentials: &Credentials,
        lifetimes: CertificateLifetimes,
        now: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let good = |there: &&Self| {
            now < there.renew && there.name == SCHEDULER_NAME && there.authorities == credentials.authorities
        };
        if let Some(there) = there.filter(good) {
            return Ok(there.clone());
        }
        let (certificate, key) = credentials.client(SCHEDULER_NAME, lifetimes, now)?;
        Ok(Self {
            authorities: credentials.authorities.clone(),
            certificate,
            key,
            name: SCHEDULER_NAME.to_owned(),
            renew: renewal(now, lifetimes.client),
        })
    }

    /// Whether somebody who knows the authorities of one of them knows one of the other's.
    pub(super) fn shares_an_authority_with(&self, other: &Self) -> bool {
        credentials::authorities(&self.authorities)
            .any(|one| credentials::authorities(&other.authorities).any(|two| one == two))
    }

    /// When it is to be renewed.
    pub(super) fn renew(&self) -> Timestamp {
        self.renew
    }

    /// Reads the Secret; nothing if it is not as [`SchedulerCertificate::secret`] makes it.
    pub(super) fn read(secret: &Secret) -> Option<Self> {
        Some(Self {
            authorities: text(secret, AUTHORITIES)?,
            certificate: text(secret, CERTIFICATE)?,
            key: text(secret, KEY)?,
            name: annotation(secret, NAMES)?.to_owned(),
            renew: annotation(secret, RENEW_CERTIFICATE)?.parse().ok()?,
        })
    }

    /// The Secret, under the name and in place of `before`, which must not have changed in between.
    pub(super) fn secret(&self, name: &str, before: Option<&Secret>) -> Secret {
        let texts = [(AUTHORITIES, &*self.authorities), (CERTIFICATE, &self.certificate), (KEY, &self.key)];
        let annotations = [(NAMES, self.name.clone()), (RENEW_CERTIFICATE, self.renew.to_string())];
        certificate_secret::secret(name, before, &texts, annotations)
    }
}
