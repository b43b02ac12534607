//! A node as far as this controller is concerned: what matters of the Kubernetes object, and nothing else.
//!
//! The index holds thousands of these, and compares them to see whether anything that matters has changed.

mod ownership;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::names::DOMAIN;
use gpupool_core::node_use::LABEL;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::{Condition, Load};
use k8s_openapi::api::core::v1::{Node as KubeNode, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use k8s_openapi::jiff::Timestamp;

pub use ownership::{CONDITION_TYPE, Ownership};
pub(crate) use sharing::CONDITIONS;
pub use sharing::{ObservedSharing, SharingMetadata};

use super::cards_annotation::CARDS_ANNOTATION;
use super::resource_amounts::ResourceAmounts;

/// What NFD's labels about PCI devices begin with.
const NFD_PREFIX: &str = "feature.node.kubernetes.io/pci-";
/// The annotation of nodes that kwok simulates: no kubelet runs them, whatever version they report.
const KWOK: &str = "kwok.x-k8s.io/node";

/// A node, as last observed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Its identity: another node under the same name has another.
    pub uid: String,
    /// The version of the object that was seen. Writes are made on the condition that it is still this one.
    pub version: String,
    /// Labels of `nvidia.com/`, and those of NFD about PCI devices.
    pub labels: BTreeMap<String, String>,
    /// The text of the annotation that names the cards.
    pub cards: Option<String>,
    /// Whether a kubelet runs the node. It then owns the node's capacity, and gpupool only observes.
    pub kubelet: bool,
    /// `status.capacity`, the part of `nvidia.com/`.
    pub capacity: ResourceAmounts,
    /// `status.allocatable`, the part of `nvidia.com/`.
    pub allocatable: ResourceAmounts,
    /// Whether the node has an `allocatable` at all.
    pub has_allocatable: bool,
    /// What of its status is this controller's own.
    pub own: Ownership,
    /// The condition about the node's use.
    pub condition: Option<ObservedCondition>,
    /// What of it matters for sharing.
    pub sharing: ObservedSharing,
    /// The pods on it; nothing while they are not known.
    pub load: Option<Load>,
}

/// A condition, as last observed on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObservedCondition {
    /// `True`, `False` or whatever somebody wrote.
    pub status: String,
    /// One CamelCase word, for programs.
    pub reason: String,
    /// A sentence, for people.
    pub message: String,
    /// When the status last changed.
    pub last_transition: Option<Timestamp>,
    /// When the condition was last written.
    pub last_heartbeat: Option<Timestamp>,
}

impl ObservedNode {
    /// Takes what matters out of the object.
    pub fn of(node: &KubeNode) -> Self {
        let meta = &node.metadata;
        let annotations = meta.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|annotations| annotations.get(name));
        let status = node.status.as_ref();
        let own = Ownership::read(meta.managed_fields.as_deref().unwrap_or_default());
        let kubelet = annotation(KWOK).is_none() && (own.kubelet || status.is_some_and(names_a_kubelet));
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            labels: relevant_labels(meta.labels.as_ref()),
            cards: annotation(CARDS_ANNOTATION).cloned(),
            kubelet,
            capacity: amounts(status.and_then(|status| status.capacity.as_ref())),
            allocatable: amounts(allocatable),
            has_allocatable: allocatable.is_some(),
            own,
            condition: status.and_then(|status| ObservedCondition::of(status, CONDITION_TYPE)),
            sharing: ObservedSharing::of(node),
            load: None,
        }
    }

    /// The value of the label that says what the node is for.
    pub fn workload(&self) -> Option<&str> {
        self.labels.get(LABEL).map(String::as_str)
    }

    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Names under `nvidia.com/` that the node advertises: not zero in `allocatable`, or in `capacity` where the
    /// node has no `allocatable` at all.
    pub fn advertised(&self) -> ResourceAmounts {
        let amounts = if self.has_allocatable { &self.allocatable } else { &self.capacity };
        amounts
            .iter()
            .filter(|(_, amount)| !amount.is_zero())
            .map(|(name, amount)| (name.clone(), *amount))
            .collect()
    }

    /// The node as it will be once these are this controller's parts of `status.capacity` and `status.allocatable`.
    #[must_use]
    pub fn advertising(&self, capacity: &ResourceAmounts, allocatable: &ResourceAmounts) -> Self {
        let mut after = self.clone();
        replace_own(&mut after.capacity, &mut after.own.capacity, capacity);
        replace_own(&mut after.allocatable, &mut after.own.allocatable, allocatable);
        after.has_allocatable |= !allocatable.is_empty();
        after
    }
}

fn replace_own(amounts: &mut ResourceAmounts, own: &mut BTreeSet<String>, target: &ResourceAmounts) {
    amounts.retain(|name, _| !own.contains(name));
    amounts.extend(target.clone());
    *own = target.keys().cloned().collect();
}

/// A kubelet reports its version as `v1.36.3`; kwok says `kwok-v0.7.0`, and who writes a node by hand says nothing.
fn names_a_kubelet(status: &NodeStatus) -> bool {
    let version = status.node_info.as_ref().map_or("", |info| info.kubelet_version.as_str());
    version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn relevant_labels(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let relevant = |name: &str| name.starts_with(DOMAIN) || name.starts_with(NFD_PREFIX);
    let labels = labels.into_iter().flatten().filter(|(name, _)| relevant(name));
    labels.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn amounts(list: Option<&BTreeMap<String, KubeQuantity>>) -> ResourceAmounts {
    let ours = list.into_iter().flatten().filter(|(name, _)| name.starts_with(DOMAIN));
    // The API server lets no unreadable quantity through; if it did, something would be there, so it is not zero.
    let read = |text: &str| Quantity::parse(text).unwrap_or_else(|_| Quantity::whole_units(1));
    ours.map(|(name, amount)| (name.clone(), read(&amount.0))).collect()
}

impl ObservedCondition {
    /// The condition of this type, if there is one.
    pub(crate) fn of(status: &NodeStatus, kind: &str) -> Option<Self> {
        let conditions: &[NodeCondition] = status.conditions.as_deref().unwrap_or_default();
        let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
        Some(Self {
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            last_transition: condition.last_transition_time.as_ref().map(|time| time.0),
            last_heartbeat: condition.last_heartbeat_time.as_ref().map(|time| time.0),
        })
    }

    /// Whether it has this status and reason.
    pub(crate) fn has_state_of(&self, wanted: &Condition) -> bool {
        self.status == wanted.status() && self.reason == wanted.reason
    }

    /// Whether it says this already.
    pub(crate) fn says(&self, wanted: &Condition) -> bool {
        self.has_state_of(wanted) && self.message == wanted.message
    }
}
