//! What to write to a node next: pure, from the node as seen and the cluster's settings.
//!
//! One step at a time. Every step is written on the condition that the node is still the one that was judged, and
//! the next is planned from what came back, so no step builds on a guess. The order of steps:
//!
//! 1. names of this controller that the use in effect does not ask for are withdrawn, alone;
//! 2. deploy labels, where they are managed;
//! 3. what the use asks for is advertised, unless a name of another writer is in the way;
//! 4. the share policy, whose steps are described in `share_policy`.
//!
//! The condition goes with whichever step touches the status, and says what will hold after that step.

use gpupool_core::names::classify;
use gpupool_core::node_use::{self, NodeLabels, NodeUse, UseDecision};

use super::advertisement::{Advertisement, AdvertisementStage};
use super::deploy_labels;
use super::finding::UseFinding;
use super::node_write::{NodeWrite, UseStatus};
use super::observed::ObservedNode;
use super::resource_amounts::ResourceAmounts;
use super::share_policy;
use super::use_condition::{CardsAnnotation, UseAssessment};
use crate::settings::ClusterSettings;

/// What to do about one node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// The next write; nothing when all is as it should be.
    pub write: Option<NodeWrite>,
    /// What people should learn of the node and no condition says; each is recorded in one Event.
    pub notices: Vec<UseFinding>,
}

/// Plans the next step for a node.
pub fn plan(node: &ObservedNode, settings: &ClusterSettings) -> Plan {
    let mut plan = plan_use(node, settings);
    plan.write = plan.write.or_else(|| {
        let node_use = effective_use(node, settings).unwrap_or_default();
        share_policy::next(node, node_use, !settings.no_reservation)
    });
    plan
}

fn plan_use(node: &ObservedNode, settings: &ClusterSettings) -> Plan {
    let Some(decision) = decide(node, settings) else {
        // No GPU node, or no longer one: what this controller has put there is removed.
        let write = status_write(node, Advertisement::next(node, &ResourceAmounts::new()), None);
        return Plan { write, notices: Vec::new() };
    };
    let cards = CardsAnnotation::read(node, decision.effective, settings.rules);
    let advertisement = Advertisement::next(node, &wanted(node, &cards, decision.effective));
    let assessment = UseAssessment {
        node: &node.advertising(&advertisement.capacity, &advertisement.allocatable),
        settings,
        decision: &decision,
        cards: &cards,
        stage: &advertisement.stage,
    };
    let condition = node.workload().map(|label| assessment.condition(label));
    let notices = assessment.notices();
    let withdrawing = matches!(advertisement.stage, AdvertisementStage::Withdrawing { .. });
    let status = status_write(node, advertisement, condition);
    let write =
        if withdrawing { status } else { labels_write(node, settings, decision.effective).or(status) };
    Plan { write, notices }
}

/// The use in effect; nothing for a node that has nothing to do with GPUs.
pub fn effective_use(node: &ObservedNode, settings: &ClusterSettings) -> Option<NodeUse> {
    decide(node, settings).map(|decision| decision.effective)
}

/// What the node is for; nothing for a node that has nothing to do with GPUs.
fn decide(node: &ObservedNode, settings: &ClusterSettings) -> Option<UseDecision> {
    let names_a_gpu = || node.advertised().keys().any(|name| NodeUse::advertising(classify(name)).is_some());
    let concerned =
        node.workload().is_some() || node.cards.is_some() || deploy_labels::has_card(node) || names_a_gpu();
    let sandbox = node_use::OperatorSettings {
        enabled: settings.enabled,
        default_workload: settings.default_workload.as_deref(),
    };
    node_use::decide(sandbox, NodeLabels { gpu_present: concerned, workload: node.workload() })
}

/// The names that are wanted on the node, from this controller.
fn wanted(node: &ObservedNode, cards: &CardsAnnotation, node_use: NodeUse) -> ResourceAmounts {
    match cards {
        CardsAnnotation::Absent | CardsAnnotation::Ignored => ResourceAmounts::new(),
        CardsAnnotation::Resources(amounts) => amounts.clone(),
        // A mistake in the annotation takes nothing away that is right for the use.
        CardsAnnotation::Unreadable(_) | CardsAnnotation::Ambiguous(_) => {
            let current = Advertisement::current(node);
            let own = current.capacity.into_iter().chain(current.allocatable);
            own.filter(|(name, _)| NodeUse::advertising(classify(name)) == Some(node_use)).collect()
        }
    }
}

/// The status write, unless the status is like that already.
fn status_write(
    node: &ObservedNode,
    advertisement: Advertisement,
    condition: Option<UseFinding>,
) -> Option<NodeWrite> {
    let (same, emit_event) = match (&condition, &node.condition) {
        (Some(wanted), Some(current)) => (wanted.is_said_by(current), wanted.reason.emits_event()),
        (Some(wanted), None) => (false, wanted.reason.emits_event()),
        // One that somebody else wrote would not go, however often it was left out.
        (None, current) => (current.is_none() || !node.own.has_condition(), false),
    };
    let write = UseStatus { emit_event: emit_event && !same, condition, advertisement };
    (!same || !write.advertisement.is_current(node)).then_some(NodeWrite::UseStatus(write))
}

fn labels_write(node: &ObservedNode, settings: &ClusterSettings, node_use: NodeUse) -> Option<NodeWrite> {
    let changes = settings.manage_operands.then(|| deploy_labels::changes(node, node_use, settings.mode))?;
    (!changes.is_empty()).then_some(NodeWrite::DeployLabels(changes))
}
