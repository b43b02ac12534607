//! Carries out one order against the API server.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubeNode, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::index::{Order, Outcome, Task};
use crate::metrics::Metrics;
use crate::observed::Node;
use crate::ownership::FIELD_MANAGER;
use crate::patch;
use crate::plan::Write;
use crate::share_policy;

/// Longer than any answer should take; then the node is looked at again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// What a process needs to write.
#[derive(Clone)]
pub(crate) struct Writer {
    nodes: Api<KubeNode>,
    recorder: Recorder,
    metrics: Metrics,
}

impl Writer {
    /// A writer; `identity` stands in its Events.
    pub(crate) fn new(client: &kube::Client, identity: &str, metrics: Metrics) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(identity.to_owned()) };
        Self { nodes: Api::all(client.clone()), recorder: Recorder::new(client.clone(), reporter), metrics }
    }

    /// Carries it out, and says what became of it.
    pub(crate) async fn carry_out(&self, order: &Order) -> Outcome {
        match &order.task {
            Task::Write(write) => self.write(&order.node, write).await,
            Task::Tell(finding) => {
                if self.tell(&order.node, finding.reason.word(), &finding.message).await {
                    Outcome::Told
                } else {
                    Outcome::Failed
                }
            }
        }
    }

    async fn write(&self, node: &Node, write: &Write) -> Outcome {
        // The API server notes that it was this controller.
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let now = Timestamp::now();
        let (kind, answer) = match write {
            Write::Status(status) => {
                let patch = Patch::Strategic(patch::status(node, status, now));
                ("status", within(self.nodes.patch_status(&node.name, &params, &patch)).await)
            }
            Write::Labels(changes) => {
                let patch = Patch::Merge(patch::labels(node, changes));
                ("labels", within(self.nodes.patch(&node.name, &params, &patch)).await)
            }
            Write::Marks(marks) => {
                let patch = Patch::Merge(share_policy::marks_body(node, marks));
                ("policy", within(self.nodes.patch(&node.name, &params, &patch)).await)
            }
            Write::Share(change) => {
                let patch = Patch::Strategic(share_policy::status_body(node, change, now));
                ("status", within(self.nodes.patch_status(&node.name, &params, &patch)).await)
            }
        };
        let outcome = match answer {
            Ok(written) => Outcome::Written(Box::new(Node::of(&written))),
            Err(kube::Error::Api(status)) if status.code == 409 => Outcome::Outdated,
            Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Gone,
            Err(failure) => {
                warn!(node = node.name, kind, %failure, "cannot write; trying again");
                Outcome::Failed
            }
        };
        self.metrics.written(kind, &outcome);
        if let Outcome::Written(_) = &outcome {
            if let Some((reason, sentence)) = write.said() {
                info!(node = node.name, reason, "{sentence}");
            }
            if let Some((reason, sentence)) = write.told() {
                // It stands in the condition, too, so one that is lost is not repeated.
                self.tell(node, reason, sentence).await;
            }
        }
        outcome
    }

    /// Tells of something in an Event. Says whether it is out.
    async fn tell(&self, node: &Node, reason: &str, sentence: &str) -> bool {
        let told = within(self.recorder.publish(&event(reason, sentence), &reference(node))).await;
        self.metrics.written("event", if told.is_ok() { &Outcome::Told } else { &Outcome::Failed });
        match told {
            Ok(()) => {
                info!(node = node.name, reason, "told: {sentence}");
                true
            }
            Err(failure) => {
                warn!(node = node.name, %failure, "cannot write an Event");
                false
            }
        }
    }
}

fn event(reason: &str, sentence: &str) -> Event {
    // The recorder counts events of one action and reason up and keeps the first note, so another sentence has to be
    // another action.
    let mut hasher = DefaultHasher::new();
    sentence.hash(&mut hasher);
    Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(cut(sentence)),
        action: format!("JudgeNodeUse-{:016x}", hasher.finish()),
        secondary: None,
    }
}

/// A note may have 1 kB.
fn cut(message: &str) -> String {
    const MOST: usize = 1000;
    if message.len() <= MOST {
        return message.to_owned();
    }
    format!("{}…", &message[..message.floor_char_boundary(MOST)])
}

fn reference(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Bounds one request; what does not answer in time counts as a failed connection.
pub(crate) async fn within<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
}
