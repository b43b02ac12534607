//! What to write to a node next: pure, from the node as seen and the cluster's settings.
//!
//! One step at a time. Every step is written on the condition that the node is still the one that was judged, and
//! the next is planned from what came back, so no step builds on a guess. The order of steps:
//!
//! 1. names of this controller that the use in effect does not ask for are withdrawn, alone;
//! 2. deploy labels, where they are managed;
//! 3. what the use asks for is advertised, unless a name of somebody else stands in the way;
//! 4. the share policy, whose steps are told in [`crate::share_policy`].
//!
//! The condition goes with whichever step touches the status, and says what will hold after that step.

use gpupool_core::checker::Rules;
use gpupool_core::names::classify;
use gpupool_core::node_use::operands::Mode;
use gpupool_core::node_use::{self, NodeLabels, NodeUse, OperatorSettings, UseDecision};

use crate::advert::{Advert, Amounts, Stage};
use crate::deploy_labels::{self, LabelChanges};
use crate::finding::Finding;
use crate::judgement::{Named, Situation};
use crate::observed::Node;
use crate::share_policy::{self, Marks, StatusChange};

/// The cluster's side of every decision.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// Whether sandbox workloads are enabled.
    pub enabled: bool,
    /// What unlabelled nodes are for; `container` where nothing is set.
    pub default_workload: Option<String>,
    /// Which runtime the virtual machines use.
    pub mode: Mode,
    /// Where these come from.
    pub source: Source,
    /// Which rules decide whether a node is right.
    pub rules: Rules,
    /// Whether deploy labels are written. Never where GPU Operator runs: there they are its own.
    pub manage_operands: bool,
    /// Whether nodes that share keep all of their cpu, memory and ephemeral storage for pods.
    pub no_reservation: bool,
}

/// Where the flag is read from, so that people are told what to change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Source {
    /// The command line of `gpupool control`.
    #[default]
    CommandLine,
    /// The `ClusterPolicy` of this name.
    ClusterPolicy(String),
}

/// One write to one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// This controller's part of the status, whole: what is not in it goes.
    Status(StatusWrite),
    /// Changes of deploy labels.
    Labels(LabelChanges),
    /// The marks of the share policy in force.
    Marks(Marks),
    /// What the status says of sharing.
    Share(StatusChange),
}

impl Write {
    /// What an Event should tell once this is written: a word and a sentence.
    pub fn told(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Status(write) if write.tell => {
                write.condition.as_ref().map(|finding| (finding.reason.word(), &finding.message[..]))
            }
            Self::Share(change) if change.tell => {
                change.conditions[0].as_ref().map(|valid| (valid.reason, &valid.message[..]))
            }
            _ => None,
        }
    }

    /// What it says on the node, for the log: the same for a condition that is no news.
    pub fn said(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Status(write) => {
                write.condition.as_ref().map(|finding| (finding.reason.word(), &finding.message[..]))
            }
            Self::Share(change) => {
                let [valid, policy] = &change.conditions;
                let news = valid.as_ref().filter(|valid| !valid.holds).or(policy.as_ref());
                news.map(|condition| (condition.reason, &condition.message[..]))
            }
            Self::Marks(marks) => Some(("PolicyInForce", marks.policy.as_deref().unwrap_or("none"))),
            Self::Labels(_) => None,
        }
    }
}

/// This controller's part of a node's status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StatusWrite {
    /// Its part of capacity and allocatable.
    pub advert: Advert,
    /// The condition; nothing for a node without the label, which has none.
    pub condition: Option<Finding>,
    /// Whether an Event should tell of the condition, once it is written.
    pub tell: bool,
}

/// What to do about one node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// The next write; nothing when all is as it should be.
    pub write: Option<Write>,
    /// What should be heard about the node and has no condition to stand in. To be told once.
    pub notices: Vec<Finding>,
}

/// Plans the next step for a node.
pub fn plan(node: &Node, cluster: &Cluster) -> Plan {
    let mut plan = plan_use(node, cluster);
    plan.write = plan.write.or_else(|| share_policy::next(node, cluster));
    plan
}

fn plan_use(node: &Node, cluster: &Cluster) -> Plan {
    let Some(decision) = decide(node, cluster) else {
        // No GPU node, or no longer one: what this controller has put there goes.
        let write = status_write(node, Advert::towards(node, &Amounts::new()), None);
        return Plan { write, notices: Vec::new() };
    };
    let named = Named::by(node, decision.effective, cluster.rules);
    let advert = Advert::towards(node, &wanted(node, &named, decision.effective));
    let situation = Situation {
        node: &node.with_advert(&advert),
        cluster,
        decision: &decision,
        named: &named,
        stage: &advert.stage,
    };
    let condition = node.workload().map(|label| situation.condition(label));
    let notices = situation.notices();
    let withdrawing = matches!(advert.stage, Stage::Withdrawing { .. });
    let status = status_write(node, advert, condition);
    let write = if withdrawing { status } else { labels_write(node, cluster, decision.effective).or(status) };
    Plan { write, notices }
}

/// The use in effect; nothing for a node that has nothing to do with GPUs.
pub fn effective_use(node: &Node, cluster: &Cluster) -> Option<NodeUse> {
    decide(node, cluster).map(|decision| decision.effective)
}

/// What the node is for; nothing for a node that has nothing to do with GPUs.
fn decide(node: &Node, cluster: &Cluster) -> Option<UseDecision> {
    let names_a_gpu = || node.advertised().keys().any(|name| NodeUse::advertising(classify(name)).is_some());
    let concerned =
        node.workload().is_some() || node.cards.is_some() || deploy_labels::has_card(node) || names_a_gpu();
    let settings =
        OperatorSettings { enabled: cluster.enabled, default_workload: cluster.default_workload.as_deref() };
    node_use::decide(settings, NodeLabels { gpu_present: concerned, workload: node.workload() })
}

/// The names that are wanted on the node, from this controller.
fn wanted(node: &Node, named: &Named, node_use: NodeUse) -> Amounts {
    match named {
        Named::Nothing | Named::Ignored => Amounts::new(),
        Named::Offer(offer) => offer.clone(),
        // A mistake in the annotation takes nothing away that is right for the use.
        Named::Unreadable(_) | Named::Several(_) => {
            let standing = Advert::standing(node);
            let own = standing.capacity.into_iter().chain(standing.allocatable);
            own.filter(|(name, _)| NodeUse::advertising(classify(name)) == Some(node_use)).collect()
        }
    }
}

/// The status write, if the status is not like that already.
fn status_write(node: &Node, advert: Advert, condition: Option<Finding>) -> Option<Write> {
    let (same, tell) = match (&condition, &node.condition) {
        (Some(wanted), Some(standing)) => (wanted.stands(standing), wanted.reason.is_told()),
        (Some(wanted), None) => (false, wanted.reason.is_told()),
        // One that somebody else wrote would not go, however often it was left out.
        (None, standing) => (standing.is_none() || !node.own.has_condition(), false),
    };
    let write = StatusWrite { tell: tell && !same, condition, advert };
    (!same || !write.advert.stands(node)).then_some(Write::Status(write))
}

fn labels_write(node: &Node, cluster: &Cluster, node_use: NodeUse) -> Option<Write> {
    let changes = cluster.manage_operands.then(|| deploy_labels::changes(node, node_use, cluster.mode))?;
    (!changes.is_empty()).then_some(Write::Labels(changes))
}
