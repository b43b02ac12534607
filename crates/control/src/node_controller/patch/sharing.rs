//! The patches about sharing, and how a node is after them.

use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::names::{
    KUBELET_ALLOCATABLE_ANNOTATION, POLICY_IN_FORCE_LABEL, QOS_IN_FORCE_ANNOTATION, RESERVED_ANNOTATION,
};
use gpupool_core::sharing::{Amounts, Condition};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::in_seconds;
use crate::node_controller::node_write::SharingStatusChange;
use crate::node_controller::observed::{CONDITIONS, ObservedCondition, ObservedNode, SharingMetadata};

/// The body of a merge patch that changes the label and annotations with the policy in force.
pub fn sharing_metadata(node: &ObservedNode, metadata: &SharingMetadata) -> Value {
    json!({ "metadata": {
        "resourceVersion": node.version,
        "labels": { POLICY_IN_FORCE_LABEL: metadata.policy },
        "annotations": {
            QOS_IN_FORCE_ANNOTATION: metadata.qos,
            RESERVED_ANNOTATION: metadata.reserved,
            KUBELET_ALLOCATABLE_ANNOTATION: metadata.unreserved,
        },
    } })
}

/// The body of a strategic merge patch that changes the status. Conditions that are as wanted are left out, so that their times
/// stay; a body without any change still makes the API server call the webhook.
pub fn sharing_status(node: &ObservedNode, change: &SharingStatusChange, now: Timestamp) -> Value {
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
    node: &'a ObservedNode,
    change: &'a SharingStatusChange,
    now: Timestamp,
) -> impl Iterator<Item = Value> + use<'a> {
    let all = change.conditions.iter().zip(&node.sharing.conditions).zip(&CONDITIONS);
    all.filter_map(move |((wanted, current), kind)| match (wanted, current) {
        (Some(wanted), Some(current)) if current.says(wanted) => None,
        (Some(wanted), current) => Some(condition(wanted, current.as_ref(), now)),
        (None, Some(_)) => Some(json!({ "$patch": "delete", "type": kind })),
        (None, None) => None,
    })
}

/// The condition as it is written. Both times are those of the transition: of the last change of status or reason.
fn condition(wanted: &Condition, before: Option<&ObservedCondition>, now: Timestamp) -> Value {
    let unchanged = before.filter(|before| before.has_state_of(wanted));
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

/// The node after the first of them.
pub(super) fn after_metadata(node: &ObservedNode, metadata: &SharingMetadata) -> ObservedNode {
    let mut after = node.clone();
    after.sharing.metadata = metadata.clone();
    after
}

/// The node after the second. What the webhook does then is taken as done.
pub(super) fn after_status(
    node: &ObservedNode,
    change: &SharingStatusChange,
    now: Timestamp,
) -> ObservedNode {
    let mut after = node.clone();
    let own = [&mut after.own.capacity, &mut after.own.allocatable];
    for ((list, own), changes) in after.sharing.percentages.iter_mut().zip(own).zip(&change.percentages) {
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
        after.sharing.allocatable.set(one, amount);
        after.own.allocatable.insert(one.resource().to_owned());
    }
    if change.give_back {
        after.sharing.metadata.unreserved = None;
    }
    if node.kubelet
        && let Some(reserved) = node.sharing.metadata.reserved.as_deref().and_then(Amounts::parse)
    {
        let noted = node.sharing.metadata.unreserved.as_deref().and_then(Amounts::parse);
        let unreserved = noted.unwrap_or_else(|| node.sharing.allocatable.clone());
        after.sharing.allocatable = unreserved.without(&reserved);
        after.sharing.metadata.unreserved = Some(unreserved.to_json());
    }
    for ((wanted, current), kind) in
        change.conditions.iter().zip(&mut after.sharing.conditions).zip(CONDITIONS)
    {
        *current = wanted.as_ref().map(|wanted| observed_after(wanted, current.as_ref(), now));
        if wanted.is_some() {
            after.own.conditions.insert(kind.to_owned());
        }
    }
    after
}

fn observed_after(
    wanted: &Condition,
    before: Option<&ObservedCondition>,
    now: Timestamp,
) -> ObservedCondition {
    let unchanged = before.filter(|before| before.has_state_of(wanted));
    let transition = unchanged.and_then(|before| before.last_transition).or(Some(now));
    ObservedCondition {
        status: wanted.status().to_owned(),
        reason: wanted.reason.to_owned(),
        message: wanted.message.clone(),
        last_transition: transition,
        last_heartbeat: transition,
    }
}
