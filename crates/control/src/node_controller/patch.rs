//! The bodies of patches, as JSON, and how a node is after one.
//!
//! Every body carries the version of the node that was judged: the API server refuses it when the node has changed
//! since, or is another one under the same name. It names what is written and what is taken back, and nothing else.
//!
//! The status is not written by server-side apply, though that would keep the same records of who wrote what: when
//! the last name of an owner is left out of `capacity`, apply removes the whole of it, and with it whatever nobody
//! owns, such as the `cpu` that a node was created with.

mod sharing;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use self::sharing::{sharing_metadata, sharing_status};
use super::advertisement::Advertisement;
use super::deploy_labels::LabelChanges;
use super::finding::UseFinding;
use super::node_write::{NodeWrite, UseStatus};
use super::observed::{CONDITION_TYPE, ObservedCondition, ObservedNode};

/// The body of a strategic merge patch on the node's status: this controller's part of it is as `write` says then.
pub fn use_status(node: &ObservedNode, write: &UseStatus, now: Timestamp) -> Value {
    let mut status = Map::new();
    let (current, target) = (Advertisement::current(node), &write.advertisement);
    for (field, current, target) in [
        ("capacity", &current.capacity, &target.capacity),
        ("allocatable", &current.allocatable, &target.allocatable),
    ] {
        let gone = current.keys().filter(|name| !target.contains_key(*name));
        let gone = gone.map(|name| (name.clone(), Value::Null));
        let amounts = target.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string())));
        let changes: Map<_, _> = gone.chain(amounts).collect();
        if !changes.is_empty() {
            status.insert(field.to_owned(), changes.into());
        }
    }
    let condition = match &write.condition {
        Some(finding) => Some(condition(finding, node.condition.as_ref(), now)),
        None => node.own.has_condition().then(|| json!({ "$patch": "delete", "type": CONDITION_TYPE })),
    };
    if let Some(condition) = condition {
        status.insert("conditions".to_owned(), json!([condition]));
    }
    json!({ "metadata": { "resourceVersion": node.version }, "status": status })
}

/// The body of a merge patch that changes labels.
pub fn deploy_labels(node: &ObservedNode, changes: &LabelChanges) -> Value {
    json!({ "metadata": { "resourceVersion": node.version, "labels": changes } })
}

/// The node as it will be after a write, for dry runs and tests.
pub fn after(node: &ObservedNode, write: &NodeWrite, now: Timestamp) -> ObservedNode {
    match write {
        NodeWrite::UseStatus(write) => {
            let mut after = node.advertising(&write.advertisement.capacity, &write.advertisement.allocatable);
            if write.condition.is_some() {
                after.own.conditions.insert(CONDITION_TYPE.to_owned());
            } else {
                after.own.conditions.remove(CONDITION_TYPE);
            }
            after.condition = write.condition.as_ref().map(|finding| observed_after(node, finding, now));
            after
        }
        NodeWrite::DeployLabels(changes) => {
            let mut after = node.clone();
            for (label, value) in changes {
                match value {
                    Some(value) => after.labels.insert(label.clone(), value.clone()),
                    None => after.labels.remove(label),
                };
            }
            after
        }
        NodeWrite::SharingMetadata(metadata) => sharing::after_metadata(node, metadata),
        NodeWrite::SharingStatus(change) => sharing::after_status(node, change, now),
    }
}

fn observed_after(node: &ObservedNode, finding: &UseFinding, now: Timestamp) -> ObservedCondition {
    let last_transition = node.condition.as_ref().and_then(|before| before.last_transition).or(Some(now));
    ObservedCondition {
        status: finding.status().to_owned(),
        reason: finding.reason.word().to_owned(),
        message: finding.message.clone(),
        last_transition,
        last_heartbeat: Some(now),
    }
}

/// The condition as it is written. Both times are those of the last change: one that is unchanged keeps them.
fn condition(finding: &UseFinding, before: Option<&ObservedCondition>, now: Timestamp) -> Value {
    let unchanged = before.filter(|before| finding.is_said_by(before));
    let same_status = before.filter(|before| before.status == finding.status());
    let heartbeat = unchanged.and_then(|before| before.last_heartbeat).unwrap_or(now);
    let transition = same_status.and_then(|before| before.last_transition).unwrap_or(now);
    json!({
        "type": CONDITION_TYPE,
        "status": finding.status(),
        "reason": finding.reason.word(),
        "message": finding.message,
        "lastHeartbeatTime": in_seconds(heartbeat),
        "lastTransitionTime": in_seconds(transition),
    })
}

/// RFC 3339 without fractions, as Kubernetes writes times.
fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
