//! One request to the API server.

use std::time::Duration;

use tokio::time::timeout;

/// The field manager under which this process writes: the API server records it with every field.
pub const FIELD_MANAGER: &str = "gpupool-control";

/// Longer than any answer should take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Bounds a request; one that is not answered in time counts as a failed connection.
pub(crate) async fn bounded<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    bounded_by(REQUEST_TIMEOUT, request).await
}

/// The same with a bound of the caller's own.
pub(crate) async fn bounded_by<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    timeout(limit, request).await.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
}
