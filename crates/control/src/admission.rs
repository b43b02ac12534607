//! Admission: what the API server asks before it stores a pod, a pod template or a node.
//!
//! The decisions are `gpupool_core::sharing`'s; here objects are taken apart and put together. Nothing is remembered, and
//! what a namespace allows is the API server's own word, so every replica answers alike. What is not of an object's form
//! lets the object through: where sharing is concerned Kubernetes refuses it in its own words, and nobody else may be held
//! up. An object that is too large to be looked at is refused. What is looked at of an object is listed in
//! `partial_object`.

mod affinity;
mod nodes;
mod pod_template;
mod pods;
mod review;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use kube::core::admission::AdmissionResponse;
use serde_json::Value;
use tracing::{info, warn};

use crate::http_server::RequestBodies;
use crate::namespace_rules::{AllowedLimits, NamespaceRules, UnknownRules};
use pod_template::TemplateKind;
use pods::{Requester, Review};
use review::SentReview;

/// The largest review, in bytes: an object and how it was before, each as large as etcd takes by default (1.5 MiB), with
/// room for what the API server writes around them. What it takes from its own clients ends at 3 MiB.
const LARGEST_REVIEW: usize = 7 << 19;
/// The largest object in a review, in bytes of JSON. One that was let in has its place twice in the review of a change.
const LARGEST_OBJECT: usize = LARGEST_REVIEW / 2;

/// What the answers depend on beside the question.
#[derive(Clone)]
struct Context {
    /// What the names of gpupool's own service accounts begin with.
    own: Arc<str>,
    rules: NamespaceRules,
}

/// The routes of admission. `namespace` is gpupool's own: whose service accounts are gpupool itself. New pods are held to
/// `rules`.
pub fn router(namespace: &str, rules: NamespaceRules) -> Router {
    let context = Context { own: format!("system:serviceaccount:{namespace}:").into(), rules };
    let router = Router::new()
        .route("/mutate/pods", post(mutate_pods))
        .route("/mutate/exclusive", post(mutate_exclusive))
        .route("/validate/pods", post(validate_pods))
        .route("/mutate/nodes", post(mutate_nodes))
        .with_state(context);
    RequestBodies::up_to(LARGEST_REVIEW).read_for(router)
}

async fn mutate_pods(review: Bytes) -> Response {
    answer(&review, |request, response| match Review::of(request).share() {
        Ok(after) => changed(response, request.object, &after),
        Err(refusal) => refused(response, request, &refusal.to_string()),
    })
}

async fn mutate_exclusive(review: Bytes) -> Response {
    answer(&review, |request, response| changed(response, request.object, &Review::of(request).keep_off()))
}

async fn validate_pods(State(context): State<Context>, review: Bytes) -> Response {
    let request = match SentReview::read(&review) {
        Ok(request) => request,
        Err(failure) => return unreadable(&failure),
    };
    // Of a pod that exists the limits stand, and of a template its pods are asked about.
    let allowed = match request.new_pods_namespace() {
        Some(namespace) => Some(context.rules.of(namespace).await),
        None => None,
    };
    let by = Requester {
        user: request.user(),
        groups: request.groups(),
        is_gpupool: request.user().starts_with(&*context.own),
    };
    answer_to(&request, |reviewed, response| match verdict(Review::of(reviewed), by, allowed) {
        Ok(()) => response,
        Err(sentence) => refused(response, reviewed, &sentence),
    })
}

/// Whether an object may be stored; `allowed`: what the namespace of a new pod allows.
fn verdict(
    review: Review<'_>,
    by: Requester<'_>,
    allowed: Option<Result<AllowedLimits, UnknownRules>>,
) -> Result<(), String> {
    review.validate(by).map_err(|refusal| refusal.to_string())?;
    let Some(allowed) = allowed else { return Ok(()) };
    let allowed = allowed.map_err(|unknown| unknown.to_string())?;
    review.check_limits(&allowed).map_err(|refusal| refusal.to_string())
}

async fn mutate_nodes(review: Bytes) -> Response {
    answer(&review, |request, response| {
        changed(response, request.object, &nodes::reserve(request.object, request.old))
    })
}

/// What of a review matters.
struct ReviewedObject<'a> {
    kind: Option<TemplateKind>,
    user: &'a str,
    object: &'a Value,
    old: Option<&'a Value>,
    /// What it is about, for the log.
    what: String,
}

impl<'a> Review<'a> {
    fn of(reviewed: &ReviewedObject<'a>) -> Self {
        // Of an unknown kind nothing is found, and so nothing is changed.
        let kind = reviewed.kind.unwrap_or_default();
        Review { kind, object: reviewed.object, old: reviewed.old }
    }
}

fn answer(
    review: &[u8],
    reply: impl FnOnce(&ReviewedObject<'_>, AdmissionResponse) -> AdmissionResponse,
) -> Response {
    match SentReview::read(review) {
        Ok(request) => answer_to(&request, reply),
        Err(failure) => unreadable(&failure),
    }
}

fn unreadable(failure: &serde_json::Error) -> Response {
    (StatusCode::BAD_REQUEST, failure.to_string()).into_response()
}

fn answer_to(
    request: &SentReview<'_>,
    reply: impl FnOnce(&ReviewedObject<'_>, AdmissionResponse) -> AdmissionResponse,
) -> Response {
    let response = request.let_through();
    let what = request.what();
    let objects = match request.objects() {
        Ok(objects) => objects,
        Err(failure) => {
            info!(object = what, user = request.user(), "refused: {failure}");
            return Json(response.deny(failure).into_review()).into_response();
        }
    };
    let (Some(object), old) = (&objects.object, objects.old.as_ref()) else {
        return Json(response.into_review()).into_response();
    };
    let kind = TemplateKind::of(request.kind());
    let reviewed = ReviewedObject { kind, user: request.user(), object, old, what };
    Json(reply(&reviewed, response).into_review()).into_response()
}

/// The answer that turns the object into another.
fn changed(response: AdmissionResponse, before: &Value, after: &Value) -> AdmissionResponse {
    if before == after {
        return response;
    }
    let through = response.clone();
    response.with_patch(json_patch::diff(before, after)).unwrap_or_else(|failure| {
        warn!(%failure, "cannot write a patch; the object goes through as it is");
        through
    })
}

fn refused(response: AdmissionResponse, reviewed: &ReviewedObject<'_>, sentence: &str) -> AdmissionResponse {
    info!(object = reviewed.what, user = reviewed.user, "refused: {sentence}");
    response.deny(sentence)
}
