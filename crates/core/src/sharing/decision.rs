//! Which policy is in force on a node: what is asked for, where that can be followed, else what was in force before.
//!
//! What is asked for and what holds are two things. A change that would pull a card from under somebody is refused with
//! the sentence that says what to do, and the old policy stays until it can be followed.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{EXCLUSIVE_RESOURCE, POLICY_LABEL};
use super::policy::{Policy, PolicyError};
use super::qos::{Qos, QosError};
use super::reservation::{Amounts, Reserved, reservation};
use crate::names::part_of_cards;
use crate::node_use::NodeUse;
use crate::quantity::Quantity;

/// Pods that are named in a sentence; how many more there are is said.
const NAMED: usize = 3;

/// The pods on a node that have not finished.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Those that have cards, or parts of them, for themselves: as `namespace/name`, with the resource.
    pub exclusive: BTreeMap<String, String>,
    /// Those that share, as `namespace/name`.
    pub shared: BTreeSet<String>,
    /// What all of them request.
    pub requested: Amounts,
}

/// What is in force on a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct InForce {
    /// The policy by which the node's cards are shared.
    pub policy: Policy,
    /// The quality of service; the default where nothing is shared.
    pub qos: Qos,
    /// What is reserved; nothing where nothing is shared.
    pub reserved: Amounts,
}

/// A node, as far as the decision depends on it.
#[derive(Clone, Debug)]
pub struct SharingNode<'a> {
    /// The text of the label [`POLICY_LABEL`].
    pub label: Option<&'a str>,
    /// The text of the annotation with the quality of service.
    pub qos: Option<&'a str>,
    /// What is in force now.
    pub in_force: &'a InForce,
    /// What the node is for, by the use in effect.
    pub node_use: NodeUse,
    /// How many cards it has, unhealthy ones included.
    pub cards: u32,
    /// What it has in all.
    pub capacity: &'a Amounts,
    /// What of it is `allocatable` where nothing is reserved.
    pub allocatable: &'a Amounts,
    /// The pods on it.
    pub load: &'a Load,
    /// Whether anything is reserved at all.
    pub reserve: bool,
}

/// What is to be in force, and what could not be followed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharingDecision {
    /// What is to be in force.
    pub in_force: InForce,
    /// Why what is asked for is not, or not all of it.
    pub refusal: Option<NodeRefusal>,
}

/// Why a node's label or annotation is not followed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NodeRefusal {
    /// The label is no policy.
    #[error("{error}; until then the policy is {stays}")]
    UnknownPolicy {
        /// Why the label's value is no policy.
        error: PolicyError,
        /// The policy that stays in force.
        stays: Policy,
    },
    /// The annotation cannot be followed.
    #[error("{error}; {}", if *off { "sharing is switched off all the same" } else { "until then what was in force before stays" })]
    InvalidQosConfig {
        /// Why the annotation cannot be followed.
        error: QosError,
        /// Nothing is to be shared, for which nobody needs it.
        off: bool,
    },
    /// The node is for virtual machines.
    #[error(
        "the node's use is {node_use}, and only cards of container nodes are shared: label the node {label}=container, or set {POLICY_LABEL} to none",
        label = crate::node_use::LABEL
    )]
    NotForContainers {
        /// The use in effect.
        node_use: NodeUse,
    },
    /// Nobody has said that the node has cards.
    #[error(
        "the node has no cards yet: nothing advertises {EXCLUSIVE_RESOURCE} there, and no agent has named any; check that the agent and the driver run on it"
    )]
    NoCards,
    /// Somebody has cards, or parts of them, for himself.
    #[error("{} on the node: delete or move {them} first", exclusive_pods(pods_there), them = them(pods_there.len()))]
    ExclusivePods {
        /// The pods that stand in the way, as `namespace/name`, with the resource.
        pods_there: BTreeMap<String, String>,
    },
    /// Somebody shares.
    #[error(
        "{} on the node, so the policy stays {stays}: delete {them} first, then {wanted} is set by itself",
        pods(pods_there.iter(), "shares cards", "share cards"),
        them = them(pods_there.len())
    )]
    SharedPods {
        /// The pods that stand in the way, as `namespace/name`.
        pods_there: BTreeSet<String>,
        /// The policy that stays in force.
        stays: Policy,
        /// The policy that the label asks for.
        wanted: Policy,
    },
    /// What would be reserved is in use.
    #[error(
        "{} to be reserved for the sharing module, and with what the node's pods request {} missing: delete or move some of them, or run gpupool control with --no-reservation",
        listed(reserved, "is", "are"),
        listed(missing, "is", "are")
    )]
    NotEnoughLeft {
        /// What would be reserved.
        reserved: Amounts,
        /// How much is missing.
        missing: Amounts,
    },
}

impl NodeRefusal {
    /// The reason as one word that never changes: for the condition and for Events.
    pub fn word(&self) -> &'static str {
        match self {
            Self::UnknownPolicy { .. } => "UnknownPolicy",
            Self::InvalidQosConfig { .. } => "InvalidQosConfig",
            Self::NotForContainers { .. } => "NodeUseNotContainer",
            Self::NoCards => "NoCards",
            Self::ExclusivePods { .. } => "ExclusivePodsOnNode",
            Self::SharedPods { .. } => "SharedPodsOnNode",
            Self::NotEnoughLeft { .. } => "NotEnoughToReserve",
        }
    }
}

