//! Admission: what the API server asks before it stores a pod, a pod template or a node.

use axum::Router;

/// The routes of admission.
pub(crate) fn router() -> Router {
    Router::new()
}
