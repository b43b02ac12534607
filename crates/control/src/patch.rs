//! What goes over the wire for a write, as JSON.
//!
//! Every body carries the version of the node that was judged: the API server refuses it when the node has changed
//! since, or is another one under the same name. It names what is written and what is taken back, and nothing else.
//!
//! The status is not written by server-side apply, though that would keep the same records of who wrote what: when
//! the last name of an owner is left out of `capacity`, apply removes the whole of it, and with it whatever nobody
//! owns, such as the `cpu` that a node was created with.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::advert::Advert;
use crate::deploy_labels::LabelChanges;
use crate::finding::Finding;
use crate::observed::{Node, Standing};
use crate::ownership::CONDITION_TYPE;
use crate::plan::{StatusWrite, Write};
use crate::share_policy;

/// The body of a strategic merge patch on the node's status: this controller's part of it is as `write` says then.
pub fn status(node: &Node, write: &StatusWrite, now: Timestamp) -> Value {
    let mut status = Map::new();
    let (standing, target) = (Advert::standing(node), &write.advert);
    for (field, standing, target) in [
        ("capacity", &standing.capacity, &target.capacity),
        ("allocatable", &standing.allocatable, &target.allocatable),
    ] {
        let gone = standing.keys().filter(|name| !target.contains_key(*name));
        let gone = gone.map(|name| (name.clone(), Value::Null));
        let amounts = target.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string())));
        let changes: Map<_, _> = gone.chain(amounts).collect();
        if !changes.is_empty() {
            status.insert(field.to_owned(), changes.into());
        }
    }
    let condition = match &write.condition {
        Some(condition) => Some(condition.condition(node.condition.as_ref(), now)),
        None => node.own.has_condition().then(|| json!({ "$patch": "delete", "type": CONDITION_TYPE })),
    };
    if let Some(condition) = condition {
        status.insert("conditions".to_owned(), json!([condition]));
    }
    json!({ "metadata": { "resourceVersion": node.version }, "status": status })
}

/// The body of a merge patch that changes labels.
pub fn labels(node: &Node, changes: &LabelChanges) -> Value {
    json!({ "metadata": { "resourceVersion": node.version, "labels": changes } })
}

/// The node as it will be after a write, for a dry run.
pub fn after(node: &Node, write: &Write, now: Timestamp) -> Node {
    match write {
        Write::Status(write) => {
            let mut after = node.with_advert(&write.advert);
            if write.condition.is_some() {
                after.own.conditions.insert(CONDITION_TYPE.to_owned());
            } else {
                after.own.conditions.remove(CONDITION_TYPE);
            }
            after.condition = write.condition.as_ref().map(|finding| standing(node, finding, now));
            after
        }
        Write::Labels(changes) => {
            let mut after = node.clone();
            for (label, value) in changes {
                match value {
                    Some(value) => after.labels.insert(label.clone(), value.clone()),
                    None => after.labels.remove(label),
                };
            }
            after
        }
        Write::Marks(marks) => share_policy::after_marks(node, marks),
        Write::Share(change) => share_policy::after_status(node, change, now),
    }
}

fn standing(node: &Node, finding: &Finding, now: Timestamp) -> Standing {
    let last_transition = node.condition.as_ref().and_then(|before| before.last_transition).or(Some(now));
    Standing {
        status: finding.status().to_owned(),
        reason: finding.reason.word().to_owned(),
        message: finding.message.clone(),
        last_transition,
        last_heartbeat: Some(now),
    }
}
