//! Whether a node is right for its use, in the words of the condition and of Events.
//!
//! Pure. The rules about names are the checker's in `gpupool_core`; here the *effective* use is judged, and where it
//! differs from what the label says, the sentence names the flag.

use std::collections::BTreeSet;

use gpupool_core::checker::{self, Code, JudgedNode, Mismatch, Rules, VGPU_CONFIG_LABEL};
use gpupool_core::node_use::{self, ENABLE_FLAG, LABEL, NodeUse, UseDecision};
use gpupool_core::one_line::one_line;
use gpupool_core::quantity::Quantity;

use crate::advert::{Amounts, Stage};
use crate::cards::{self, ANNOTATION, Cards, CardsError};
use crate::finding::{Finding, Reason};
use crate::observed::Node;
use crate::plan::{Cluster, Source};

/// The cards of a node, as its annotation names them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Named {
    /// There is no annotation.
    Nothing,
    /// There is one, but a kubelet runs the node.
    Ignored,
    /// It names this for the use in effect.
    Offer(Amounts),
    /// It names several resources for the use, of which the rules allow one.
    Several(Vec<String>),
    /// It cannot be read.
    Unreadable(CardsError),
}

impl Named {
    /// Reads a node's annotation.
    pub(crate) fn by(node: &Node, node_use: NodeUse, rules: Rules) -> Self {
        let Some(text) = &node.cards else { return Self::Nothing };
        if node.kubelet {
            return Self::Ignored;
        }
        let offer = match Cards::parse(text) {
            Ok(cards) => cards.offered(node_use),
            Err(error) => return Self::Unreadable(error),
        };
        if rules == Rules::Strict && offer.len() > 1 {
            return Self::Several(offer.into_keys().collect());
        }
        Self::Offer(offer.into_iter().map(|(name, count)| (name, Quantity::whole_units(count))).collect())
    }
}

/// All that the sentences about a node depend on.
#[derive(Debug)]
pub(crate) struct Situation<'a> {
    /// The node as it will be after the next write.
    pub(crate) node: &'a Node,
    pub(crate) cluster: &'a Cluster,
    pub(crate) decision: &'a UseDecision,
    pub(crate) named: &'a Named,
    pub(crate) stage: &'a Stage,
}

