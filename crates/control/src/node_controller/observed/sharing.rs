//! What a node's labels, annotations and status say of sharing.

use std::collections::BTreeMap;

use gpupool_core::names::CONTAINER;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::names::{
    KUBELET_ALLOCATABLE_ANNOTATION, POLICY_CONDITION, POLICY_IN_FORCE_LABEL, POLICY_LABEL,
    POLICY_VALID_CONDITION, POOL_CARDS_ANNOTATION, QOS_ANNOTATION, QOS_IN_FORCE_ANNOTATION,
    RESERVED_ANNOTATION,
};
use gpupool_core::sharing::{self, Amounts, Dimension, InForce, Policy, PoolCard, Qos};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;

use super::ObservedCondition;

/// The two conditions, in the order in which they are written.
pub(crate) const CONDITIONS: [&str; 2] = [POLICY_VALID_CONDITION, POLICY_CONDITION];

/// What of a node matters for sharing. Texts are as they were written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedSharing {
    /// The label with the policy that the user wants.
    pub label: Option<String>,
    /// The annotation with the quality of service that the user wants, as JSON.
    pub qos: Option<String>,
    /// What gpupool wrote: the policy in force.
    pub metadata: SharingMetadata,
    /// Cards that the agent found.
    pub pool_cards: Option<String>,
    /// The amount of `nvidia.com/gpu` in `status.capacity`.
    pub whole_cards: u32,
    /// The percentages in `status.capacity` and in `status.allocatable`, by resource.
    pub percentages: [BTreeMap<String, Quantity>; 2],
    /// Cpu, memory and ephemeral storage in `status.capacity`.
    pub capacity: Amounts,
    /// The same in `status.allocatable`.
    pub allocatable: Amounts,
    /// The two conditions.
    pub conditions: [Option<ObservedCondition>; 2],
}

/// The label and annotations by which gpupool says on a node what is in force there. Texts, so that one that somebody
/// has spoilt is seen to differ.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SharingMetadata {
    /// The label with the policy in force.
    pub policy: Option<String>,
    /// The annotation with its quality of service.
    pub qos: Option<String>,
    /// The annotation with what is reserved.
    pub reserved: Option<String>,
    /// The annotation with what `allocatable` is without that.
    pub unreserved: Option<String>,
}

impl ObservedSharing {
    /// Takes what matters out of the object.
    pub(super) fn of(node: &KubeNode) -> Self {
        let annotation = |name: &str| node.metadata.annotations.as_ref()?.get(name).cloned();
        let label = |name: &str| node.metadata.labels.as_ref()?.get(name).cloned();
        let status = node.status.as_ref();
        let capacity = status.and_then(|status| status.capacity.as_ref());
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let whole = capacity.and_then(|list| Quantity::parse(&list.get(CONTAINER)?.0).ok()?.whole());
        Self {
            label: label(POLICY_LABEL),
            qos: annotation(QOS_ANNOTATION),
            metadata: SharingMetadata {
                policy: label(POLICY_IN_FORCE_LABEL),
                qos: annotation(QOS_IN_FORCE_ANNOTATION),
                reserved: annotation(RESERVED_ANNOTATION),
                unreserved: annotation(KUBELET_ALLOCATABLE_ANNOTATION),
            },
            pool_cards: annotation(POOL_CARDS_ANNOTATION),
            whole_cards: whole.and_then(|whole| u32::try_from(whole).ok()).unwrap_or(0),
            percentages: [percentages(capacity), percentages(allocatable)],
            capacity: amounts(capacity),
            allocatable: amounts(allocatable),
            conditions: CONDITIONS.map(|kind| status.and_then(|status| ObservedCondition::of(status, kind))),
        }
    }

    /// Whether there is anything to do with sharing on the node, now or from before.
    pub fn is_concerned(&self) -> bool {
        self.label.is_some()
            || self.metadata != SharingMetadata::default()
            || self.conditions.iter().any(Option::is_some)
            || self.percentages.iter().any(|list| !list.is_empty())
    }

    /// What is in force, by gpupool's own label and annotations. One that cannot be read counts as absent, and is written anew.
    pub(crate) fn in_force(&self) -> InForce {
        let policy = Policy::in_force(self.metadata.policy.as_deref());
        if !policy.shares() {
            return InForce::default();
        }
        let qos = self.metadata.qos.as_deref().and_then(|text| Qos::parse(text).ok());
        let reserved = self.metadata.reserved.as_deref().and_then(Amounts::parse);
        InForce { policy, qos: qos.unwrap_or_default(), reserved: reserved.unwrap_or_default() }
    }

    /// Whether nothing of ours says that anything was shared. One label or annotation that somebody took away is not enough.
    pub(crate) const fn shared_nothing(&self) -> bool {
        self.metadata.policy.is_none() && self.metadata.qos.is_none() && self.metadata.reserved.is_none()
    }

    /// The cards that the agent found, if one has written them.
    pub(crate) fn found_cards(&self) -> Option<Vec<PoolCard>> {
        sharing::cards::parse(self.pool_cards.as_deref()?).ok()
    }
}

fn percentages(list: Option<&BTreeMap<String, KubeQuantity>>) -> BTreeMap<String, Quantity> {
    let amount = |resource: &'static str| {
        let text = list?.get(resource)?;
        // The API server lets no unreadable quantity through; if it did, something would be there.
        Some((resource.to_owned(), Quantity::parse(&text.0).unwrap_or(Quantity::whole_units(1))))
    };
    Dimension::ALL.iter().filter_map(|dimension| amount(dimension.resource())).collect()
}

fn amounts(list: Option<&BTreeMap<String, KubeQuantity>>) -> Amounts {
    Amounts::read(|name| list.and_then(|list| list.get(name)).map(|amount| amount.0.as_str()))
}
