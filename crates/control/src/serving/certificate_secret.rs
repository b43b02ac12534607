//! The form in which certificates are kept: a `kubernetes.io/tls` Secret with the authorities beside them, and
//! annotations that say when to renew what. No certificate is ever parsed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

/// The key that holds the authorities' certificates.
pub(super) const AUTHORITIES: &str = "ca.crt";
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";
/// Annotation: when the certificate is to be replaced.
pub(super) const RENEW_CERTIFICATE: &str = "gpupool.io/renew-certificate";
/// Annotation: the names that the certificate is for.
pub(super) const NAMES: &str = "gpupool.io/certificate-names";

/// A text in a Secret.
pub(super) fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// A Secret's annotation.
pub(super) fn annotation<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The Secret, under the name and in place of `before`, which must not have changed in between.
pub(super) fn secret(
    name: &str,
    before: Option<&Secret>,
    texts: &[(&str, &str)],
    annotations: impl IntoIterator<Item = (&'static str, String)>,
) -> Secret {
    let mut metadata = before.map_or_else(
        || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        |before| before.metadata.clone(),
    );
    metadata.managed_fields = None;
    let annotations = annotations.into_iter().map(|(name, text)| (name.to_owned(), text));
    metadata.annotations.get_or_insert_default().extend(annotations);
    let type_ = before.map_or_else(|| Some("kubernetes.io/tls".to_owned()), |before| before.type_.clone());
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data: BTreeMap<String, ByteString> =
        texts.iter().map(|(key, text)| ((*key).to_owned(), bytes(text))).collect();
    Secret { metadata, type_, data: Some(data), ..Secret::default() }
}
