//! What goes over the wire for a write, as JSON.
//!
//! Every body carries the version of the node that was judged: the API server refuses it when the node has changed
//! since, or is another one under the same name. So it is safe to force the apply: names of others were left out
//! when the node was judged, and only what is this controller's own can be taken back.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::advert::Amounts;
use crate::deploy_labels::LabelChanges;
use crate::finding::Finding;
use crate::observed::{Node, Standing};
use crate::plan::{StatusWrite, Write};

/// The body of a server-side apply on the node's status: this controller's part of it, whole.
pub fn status(node: &Node, write: &StatusWrite, now: Timestamp) -> Value {
    let mut status = Map::new();
    for (field, amounts) in [("capacity", &write.advert.capacity), ("allocatable", &write.advert.allocatable)]
    {
        if !amounts.is_empty() {
            status.insert(field.to_owned(), amounts_json(amounts));
        }
    }
    if let Some(condition) = &write.condition {
        status.insert("conditions".to_owned(), json!([condition.condition(node.condition.as_ref(), now)]));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node.name, "resourceVersion": node.version },
        "status": status,
    })
}

/// The body of a merge patch that changes labels.
pub fn labels(node: &Node, changes: &LabelChanges) -> Value {
    json!({ "metadata": { "resourceVersion": node.version, "labels": changes } })
}

fn amounts_json(amounts: &Amounts) -> Value {
    amounts
        .iter()
        .map(|(name, amount)| (name.clone(), Value::from(amount.to_string())))
        .collect::<Map<_, _>>()
        .into()
}

/// The node as it will be after a write, for a dry run.
pub fn after(node: &Node, write: &Write, now: Timestamp) -> Node {
    match write {
        Write::Status(write) => {
            let mut after = node.with_advert(&write.advert);
            after.own.condition = write.condition.is_some();
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
