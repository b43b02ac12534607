//! The scheduler's extender: which nodes a pod with GPUs may go to, and the card of a `static` pod.
//!
//! The scheduler asks over HTTP (its v1 extender protocol, `wire`) about pods that ask for a managed resource; the
//! answers are `gpupool_core::placement`'s, from nodes and pods as `follow` sees them and from the picks made here.
//! Only the leader answers `filter` and `bind`: two processes that pick cards at once could pick the same room. What is
//! asked changes nothing but what was offered for which pod (`offers`); a pick is made and freed by `bind` alone, which
//! has read the pod. Nothing is decided here.

mod bind;
mod demand;
mod follow;
mod node_taints;
mod offers;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use gpupool_core::placement::Cluster;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::http_server::RequestBodies;
use offers::Offers;
use wire::{BindArguments, BindResult, ExtenderArguments, FilterResult, HostPriority};

/// The largest question, in bytes: a pod as large as etcd takes by default (1.5 MiB), and the longest names (253) of
/// 10,000 nodes, twice what Kubernetes is made for. Whole nodes instead of names do not fit, but of few.
const LARGEST_QUESTION: usize = 4 << 20;

/// What one process knows and serves. Clones are the same one.
#[derive(Clone)]
pub struct Extender {
    shared: Arc<Shared>,
}

struct Shared {
    client: kube::Client,
    cluster: Mutex<Cluster>,
    offers: Mutex<Offers>,
    nodes_known: AtomicBool,
    pods_known: AtomicBool,
    leading: watch::Receiver<bool>,
}

impl std::fmt::Debug for Extender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extender").field("ready", &self.ready()).finish_non_exhaustive()
    }
}

impl Extender {
    /// An extender that knows nothing yet; `leading` says whether this process leads.
    pub fn new(client: kube::Client, leading: watch::Receiver<bool>) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                cluster: Mutex::default(),
                offers: Mutex::default(),
                nodes_known: AtomicBool::new(false),
                pods_known: AtomicBool::new(false),
                leading,
            }),
        }
    }

    /// Follows nodes and pods for as long as it is polled.
    pub async fn follow(self) {
        follow::follow(self).await;
    }

    /// Whether all nodes and pods have been seen once.
    pub fn ready(&self) -> bool {
        self.shared.nodes_known.load(Ordering::Acquire) && self.shared.pods_known.load(Ordering::Acquire)
    }

    /// `filter`, `prioritize` and `bind` below the path where the router is nested.
    pub fn router(&self) -> Router {
        let router = Router::new()
            .route("/filter", post(filter))
            .route("/prioritize", post(prioritize))
            .route("/bind", post(bind_pod))
            .with_state(self.clone());
        RequestBodies::up_to(LARGEST_QUESTION).read_for(router)
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        // Nothing in here can be left half done by a panic: every change is one call.
        self.shared.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offers(&self) -> MutexGuard<'_, Offers> {
        self.shared.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing can be answered at this moment.
    fn unable(&self) -> Option<&'static str> {
        if !*self.shared.leading.borrow() {
            return Some("this gpupool process does not lead; another one answers");
        }
        if !self.ready() {
            return Some("gpupool has not seen all nodes and pods yet");
        }
        None
    }
}

async fn filter(State(extender): State<Extender>, body: Bytes) -> Response {
    let arguments = match ExtenderArguments::read(&body) {
        Ok(arguments) => arguments,
        Err(failure) => return (StatusCode::BAD_REQUEST, failure.to_string()).into_response(),
    };
    let result = match extender.unable() {
        Some(sentence) => FilterResult::error(sentence.to_owned()),
        None => extender.filter(&arguments),
    };
    json(&result)
}

async fn prioritize(State(extender): State<Extender>, body: Bytes) -> Response {
    let arguments = match ExtenderArguments::read(&body) {
        Ok(arguments) => arguments,
        Err(failure) => return (StatusCode::BAD_REQUEST, failure.to_string()).into_response(),
    };
    json(&extender.prioritize(&arguments))
}

async fn bind_pod(State(extender): State<Extender>, body: Bytes) -> Response {
    let arguments = match BindArguments::read(&body) {
        Ok(arguments) => arguments,
        Err(failure) => return (StatusCode::BAD_REQUEST, failure.to_string()).into_response(),
    };
    // An answer without an error means "bound" to the scheduler, which then never looks at the pod again.
    let error = match extender.unable() {
        Some(sentence) => sentence.to_owned(),
        None => match bind::bind(&extender, &arguments).await {
            Ok(()) => String::new(),
            Err(failure) => failure.to_string(),
        },
    };
    json(&BindResult { error: without_percent(error) })
}

impl Extender {
    fn filter(&self, arguments: &ExtenderArguments<'_>) -> FilterResult {
        let demand = match demand::of_json(&arguments.pod) {
            Ok(demand) => demand,
            Err(refusal) => return FilterResult::error(without_percent(refusal.to_string())),
        };
        let Some(names) = &arguments.node_names else {
            return FilterResult::error(
                "the scheduler sends whole nodes: set nodeCacheCapable to true for this extender".to_owned(),
            );
        };
        let uid = arguments.pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let result = self.cluster().without_pick(uid, |cluster| {
            let mut result = FilterResult::default();
            for name in names {
                match cluster.fits(demand, name) {
                    Ok(()) => result.node_names.push(name.clone().into_owned()),
                    Err(unfit) if unfit.may_be_resolved_by_room() => {
                        result.failed_nodes.insert(name.clone().into_owned(), unfit.to_string());
                    }
                    Err(unfit) => {
                        result.unresolvable.insert(name.clone().into_owned(), unfit.to_string());
                    }
                }
            }
            result
        });
        self.offers().offer(uid, &result.node_names);
        result
    }

    fn prioritize(&self, arguments: &ExtenderArguments<'_>) -> Vec<HostPriority> {
        let names = arguments.node_names.as_deref().unwrap_or_default();
        let demand = demand::of_json(&arguments.pod).ok();
        let cluster = self.cluster();
        let score = |name: &str| demand.map_or(0, |demand| i64::from(cluster.score(demand, name)));
        names
            .iter()
            .map(|name| HostPriority { host: name.clone().into_owned(), score: score(name) })
            .collect()
    }
}

/// The scheduler passes messages through a format string, in which a percent sign begins a verb.
fn without_percent(text: String) -> String {
    if text.contains('%') { text.replace('%', " percent") } else { text }
}

fn json<T: Serialize>(answer: &T) -> Response {
    match serde_json::to_vec(answer) {
        Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, failure.to_string()).into_response(),
    }
}
