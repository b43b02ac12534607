//! Carries out one work item against the API server.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::{Node as KubeNode, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::{info, warn};

use super::index::{Action, WorkItem, WriteResult};
use super::node_write::NodeWrite;
use super::observed::ObservedNode;
use super::patch;
use crate::api_server::{FIELD_MANAGER, bounded};
use crate::metrics::Metrics;

/// What a process needs to write.
#[derive(Clone)]
pub(crate) struct Writer {
    nodes: Api<KubeNode>,
    recorder: Recorder,
    metrics: Metrics,
}

impl Writer {
    /// A writer; `identity` is the reporting instance of its Events.
    pub(crate) fn new(client: &kube::Client, identity: &str, metrics: Metrics) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(identity.to_owned()) };
        Self { nodes: Api::all(client.clone()), recorder: Recorder::new(client.clone(), reporter), metrics }
    }

    /// Carries it out, and says what became of it.
    pub(crate) async fn carry_out(&self, item: &WorkItem) -> WriteResult {
        match &item.action {
            Action::Write(write) => self.write(&item.node, write).await,
            Action::RecordEvent(finding) => {
                if self.record_event(&item.node, finding.reason.word(), &finding.message).await {
                    WriteResult::EventRecorded
                } else {
                    WriteResult::Failed
                }
            }
        }
    }

    async fn write(&self, node: &ObservedNode, write: &NodeWrite) -> WriteResult {
        // The API server notes that it was this controller.
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let now = Timestamp::now();
        let (kind, answer) = match write {
            NodeWrite::UseStatus(status) => {
                let patch = Patch::Strategic(patch::use_status(node, status, now));
                ("status", bounded(self.nodes.patch_status(&node.name, &params, &patch)).await)
            }
            NodeWrite::DeployLabels(changes) => {
                let patch = Patch::Merge(patch::deploy_labels(node, changes));
                ("labels", bounded(self.nodes.patch(&node.name, &params, &patch)).await)
            }
            NodeWrite::SharingMetadata(metadata) => {
                let patch = Patch::Merge(patch::sharing_metadata(node, metadata));
                ("policy", bounded(self.nodes.patch(&node.name, &params, &patch)).await)
            }
            NodeWrite::SharingStatus(change) => {
                let patch = Patch::Strategic(patch::sharing_status(node, change, now));
                ("status", bounded(self.nodes.patch_status(&node.name, &params, &patch)).await)
            }
        };
        let result = match answer {
            Ok(written) => WriteResult::Written(Box::new(ObservedNode::of(&written))),
            Err(kube::Error::Api(status)) if status.code == 409 => WriteResult::Conflict,
            Err(kube::Error::Api(status)) if status.code == 404 => WriteResult::NotFound,
            Err(failure) => {
                warn!(node = node.name, kind, %failure, "cannot write; trying again");
                WriteResult::Failed
            }
        };
        self.metrics.written(kind, result.metric_label());
        if let WriteResult::Written(_) = &result {
            if let Some((reason, sentence)) = write.log_entry() {
                info!(node = node.name, reason, "{sentence}");
            }
            if let Some((reason, sentence)) = write.event() {
                // The condition says it too, so a lost Event is not repeated.
                self.record_event(node, reason, sentence).await;
            }
        }
        result
    }

    /// Records an Event. Says whether the API server has taken it.
    async fn record_event(&self, node: &ObservedNode, reason: &str, sentence: &str) -> bool {
        let published = bounded(self.recorder.publish(&event(reason, sentence), &reference(node))).await;
        let result = if published.is_ok() { WriteResult::EventRecorded } else { WriteResult::Failed };
        self.metrics.written("event", result.metric_label());
        match published {
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

fn reference(node: &ObservedNode) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    }
}
