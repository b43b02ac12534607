//! The GPU stock of a cluster: what its nodes advertise, what its pods hold, and what waits for what.
//!
//! Built from nodes and pods as plain values, and asked two things: an inventory per use and resource, and why one
//! pod waits. It knows the scheduler's filters as far as they concern the stock; not preferences, volumes, ports or
//! affinity between pods, which the answers say. It knows neither dumps nor clusters.

mod explain;
mod filters;
mod inventory;
mod requests;

use std::collections::{BTreeMap, HashMap};

pub use explain::{Explanation, Outlook, explain};
pub use filters::{Exclusion, Operator, Requirement, Taint, TaintEffect, Term, Toleration};
pub use inventory::{Idle, Inventory, Row, inventory};
pub use requests::{InitContainer, pod_requests};

use crate::names::DOMAIN;
use crate::node_use::{LABEL, NodeUse};
use crate::quantity::Quantity;

/// Amounts by resource name.
pub type Resources = BTreeMap<String, Quantity>;

/// A node, as far as the stock depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StockNode {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`: it was cordoned.
    pub unschedulable: bool,
    /// Whether its condition `Ready` is absent or true.
    pub ready: bool,
    /// `status.allocatable`: what pods may ask for.
    pub allocatable: Resources,
    /// `status.capacity`: what is there, unhealthy devices included.
    pub capacity: Resources,
}

/// How far a pod has come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PodPhase {
    /// Not placed, or placed and not started.
    #[default]
    Pending,
    /// Started.
    Running,
    /// Ended, well or badly: it holds nothing.
    Finished,
}

impl PodPhase {
    /// From `status.phase`, as Kubernetes writes it. A phase of another name (`Unknown`) may still hold something.
    pub fn of(phase: Option<&str>) -> Self {
        match phase {
            None | Some("Pending") => Self::Pending,
            Some("Succeeded" | "Failed") => Self::Finished,
            Some(_) => Self::Running,
        }
    }
}

/// A pod, as far as the stock depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StockPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.nodeName`: the node that it is bound to.
    pub node: Option<String>,
    /// What `status.phase` says of it.
    pub phase: PodPhase,
    /// What it asks for in all ([`pod_requests`]).
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of its required node affinity, one of which must hold; nothing where it has none.
    pub node_affinity: Option<Vec<Term>>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `spec.schedulingGates`, by name: with any, the scheduler does not look at it yet.
    pub gates: Vec<String>,
    /// The message of its condition `PodScheduled`, while that is false.
    pub scheduler_message: Option<String>,
}

impl StockPod {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it waits for a node.
    pub fn is_waiting(&self) -> bool {
        self.node.is_none() && self.phase == PodPhase::Pending
    }

    /// The use that it asks of its node by node selector, whatever that says.
    fn selected_use(&self) -> Option<&str> {
        self.node_selector.get(LABEL).map(String::as_str)
    }
}

/// Whether a resource belongs to the GPU stock: all of `nvidia.com/`, and shares of cards.
pub fn is_gpu(resource: &str) -> bool {
    resource.starts_with(DOMAIN) || resource.starts_with("alibabacloud.com/gpu-")
}

/// The stock of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Stock {
    nodes: Vec<NodeUsage>,
    by_name: HashMap<String, usize>,
    waiting: Vec<Waiting>,
}

/// A node and what is taken of it.
#[derive(Clone, Debug)]
struct NodeUsage {
    node: StockNode,
    requested: Resources,
    pods: u32,
    /// Which pods hold a GPU resource here.
    holders: BTreeMap<String, Vec<String>>,
}

/// A pod that waits and asks for GPU resources.
#[derive(Clone, Debug)]
struct Waiting {
    requests: Resources,
    selected_use: Option<String>,
}

impl Stock {
    /// The stock of these nodes, with no pods on them. Of two nodes with one name the first counts.
    pub fn of(nodes: impl IntoIterator<Item = StockNode>) -> Self {
        let mut stock = Self::default();
        for node in nodes {
            let place = stock.nodes.len();
            if let std::collections::hash_map::Entry::Vacant(free) = stock.by_name.entry(node.name.clone()) {
                free.insert(place);
                stock.nodes.push(NodeUsage {
                    node,
                    requested: Resources::new(),
                    pods: 0,
                    holders: BTreeMap::new(),
                });
            }
        }
        stock
    }

    /// Counts a pod: on its node if it is bound, among the waiting if it waits. A finished pod counts for nothing.
    pub fn add(&mut self, pod: &StockPod) {
        if pod.phase == PodPhase::Finished {
            return;
        }
        let Some(node) = &pod.node else {
            if pod.requests.iter().any(|(resource, amount)| is_gpu(resource) && !amount.is_zero()) {
                let selected_use = pod.selected_use().map(str::to_owned);
                self.waiting.push(Waiting { requests: pod.requests.clone(), selected_use });
            }
            return;
        };
        // A pod on a node that has gone since holds nothing that is left.
        let Some(rack) = self.by_name.get(node).and_then(|&place| self.nodes.get_mut(place)) else { return };
        rack.pods += 1;
        for (resource, amount) in pod.requests.iter().filter(|(_, amount)| !amount.is_zero()) {
            let requested = rack.requested.entry(resource.clone()).or_insert(Quantity::ZERO);
            *requested = requested.plus(*amount);
            if is_gpu(resource) {
                rack.holders.entry(resource.clone()).or_default().push(pod.full_name());
            }
        }
    }
}

impl NodeUsage {
    fn allocatable(&self, resource: &str) -> Quantity {
        self.node.allocatable.get(resource).copied().unwrap_or(Quantity::ZERO)
    }

    /// What is left of a resource; nothing on a node where no pod may go.
    fn free(&self, resource: &str) -> Quantity {
        let requested = self.requested.get(resource).copied().unwrap_or(Quantity::ZERO);
        self.allocatable(resource).minus(requested).or_zero()
    }

    fn is_open(&self) -> bool {
        self.node.ready && !self.node.unschedulable
    }

    /// What the node's label says it is for.
    fn use_word(&self) -> &'static str {
        match self.node.labels.get(LABEL).map(|label| label.parse::<NodeUse>()) {
            Some(Ok(node_use)) => node_use.value(),
            Some(Err(_)) => INVALID,
            None => UNLABELLED,
        }
    }

    /// The GPU resources that the node advertises, of which it has more than nothing.
    fn advertised(&self) -> impl Iterator<Item = &str> {
        self.node
            .allocatable
            .iter()
            .filter(|(name, amount)| is_gpu(name) && !amount.is_zero())
            .map(|(name, _)| name.as_str())
    }
}

/// The use of a node without the label, in tables.
const UNLABELLED: &str = "unlabelled";
/// The use of a node whose label is none of the three, in tables.
const INVALID: &str = "invalid";
