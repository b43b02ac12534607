//! The two conditions of a node, in the published words.

use super::decision::SharingDecision;
use super::names::{POLICY_CONDITION, POLICY_VALID_CONDITION};

/// A condition of a node, but for its times.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    /// `type`: `GPUSharePolicyValid` or `GPUSharePolicy`.
    pub kind: &'static str,
    /// Whether `status` is `True`; else it is `False`.
    pub holds: bool,
    /// `reason`: a CamelCase word of a closed list, or the policy in force.
    pub reason: &'static str,
    /// `message`: the published sentence, or the refusal's.
    pub message: String,
}

impl Condition {
    /// `status`: `True` or `False`.
    pub fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }
}

impl SharingDecision {
    /// What the node says of it: whether what is asked for is followed, and which policy is in force.
    pub fn conditions(&self) -> [Condition; 2] {
        let policy = self.in_force.policy;
        let config = if policy.shares() { "" } else { "config " };
        let valid = match &self.refusal {
            None => Condition {
                kind: POLICY_VALID_CONDITION,
                holds: true,
                reason: "Valid",
                message: format!("gpu share policy {config}is valid."),
            },
            Some(refusal) => Condition {
                kind: POLICY_VALID_CONDITION,
                holds: false,
                reason: refusal.word(),
                message: refusal.to_string(),
            },
        };
        let in_force = Condition {
            kind: POLICY_CONDITION,
            holds: policy.shares(),
            reason: policy.value(),
            message: format!("gpu share policy is {policy}."),
        };
        [valid, in_force]
    }
}
