//! One write to one node: what it changes, what it logs and which Event follows it.

use std::collections::BTreeMap;

use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::{Amounts, Condition};

use super::advertisement::Advertisement;
use super::deploy_labels::LabelChanges;
use super::finding::UseFinding;
use super::observed::SharingMetadata;

/// One write to one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeWrite {
    /// This controller's part of the status, whole: what is not in it is removed.
    UseStatus(UseStatus),
    /// Changes of deploy labels.
    DeployLabels(LabelChanges),
    /// The label and annotations with the share policy in force.
    SharingMetadata(SharingMetadata),
    /// What of the status is about sharing.
    SharingStatus(SharingStatusChange),
}

impl NodeWrite {
    /// Reason and message of the Event that follows this write, if one does.
    pub fn event(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::UseStatus(write) if write.emit_event => {
                write.condition.as_ref().map(|finding| (finding.reason.word(), &finding.message[..]))
            }
            Self::SharingStatus(change) if change.emit_event => {
                change.conditions[0].as_ref().map(|valid| (valid.reason, &valid.message[..]))
            }
            _ => None,
        }
    }

    /// Reason and message of the condition that it writes, for the log.
    pub fn log_entry(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::UseStatus(write) => {
                write.condition.as_ref().map(|finding| (finding.reason.word(), &finding.message[..]))
            }
            Self::SharingStatus(change) => {
                let [valid, policy] = &change.conditions;
                let news = valid.as_ref().filter(|valid| !valid.holds).or(policy.as_ref());
                news.map(|condition| (condition.reason, &condition.message[..]))
            }
            Self::SharingMetadata(metadata) => {
                Some(("PolicyInForce", metadata.policy.as_deref().unwrap_or("none")))
            }
            Self::DeployLabels(_) => None,
        }
    }
}

/// This controller's part of a node's status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UseStatus {
    /// Its part of capacity and allocatable.
    pub advertisement: Advertisement,
    /// The condition; nothing for a node without the label, which has none.
    pub condition: Option<UseFinding>,
    /// Whether an Event with the condition's message follows, once it is written.
    pub emit_event: bool,
}

/// A change of a node's status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharingStatusChange {
    /// The two conditions as they should be; `None` removes one.
    pub conditions: [Option<Condition>; 2],
    /// Changes of the percentages in `capacity` and in `allocatable`; `None` removes one.
    pub percentages: [BTreeMap<String, Option<Quantity>>; 2],
    /// Changes of cpu, memory and ephemeral storage in `allocatable`.
    pub allocatable: Amounts,
    /// Whether the annotation with the unreserved `allocatable` is removed, as `allocatable` is like that again.
    pub give_back: bool,
    /// Whether an Event with the refusal follows.
    pub emit_event: bool,
}
