//! What goes over the wire for a step, and how the node is after it.

use std::collections::BTreeMap;

use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::names::{
    KUBELET_ALLOCATABLE_ANNOTATION, POLICY_IN_FORCE_LABEL, QOS_IN_FORCE_ANNOTATION, RESERVED_ANNOTATION,
};
use gpupool_core::sharing::{Amounts, Condition};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::view::CONDITIONS;
use crate::finding::in_seconds;
use crate::observed::{Node, Standing};

/// The marks on a node: what is in force there. Texts, so that one that somebody has spoilt is seen to be another.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Marks {
    /// The label with the policy in force.
    pub policy: Option<String>,
    /// The annotation with its quality of service.
    pub qos: Option<String>,
    /// The annotation with what is reserved.
    pub reserved: Option<String>,
    /// The annotation with what `allocatable` is without that.
    pub unreserved: Option<String>,
}

/// A change of a node's status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StatusChange {
    /// The two conditions as they should be; nothing for one that goes.
    pub conditions: [Option<Condition>; 2],
    /// Changes of the percentages in `capacity` and in `allocatable`; nothing for one that goes.
    pub percentages: [BTreeMap<String, Option<Quantity>>; 2],
    /// Changes of cpu, memory and ephemeral storage in `allocatable`.
    pub allocatable: Amounts,
    /// Whether the note of what `allocatable` was goes, as it is like that again.
    pub give_back: bool,
    /// Whether an Event should tell of the refusal.
    pub tell: bool,
}

/// The body of a merge patch that changes the marks.
pub fn marks_body(node: &Node, marks: &Marks) -> Value {
    json!({ "metadata": {
        "resourceVersion": node.version,
        "labels": { POLICY_IN_FORCE_LABEL: marks.policy },
        "annotations": {
            QOS_IN_FORCE_ANNOTATION: marks.qos,
            RESERVED_ANNOTATION: marks.reserved,
            KUBELET_ALLOCATABLE_ANNOTATION: marks.unreserved,
        },
    } })
}

/// The body of a strategic merge patch that changes the status. Conditions that stand are left out, so that their times
/// stay; a body without any change still makes the webhook look at the node.
pub fn status_body(node: &Node, change: &StatusChange, now: Timestamp) -> Value {
    let [mut capacity, mut allocatable] = change.percentages.clone().map(|list| {
        let text = |amount: Option<Quantity>| amount.map_or(Value::Null, |amount| amount.to_string().into());
        list.into_iter().map(|(name, amount)| (name, text(amount))).collect::<Map<_, _>>()
    });
    let amounts = change.allocatable.iter();
    allocatable.extend(amounts.map(|(one, amount)| (one.resource().to_owned(), amount.to_string().into())));
    let mut status = Map::new();
    for (field, list) in [("capacity", &mut capacity), ("allocatable", &mut allocatable)] {
        if !list.is_empty() {
            status.insert(field.to_owned(), Value::Object(std::mem::take(list)));
        }
    }
    let conditions: Vec<Value> = conditions(node, change, now).collect();
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    let mut metadata = json!({ "resourceVersion": node.version });
    if change.give_back {
        metadata["annotations"] = json!({ KUBELET_ALLOCATABLE_ANNOTATION: null });
    }
    json!({ "metadata": metadata, "status": status })
}

fn conditions<'a>(
    node: &'a Node,
    change: &'a StatusChange,
    now: Timestamp,
) -> impl Iterator<Item = Value> + use<'a> {
    let all = change.conditions.iter().zip(&node.share.conditions).zip(&CONDITIONS);
    all.filter_map(move |((wanted, standing), kind)| match (wanted, standing) {
        (Some(wanted), Some(standing)) if stands(wanted, standing) => None,
        (Some(wanted), standing) => Some(condition(wanted, standing.as_ref(), now)),
        (None, Some(_)) => Some(json!({ "$patch": "delete", "type": kind })),
        (None, None) => None,
    })
}

/// Whether a condition says this already.
pub(super) fn stands(wanted: &Condition, standing: &Standing) -> bool {
    same_state(wanted, standing) && standing.message == wanted.message
}

fn same_state(wanted: &Condition, standing: &Standing) -> bool {
    standing.status == wanted.status() && standing.reason == wanted.reason
}

/// The condition as it is written. Both times are those of the transition: of the last change of status or reason.
fn condition(wanted: &Condition, before: Option<&Standing>, now: Timestamp) -> Value {
    let unchanged = before.filter(|before| same_state(wanted, before));
    let transition = unchanged.and_then(|before| before.last_transition).unwrap_or(now);
    json!({
        "type": wanted.kind,
        "status": wanted.status(),
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": in_seconds(transition),
        "lastTransitionTime": in_seconds(transition),
    })
}

/// The node with these marks, for a dry run.
pub fn after_marks(node: &Node, marks: &Marks) -> Node {
    let mut after = node.clone();
    after.share.marks = marks.clone();
    after
}

/// The node with this status, for a dry run. What a webhook would do is taken as done.
pub fn after_status(node: &Node, change: &StatusChange, now: Timestamp) -> Node {
    let mut after = node.clone();
    let own = [&mut after.own.capacity, &mut after.own.allocatable];
    for ((list, own), changes) in after.share.percentages.iter_mut().zip(own).zip(&change.percentages) {
        for (name, amount) in changes {
            if let Some(amount) = amount {
                list.insert(name.clone(), *amount);
                own.insert(name.clone());
            } else {
                list.remove(name);
                own.remove(name);
            }
        }
    }
    for (one, amount) in change.allocatable.iter() {
        after.share.allocatable.set(one, amount);
        after.own.allocatable.insert(one.resource().to_owned());
    }
    if change.give_back {
        after.share.marks.unreserved = None;
    }
    if node.kubelet
        && let Some(reserved) = node.share.marks.reserved.as_deref().and_then(Amounts::parse)
    {
        let noted = node.share.marks.unreserved.as_deref().and_then(Amounts::parse);
        let unreserved = noted.unwrap_or_else(|| node.share.allocatable.clone());
        after.share.allocatable = unreserved.without(&reserved);
        after.share.marks.unreserved = Some(unreserved.to_json());
    }
    for ((wanted, standing), kind) in
        change.conditions.iter().zip(&mut after.share.conditions).zip(CONDITIONS)
    {
        *standing = wanted.as_ref().map(|wanted| standing_after(wanted, standing.as_ref(), now));
        if wanted.is_some() {
            after.own.conditions.insert(kind.to_owned());
        }
    }
    after
}

fn standing_after(wanted: &Condition, before: Option<&Standing>, now: Timestamp) -> Standing {
    let unchanged = before.filter(|before| same_state(wanted, before));
    let transition = unchanged.and_then(|before| before.last_transition).or(Some(now));
    Standing {
        status: wanted.status().to_owned(),
        reason: wanted.reason.to_owned(),
        message: wanted.message.clone(),
        last_transition: transition,
        last_heartbeat: transition,
    }
}
