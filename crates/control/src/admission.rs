//! Admission: what the API server asks before it stores a pod, a pod template or a node.
//!
//! The decisions are `gpupool_core::sharing`'s; here objects are taken apart and put together. Nothing is remembered, and
//! the API server alone is asked what a namespace allows, so every replica answers alike. A review that cannot be understood lets the object through:
//! where sharing is concerned Kubernetes refuses it in its own words, and nobody else may be held up.

mod affinity;
mod nodes;
mod pod_template;
mod pods;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Json, State};
use axum::routing::post;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use serde_json::Value;
use tracing::{info, warn};

use pod_template::TemplateKind;
use pods::{Requester, Review};

use crate::namespace_rules::{self, NamespaceRules};

type ReviewRequest = Json<AdmissionReview<DynamicObject>>;
type ReviewResponse = Json<AdmissionReview<DynamicObject>>;

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
    Router::new()
        .route("/mutate/pods", post(mutate_pods))
        .route("/mutate/exclusive", post(mutate_exclusive))
        .route("/validate/pods", post(validate_pods))
        .route("/mutate/nodes", post(mutate_nodes))
        .with_state(context)
}

async fn mutate_pods(Json(review): ReviewRequest) -> ReviewResponse {
    answer(review, |request, response| match Review::of(request).share() {
        Ok(after) => changed(response, request.object, &after),
        Err(refusal) => refused(response, request, &refusal.to_string()),
    })
}

async fn mutate_exclusive(Json(review): ReviewRequest) -> ReviewResponse {
    answer(review, |request, response| changed(response, request.object, &Review::of(request).keep_off()))
}

async fn validate_pods(State(context): State<Context>, Json(review): ReviewRequest) -> ReviewResponse {
    let allowed = context.allowed(review.request.as_ref()).await;
    answer(review, |request, response| {
        let by = Requester {
            user: request.user,
            groups: request.groups,
            is_gpupool: request.user.starts_with(&*context.own),
        };
        let review = Review::of(request);
        let verdict = review.validate(by).map_err(|refusal| refusal.to_string());
        let verdict = verdict.and_then(|()| match &allowed {
            None => Ok(()),
            Some(Ok(rules)) => {
                review.check_limits(request.namespace, rules).map_err(|refusal| refusal.to_string())
            }
            Some(Err(unknown)) => Err(unknown.to_string()),
        });
        match verdict {
            Ok(()) => response,
            Err(sentence) => refused(response, request, &sentence),
        }
    })
}

impl Context {
    /// What a new pod's namespace allows; nothing where no new pod is asked about: limits of pods that exist stand.
    async fn allowed(
        &self,
        request: Option<&AdmissionRequest<DynamicObject>>,
    ) -> Option<Result<gpupool_core::sharing::NamespaceRules, namespace_rules::UnknownRules>> {
        let request = request.filter(|request| request.operation == Operation::Create)?;
        let is_pod = TemplateKind::of(&request.kind.kind)?.is_pod;
        let namespace = request.namespace.as_deref().filter(|_| is_pod)?;
        Some(self.rules.of(namespace).await)
    }
}

async fn mutate_nodes(Json(review): ReviewRequest) -> ReviewResponse {
    answer(review, |request, response| {
        changed(response, request.object, &nodes::reserve(request.object, request.old))
    })
}

/// What of a review matters.
struct ReviewedObject<'a> {
    kind: Option<TemplateKind>,
    user: &'a str,
    groups: &'a [String],
    namespace: &'a str,
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
    review: AdmissionReview<DynamicObject>,
    reply: impl FnOnce(&ReviewedObject<'_>, AdmissionResponse) -> AdmissionResponse,
) -> ReviewResponse {
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(failure) => return Json(AdmissionResponse::invalid(failure).into_review()),
    };
    let response = AdmissionResponse::from(&request);
    let json =
        |object: &Option<DynamicObject>| object.as_ref().and_then(|one| serde_json::to_value(one).ok());
    let (Some(object), old) = (json(&request.object), json(&request.old_object)) else {
        return Json(response.into_review());
    };
    let (namespace, name) = (request.namespace.as_deref().unwrap_or_default(), &request.name);
    let reviewed = ReviewedObject {
        kind: TemplateKind::of(&request.kind.kind),
        user: request.user_info.username.as_deref().unwrap_or_default(),
        groups: request.user_info.groups.as_deref().unwrap_or_default(),
        namespace,
        object: &object,
        old: old.as_ref(),
        what: format!("{} {namespace}/{name}", request.kind.kind),
    };
    Json(reply(&reviewed, response).into_review())
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
