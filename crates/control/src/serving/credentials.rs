//! The certificate by which the API server and the scheduler know this server, and the authority that signed it.
//!
//! They live in one Secret, which all replicas share. Signed is a new certificate when a third of the old one's life is
//! left; a new authority is trusted beside the old one, so that whoever knows only one of them goes on.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::certificate_secret::{
    self, AUTHORITIES, CERTIFICATE, KEY, NAMES, RENEW_CERTIFICATE, annotation, text,
};

/// The key of the Secret with the key of the newest authority.
const AUTHORITY_KEY: &str = "ca.key";
/// Annotation: when the authority is to be replaced.
const RENEW_AUTHORITY: &str = "gpupool.io/renew-authority";
/// Certificates are good from this long before they were made: clocks differ.
const EARLIER: Duration = Duration::from_hours(24);

/// For how long certificates are good.
#[derive(Clone, Copy, Debug)]
pub struct CertificateLifetimes {
    /// The authority's: long, as it may be in files that people write (a scheduler's configuration).
    pub authority: Duration,
    /// The server's.
    pub certificate: Duration,
    /// The scheduler's, which people may have copied to where it runs.
    pub client: Duration,
}

impl Default for CertificateLifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self { authority: 3650 * DAY, certificate: 90 * DAY, client: 365 * DAY }
    }
}

/// What is in the Secret. All of it is PEM.
#[derive(Clone, PartialEq)]
pub(crate) struct Credentials {
    /// Certificates of the authorities to be trusted, the newest first.
    pub(crate) authorities: String,
    authority_key: String,
    /// The server's certificate.
    pub(crate) certificate: String,
    /// Its key.
    pub(crate) key: String,
    names: Vec<String>,
    renew_certificate: Timestamp,
    renew_authority: Timestamp,
}

/// Keys are not for logs.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (names, renew) = (&self.names, self.renew_certificate);
        f.debug_struct("Credentials").field("names", names).field("renew", &renew).finish_non_exhaustive()
    }
}

impl Credentials {
    /// What should be in the Secret now: what is there, as long as that is good; else new credentials. `there` is nothing
    /// where there is no Secret or none that can be used.
    pub(crate) fn due(
        there: Option<&Self>,
        names: &[String],
        lifetimes: CertificateLifetimes,
        now: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let Some(there) = there.filter(|there| now < there.renew_authority) else {
            let trusted = there.map_or("", |there| newest(&there.authorities));
            return Self::with_new_authority(trusted, names, lifetimes, now);
        };
        if now < there.renew_certificate && there.names == names {
            return Ok(there.clone());
        }
        // A key that cannot be read is as good as none; who knows its authority goes on for now.
        KeyPair::from_pem(&there.authority_key).map_or_else(
            |_| Self::with_new_authority(newest(&there.authorities), names, lifetimes, now),
            |key| there.signed(&Issuer::new(authority(lifetimes, now), key), names, lifetimes, now),
        )
    }

    /// When the next of the two is to be renewed.
    pub(crate) fn renew(&self) -> Timestamp {
        self.renew_certificate.min(self.renew_authority)
    }

    fn with_new_authority(
        trusted: &str,
        names: &[String],
        lifetimes: CertificateLifetimes,
        now: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let (params, key) = (authority(lifetimes, now), KeyPair::generate()?);
        let new = Self {
            authorities: params.self_signed(&key)?.pem() + trusted,
            authority_key: key.serialize_pem(),
            certificate: String::new(),
            key: String::new(),
            names: Vec::new(),
            renew_certificate: now,
            renew_authority: renewal(now, lifetimes.authority),
        };
        new.signed(&Issuer::new(params, key), names, lifetimes, now)
    }

    fn signed(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        names: &[String],
        lifetimes: CertificateLifetimes,
        now: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let params = certificate("gpupool-control", names, usage, lifetimes.certificate, now)?;
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: params.signed_by(&key, issuer)?.pem(),
            key: key.serialize_pem(),
            names: names.to_vec(),
            renew_certificate: renewal(now, lifetimes.certificate),
            ..self.clone()
        })
    }

    /// A certificate of the newest authority for a client of this name, and its key.
    pub(super) fn client(
        &self,
        name: &str,
        lifetimes: CertificateLifetimes,
        now: Timestamp,
    ) -> Result<(String, String), rcgen::Error> {
        let authority_key = KeyPair::from_pem(&self.authority_key)?;
        let issuer = Issuer::new(authority(lifetimes, now), authority_key);
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let params = certificate(name, &[name.to_owned()], usage, lifetimes.client, now)?;
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    }

    /// Reads the Secret; nothing if it is not as [`Credentials::secret`] makes it.
    pub(crate) fn read(secret: &Secret) -> Option<Self> {
        Some(Self {
            authorities: text(secret, AUTHORITIES)?,
            authority_key: text(secret, AUTHORITY_KEY)?,
            certificate: text(secret, CERTIFICATE)?,
            key: text(secret, KEY)?,
            names: annotation(secret, NAMES)?.split(',').map(str::to_owned).collect(),
            renew_certificate: annotation(secret, RENEW_CERTIFICATE)?.parse().ok()?,
            renew_authority: annotation(secret, RENEW_AUTHORITY)?.parse().ok()?,
        })
    }

    /// The Secret, under the name and in place of `before`, which must not have changed in between.
    pub(crate) fn secret(&self, name: &str, before: Option<&Secret>) -> Secret {
        let texts = [
            (AUTHORITIES, &*self.authorities),
            (AUTHORITY_KEY, &self.authority_key),
            (CERTIFICATE, &self.certificate),
            (KEY, &self.key),
        ];
        let annotations = [
            (NAMES, self.names.join(",")),
            (RENEW_CERTIFICATE, self.renew_certificate.to_string()),
            (RENEW_AUTHORITY, self.renew_authority.to_string()),
        ];
        certificate_secret::secret(name, before, &texts, annotations)
    }
}

/// What a certificate for these names says.
fn certificate(
    name: &str,
    names: &[String],
    usage: ExtendedKeyUsagePurpose,
    life: Duration,
    now: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let (from, until) = validity(now, life);
    (params.not_before, params.not_after) = (from.into(), until.into());
    Ok(params)
}

fn authority(lifetimes: CertificateLifetimes, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "gpupool-control authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let (from, until) = validity(now, lifetimes.authority);
    (params.not_before, params.not_after) = (from.into(), until.into());
    params
}

fn validity(now: Timestamp, life: Duration) -> (SystemTime, SystemTime) {
    let now = SystemTime::from(now);
    (now - EARLIER, now + life)
}

/// When a third of a life is left.
pub(super) fn renewal(now: Timestamp, life: Duration) -> Timestamp {
    let two_thirds = SignedDuration::try_from(life / 3 * 2).unwrap_or(SignedDuration::MAX);
    now.saturating_add(two_thirds).unwrap_or(Timestamp::MAX)
}

/// Each of several certificates in PEM.
pub(super) fn authorities(certificates: &str) -> impl Iterator<Item = &str> {
    certificates.split_inclusive("-----END CERTIFICATE-----\n")
}

/// The first certificate of several in PEM.
fn newest(certificates: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    certificates.find(END).map_or(certificates, |at| &certificates[..at + END.len()])
}
