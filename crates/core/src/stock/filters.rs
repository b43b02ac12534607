//! Whether a pod may go to a node, by the scheduler's filters in their order: cordon, taints, selector and
//! affinity, resources.

use std::fmt;

use super::{NodeUsage, StockPod};
use crate::one_line::one_line;
use crate::quantity::Quantity;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaintEffect {
    /// They are not placed there.
    NoSchedule,
    /// They are placed there last, which the filters do not see.
    PreferNoSchedule,
    /// They are not placed there, and driven away.
    NoExecute,
}

/// A taint of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Taint {
    /// `key`.
    pub key: String,
    /// `value`; empty where none is given.
    pub value: String,
    /// `effect`.
    pub effect: TaintEffect,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{:?}", one_line(&self.key, 100), one_line(&self.value, 63), self.effect)
    }
}

/// What a pod tolerates.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Toleration {
    /// The taint's key; nothing tolerates every key.
    pub key: Option<String>,
    /// The taint's value; nothing tolerates every value (operator `Exists`).
    pub value: Option<String>,
    /// The taint's effect; nothing tolerates every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

/// One alternative of a required node affinity: all of its requirements hold. Without any it holds nowhere.
pub type Term = Vec<Requirement>;

/// A requirement on one label, or on the node's name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    /// The label's key; nothing for the node's name (`matchFields`).
    pub label: Option<String>,
    /// How the values are meant.
    pub operator: Operator,
    /// The values to compare with; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// How a requirement's values are meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// One of them.
    In,
    /// None of them; a missing label is none of them.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// A whole number above the value.
    Gt,
    /// A whole number below the value.
    Lt,
}

impl Requirement {
    fn holds(&self, rack: &NodeUsage) -> bool {
        let actual = match &self.label {
            Some(label) => rack.node.labels.get(label),
            None => Some(&rack.node.name),
        };
        let numbers = || Some((actual?.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match self.operator {
            Operator::In => actual.is_some_and(|actual| self.values.contains(actual)),
            Operator::NotIn => actual.is_none_or(|actual| !self.values.contains(actual)),
            Operator::Exists => actual.is_some(),
            Operator::DoesNotExist => actual.is_none(),
            Operator::Gt => numbers().is_some_and(|(actual, bound)| actual > bound),
            Operator::Lt => numbers().is_some_and(|(actual, bound)| actual < bound),
        }
    }
}

/// Why a pod may not go to a node: the first filter that says so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Exclusion {
    /// The node was cordoned.
    Cordoned,
    /// The node is not ready; its taints usually say so first.
    NotReady,
    /// A taint that the pod does not tolerate.
    Tainted(Taint),
    /// The pod's node selector or affinity.
    Selector,
    /// The node does not have so much of a resource at all.
    TooSmall(String),
    /// The node has it, but others hold it.
    Taken(String),
    /// The node takes no more pods.
    TooManyPods,
}

/// The first reason for which the pod may not go to the node; nothing if it may.
pub(super) fn exclusion(pod: &StockPod, rack: &NodeUsage) -> Option<Exclusion> {
    if rack.node.unschedulable && !tolerates_cordon(pod) {
        return Some(Exclusion::Cordoned);
    }
    let untolerated = rack.node.taints.iter().find(|taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !pod.tolerations.iter().any(|known| known.tolerates(taint))
    });
    if let Some(taint) = untolerated {
        return Some(Exclusion::Tainted(taint.clone()));
    }
    if !is_selected(pod, rack) {
        return Some(Exclusion::Selector);
    }
    if !rack.node.ready {
        return Some(Exclusion::NotReady);
    }
    lacks(pod, rack)
}

fn tolerates_cordon(pod: &StockPod) -> bool {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    };
    pod.tolerations.iter().any(|known| known.tolerates(&cordon))
}

/// Whether the pod's node selector and affinity allow the node.
pub(super) fn is_selected(pod: &StockPod, rack: &NodeUsage) -> bool {
    let selected = pod.node_selector.iter().all(|(key, value)| rack.node.labels.get(key) == Some(value));
    let matches = |term: &Term| !term.is_empty() && term.iter().all(|requirement| requirement.holds(rack));
    selected && pod.node_affinity.as_ref().is_none_or(|terms| terms.iter().any(matches))
}

fn lacks(pod: &StockPod, rack: &NodeUsage) -> Option<Exclusion> {
    let full =
        rack.node.allocatable.get("pods").is_some_and(|&most| Quantity::whole_units(rack.pods) >= most);
    if full {
        return Some(Exclusion::TooManyPods);
    }
    // GPU resources first: they are what this is about.
    let (gpu, other): (Vec<_>, Vec<_>) =
        pod.requests.iter().partition(|(resource, _)| super::is_gpu(resource));
    gpu.into_iter().chain(other).find_map(|(resource, &amount)| {
        if amount <= rack.free(resource) {
            None
        } else if amount > rack.allocatable(resource) {
            Some(Exclusion::TooSmall(resource.clone()))
        } else {
            Some(Exclusion::Taken(resource.clone()))
        }
    })
}