impl Situation<'_> {
    /// The condition of a node with the label.
    pub(crate) fn condition(&self, label: &str) -> Finding {
        self.label_is_wrong(label)
            .or_else(|| self.changing())
            .or_else(|| self.cards_are_wrong())
            .or_else(|| self.mismatch(label))
            .unwrap_or_else(|| self.right())
    }

    /// What should be heard and has no condition to stand in.
    pub(crate) fn notices(&self) -> Vec<Finding> {
        let mut notices = Vec::new();
        if *self.named == Named::Ignored {
            let message = format!(
                "annotation {ANNOTATION} does nothing here: a kubelet runs the node, and device plugins advertise its cards; remove the annotation"
            );
            notices.push(Finding::new(Reason::CardsIgnored, message));
        }
        if self.node.workload().is_none() {
            if let Some(finding @ node_use::Finding::NoLabel { .. }) = &self.decision.finding {
                notices.push(Finding::new(Reason::NoLabel, finding.to_string()));
            }
            notices.extend(self.cards_are_wrong());
        }
        notices
    }

    fn label_is_wrong(&self, label: &str) -> Option<Finding> {
        label.parse::<NodeUse>().err()?;
        let effective = self.decision.effective;
        let (reason, mismatch) = if label.is_empty() {
            (Reason::EmptyLabelValue, Mismatch::EmptyLabel)
        } else {
            let nearest = NodeUse::nearest_to(label);
            (Reason::UnknownLabelValue, Mismatch::UnknownLabel { value: one_line(label, 63), nearest })
        };
        let why = if self.cluster.enabled { String::new() } else { format!(", as {}", self.flag_is_off()) };
        Some(Finding::new(reason, format!("{mismatch}; until then the node is for use {effective}{why}")))
    }

    fn changing(&self) -> Option<Finding> {
        let Stage::Withdrawing { gone, next } = self.stage else { return None };
        let follows =
            if next.is_empty() { "nothing follows".to_owned() } else { format!("{} follows", list(next)) };
        let effective = self.decision.effective;
        let message = format!("use {effective}: {} has been withdrawn; {follows}", list(gone));
        Some(Finding::new(Reason::ChangingUse, message))
    }

    fn cards_are_wrong(&self) -> Option<Finding> {
        let effective = self.decision.effective;
        let (reason, message) = match (self.named, self.stage) {
            (Named::Unreadable(error), _) => {
                let message = format!(
                    "annotation {ANNOTATION}: {error}; write for example {}; until then nothing new is advertised",
                    cards::example()
                );
                (Reason::CardsUnreadable, message)
            }
            (Named::Several(names), _) => {
                let message = format!(
                    "annotation {ANNOTATION} names {} for use {effective}; keep one of them, or run gpupool control with --rules operator",
                    names.join(" and ")
                );
                (Reason::CardsAmbiguous, message)
            }
            (Named::Offer(offer), Stage::Blocked { by }) => {
                let wanted = offer.keys().cloned().collect();
                (Reason::ForeignResource, self.blocked(&wanted, by))
            }
            (Named::Offer(offer), _) if offer.is_empty() && self.node.advertised().is_empty() => {
                let message = format!(
                    "annotation {ANNOTATION} names nothing for use {effective}; add {}, or label the node with what its cards are for",
                    effective.expected()
                );
                (Reason::NoCardsForUse, message)
            }
            _ => return None,
        };
        Some(Finding::new(reason, message))
    }

    fn blocked(&self, wanted: &BTreeSet<String>, by: &BTreeSet<String>) -> String {
        let nulls: Vec<String> = by.iter().map(|name| format!("\"{name}\":null")).collect();
        let nulls = nulls.join(",");
        format!(
            "{} is in the node's status and not gpupool's, so {} is not advertised; if nobody needs it: kubectl patch node {} --subresource=status --type=merge -p '{{\"status\":{{\"capacity\":{{{nulls}}},\"allocatable\":{{{nulls}}}}}}}'",
            list(by),
            list(wanted),
            self.node.name,
        )
    }

    /// The checker's verdict on the use in effect.
    fn mismatch(&self, label: &str) -> Option<Finding> {
        let effective = self.decision.effective;
        let allocatable = listed(&self.node.allocatable);
        let capacity = listed(&self.node.capacity);
        let facts = JudgedNode {
            label: Some(effective.value()),
            vgpu_config: self.node.label(VGPU_CONFIG_LABEL),
            allocatable: self.node.has_allocatable.then_some(&allocatable),
            capacity: Some(&capacity),
        };
        let mismatch = checker::judge(self.cluster.rules, facts)?.mismatch?;
        let reason = match mismatch.code() {
            Code::EmptyLabel => Reason::EmptyLabelValue,
            Code::UnknownLabel => Reason::UnknownLabelValue,
            Code::NothingAdvertised => Reason::NothingAdvertised,
            Code::SeveralResources => Reason::SeveralResources,
            Code::WrongKind => Reason::WrongResource,
            Code::OtherProfile => Reason::OtherProfile,
        };
        if label == effective.value() {
            return Some(Finding::new(reason, mismatch.to_string()));
        }
        // The checker's sentence speaks of the label, which is not what was judged.
        let found: BTreeSet<String> = mismatch.found().iter().map(|advert| advert.resource.clone()).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { list(&found) };
        let message =
            format!("{}; it advertises {found}, expected {}", self.not_read(label), effective.expected());
        Some(Finding::new(reason, message))
    }

    fn right(&self) -> Finding {
        if let Some(label) = self.node.workload().filter(|label| *label != self.decision.effective.value()) {
            return Finding::new(Reason::LabelNotRead, self.not_read(label));
        }
        let names: BTreeSet<String> = self.node.advertised().into_keys().collect();
        Finding::new(Reason::Valid, format!("use {}: advertises {}", self.decision.effective, list(&names)))
    }

    fn not_read(&self, label: &str) -> String {
        let effective = self.decision.effective;
        format!(
            "label {LABEL} is \"{label}\" but not read, as {}; the node is for use {effective}",
            self.flag_is_off()
        )
    }

    /// Which flag, and where to set it.
    fn flag_is_off(&self) -> String {
        match &self.cluster.source {
            Source::CommandLine => format!(
                "{ENABLE_FLAG} is not true: run gpupool control with --sandbox-workloads (there is no ClusterPolicy)"
            ),
            Source::ClusterPolicy(name) => {
                format!("{ENABLE_FLAG} is not true in ClusterPolicy {name}: set it there")
            }
        }
    }
}

fn list(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

fn listed(amounts: &Amounts) -> Vec<(&str, Quantity)> {
    amounts.iter().map(|(name, amount)| (name.as_str(), *amount)).collect()
}