impl SharingNode<'_> {
    /// What is to be in force: what label and annotation ask for where that can be followed, else what was.
    pub fn decide(&self) -> SharingDecision {
        let wanted = match self.label.map_or(Ok(Policy::None), str::parse) {
            Ok(wanted) => wanted,
            Err(error) => {
                return self.keep(NodeRefusal::UnknownPolicy { error, stays: self.in_force.policy });
            }
        };
        let stands = self.in_force.policy;
        if stands.shares() && wanted != stands && !self.load.shared.is_empty() {
            let pods_there = self.load.shared.clone();
            return self.keep(NodeRefusal::SharedPods { pods_there, stays: stands, wanted });
        }
        if !wanted.shares() {
            // A mistake in the annotation is told, but nobody needs it to switch sharing off.
            let error = self.label.and_then(|_| self.asked_qos().err());
            let refusal = error.map(|error| NodeRefusal::InvalidQosConfig { error, off: true });
            return SharingDecision { in_force: InForce::default(), refusal };
        }
        if self.node_use != NodeUse::Container {
            let refusal = NodeRefusal::NotForContainers { node_use: self.node_use };
            // The cards are no longer for containers: nothing is left to share, unless somebody still does.
            return if self.load.shared.is_empty() { nothing(refusal) } else { self.keep(refusal) };
        }
        if wanted != stands
            && let Err(refusal) = self.may_begin()
        {
            return self.keep(refusal);
        }
        match self.terms(wanted) {
            Ok(in_force) => SharingDecision { in_force, refusal: None },
            Err(refusal) => self.keep(refusal),
        }
    }

    /// Whether sharing may begin, or go on under another policy.
    fn may_begin(&self) -> Result<(), NodeRefusal> {
        if self.cards == 0 {
            return Err(NodeRefusal::NoCards);
        }
        if !self.load.exclusive.is_empty() {
            return Err(NodeRefusal::ExclusivePods { pods_there: self.load.exclusive.clone() });
        }
        Ok(())
    }

    fn terms(&self, policy: Policy) -> Result<InForce, NodeRefusal> {
        let asked = self.asked_qos().map_err(|error| NodeRefusal::InvalidQosConfig { error, off: false });
        let mut qos = asked?;
        let computed = reservation(self.cards, self.capacity, qos.reserved_ephemeral_storage);
        qos.reserved_ephemeral_storage = Some(computed.amount(Reserved::EphemeralStorage));
        let reserved = if self.reserve { computed } else { Amounts::default() };
        let missing = self.missing(&reserved);
        if missing.is_empty() {
            Ok(InForce { policy, qos, reserved })
        } else {
            Err(NodeRefusal::NotEnoughLeft { reserved, missing })
        }
    }

    /// How much the node's pods request of what would be reserved now and is not yet.
    fn missing(&self, reserved: &Amounts) -> Amounts {
        let mut missing = Amounts::default();
        for (one, amount) in reserved.iter() {
            let needed = self.load.requested.amount(one).plus(amount);
            let short = needed.minus(self.allocatable.amount(one));
            if amount > self.in_force.reserved.amount(one) && short > Quantity::ZERO {
                missing.set(one, short);
            }
        }
        missing
    }

    fn asked_qos(&self) -> Result<Qos, QosError> {
        self.qos.map_or_else(|| Ok(Qos::default()), Qos::parse)
    }

    fn keep(&self, refusal: NodeRefusal) -> SharingDecision {
        SharingDecision { in_force: self.in_force.clone(), refusal: Some(refusal) }
    }
}

fn nothing(refusal: NodeRefusal) -> SharingDecision {
    SharingDecision { in_force: InForce::default(), refusal: Some(refusal) }
}

/// `pod a/b asks`, `pods a/b, a/c and 4 more ask`.
fn pods<'a>(pods: impl ExactSizeIterator<Item = &'a String>, one: &str, several: &str) -> String {
    let count = pods.len();
    let named: Vec<&str> = pods.take(NAMED).map(String::as_str).collect();
    let rest = count.saturating_sub(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    if count == 1 {
        format!("pod {} {one}", named.join(", "))
    } else {
        format!("pods {}{more} {several}", named.join(", "))
    }
}

fn exclusive_pods(pods_there: &BTreeMap<String, String>) -> String {
    let parts = pods_there.values().map(|resource| part_of_cards(resource).unwrap_or("whole cards"));
    let parts = Vec::from_iter(parts.collect::<BTreeSet<_>>()).join(", ");
    pods(pods_there.keys(), &format!("asks for {parts}"), &format!("ask for {parts}"))
}

fn them(pods: usize) -> &'static str {
    if pods == 1 { "it" } else { "them" }
}

fn listed(amounts: &Amounts, one: &str, several: &str) -> String {
    let all: Vec<String> = amounts.iter().map(|(name, amount)| name.phrase(amount)).collect();
    let verb = if all.len() == 1 { one } else { several };
    format!("{} {verb}", all.join(", "))
}
