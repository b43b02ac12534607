//! The certificate by which the API server and the scheduler know this server, and the authority that signed it.
//!
//! They live in one Secret, which all replicas share. Signed is a new certificate when a third of the old one's life is
//! left; a new authority is trusted beside the old one, so that whoever knows only one of them goes on. When that is due
//! is kept in the Secret's annotations: no certificate is ever parsed.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The key of a `kubernetes.io/tls` Secret that holds the authorities' certificates.
const AUTHORITIES: &str = "ca.crt";
/// The same, with the key of the newest authority.
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Annotation: when the certificate is to be replaced.
const RENEW_CERTIFICATE: &str = "gpupool.io/renew-certificate";
/// Annotation: when the authority is to be replaced.
const RENEW_AUTHORITY: &str = "gpupool.io/renew-authority";
/// Annotation: the names that the certificate is for.
const NAMES: &str = "gpupool.io/certificate-names";
/// Certificates are good from this long before they were made: clocks differ.
const EARLIER: Duration = Duration::from_hours(24);

/// For how long certificates are good.
#[derive(Clone, Copy, Debug)]
pub struct CertificateLifetimes {
    /// The authority's: long, as it may be in files that people write (a scheduler's configuration).
    pub authority: Duration,
    /// The server's.
    pub certificate: Duration,
}

impl Default for CertificateLifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self { authority: 3650 * DAY, certificate: 90 * DAY }
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
        // A key that cannot be read is as good as none.
        KeyPair::from_pem(&there.authority_key).map_or_else(
            |_| Self::with_new_authority("", names, lifetimes, now),
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
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "gpupool-control");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let (from, until) = validity(now, lifetimes.certificate);
        (params.not_before, params.not_after) = (from.into(), until.into());
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: params.signed_by(&key, issuer)?.pem(),
            key: key.serialize_pem(),
            names: names.to_vec(),
            renew_certificate: renewal(now, lifetimes.certificate),
            ..self.clone()
        })
    }

    /// Reads the Secret; nothing if it is not as [`Credentials::secret`] makes it.
    pub(crate) fn read(secret: &Secret) -> Option<Self> {
        let data = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        let annotation = |name: &str| secret.metadata.annotations.as_ref()?.get(name);
        Some(Self {
            authorities: data(AUTHORITIES)?,
            authority_key: data(AUTHORITY_KEY)?,
            certificate: data(CERTIFICATE)?,
            key: data(KEY)?,
            names: annotation(NAMES)?.split(',').map(str::to_owned).collect(),
            renew_certificate: annotation(RENEW_CERTIFICATE)?.parse().ok()?,
            renew_authority: annotation(RENEW_AUTHORITY)?.parse().ok()?,
        })
    }

    /// The Secret, under the name and in place of `before`, which must not have changed in between.
    pub(crate) fn secret(&self, name: &str, before: Option<&Secret>) -> Secret {
        let text = |key: &str, text: &str| (key.to_owned(), ByteString(text.as_bytes().to_vec()));
        let annotation = |name: &str, text: String| (name.to_owned(), text);
        let mut metadata = before.map_or_else(
            || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            |before| before.metadata.clone(),
        );
        metadata.managed_fields = None;
        metadata.annotations.get_or_insert_default().extend([
            annotation(NAMES, self.names.join(",")),
            annotation(RENEW_CERTIFICATE, self.renew_certificate.to_string()),
            annotation(RENEW_AUTHORITY, self.renew_authority.to_string()),
        ]);
        let type_ =
            before.map_or_else(|| Some("kubernetes.io/tls".to_owned()), |before| before.type_.clone());
        Secret {
            metadata,
            type_,
            data: Some(BTreeMap::from([
                text(AUTHORITIES, &self.authorities),
                text(AUTHORITY_KEY, &self.authority_key),
                text(CERTIFICATE, &self.certificate),
                text(KEY, &self.key),
            ])),
            ..Secret::default()
        }
    }
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
fn renewal(now: Timestamp, life: Duration) -> Timestamp {
    let two_thirds = SignedDuration::try_from(life / 3 * 2).unwrap_or(SignedDuration::MAX);
    now.saturating_add(two_thirds).unwrap_or(Timestamp::MAX)
}

/// The first certificate of several in PEM.
fn newest(certificates: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    certificates.find(END).map_or(certificates, |at| &certificates[..at + END.len()])
}
