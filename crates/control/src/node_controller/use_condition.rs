//! Whether a node is right for its use: the content of the condition and of Events.
//!
//! Pure. The rules about names are the checker's in `gpupool_core`; here the *effective* use is judged, and where it
//! differs from what the label says, the sentence names the flag.

use std::collections::BTreeSet;

use gpupool_core::checker::{self, Code, JudgedNode, Mismatch, Rules, VGPU_CONFIG_LABEL};
use gpupool_core::node_use::{self, ENABLE_FLAG, LABEL, NodeUse, UseDecision};
use gpupool_core::one_line::one_line;
use gpupool_core::quantity::Quantity;

use super::advertisement::AdvertisementStage;
use super::cards_annotation::{self, CARDS_ANNOTATION, CardsError, OfferedResources};
use super::finding::{UseFinding, UseReason};
use super::observed::ObservedNode;
use super::resource_amounts::ResourceAmounts;
use crate::settings::{ClusterSettings, SettingsSource};

/// What a node's annotation says of its cards.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum CardsAnnotation {
    /// There is no annotation.
    Absent,
    /// There is one, but a kubelet runs the node.
    Ignored,
    /// It names this for the use in effect.
    Resources(ResourceAmounts),
    /// It names several resources for the use, of which the rules allow one.
    Ambiguous(Vec<String>),
    /// It cannot be read.
    Unreadable(CardsError),
}

impl CardsAnnotation {
    /// Reads a node's annotation.
    pub(crate) fn read(node: &ObservedNode, node_use: NodeUse, rules: Rules) -> Self {
        let Some(text) = &node.cards else { return Self::Absent };
        if node.kubelet {
            return Self::Ignored;
        }
        let offer = match OfferedResources::parse(text) {
            Ok(cards) => cards.offered(node_use),
            Err(error) => return Self::Unreadable(error),
        };
        if rules == Rules::Strict && offer.len() > 1 {
            return Self::Ambiguous(offer.into_keys().collect());
        }
        Self::Resources(offer.into_iter().map(|(name, count)| (name, Quantity::whole_units(count))).collect())
    }
}

/// All that the condition and the Events about a node's use depend on.
#[derive(Debug)]
pub(crate) struct UseAssessment<'a> {
    /// The node as it will be after the next write.
    pub(crate) node: &'a ObservedNode,
    pub(crate) settings: &'a ClusterSettings,
    pub(crate) decision: &'a UseDecision,
    pub(crate) cards: &'a CardsAnnotation,
    pub(crate) stage: &'a AdvertisementStage,
}

impl UseAssessment<'_> {
    /// The condition of a node with the label.
    pub(crate) fn condition(&self, label: &str) -> UseFinding {
        self.label_is_wrong(label)
            .or_else(|| self.changing())
            .or_else(|| self.cards_are_wrong())
            .or_else(|| self.mismatch(label))
            .unwrap_or_else(|| self.right())
    }

    /// What people should learn of the node and no condition says.
    pub(crate) fn notices(&self) -> Vec<UseFinding> {
        let mut notices = Vec::new();
        if *self.cards == CardsAnnotation::Ignored {
            let message = format!(
                "annotation {CARDS_ANNOTATION} does nothing here: a kubelet runs the node, and device plugins advertise its cards; remove the annotation"
            );
            notices.push(UseFinding::new(UseReason::CardsIgnored, message));
        }
        if self.node.workload().is_none() {
            if let Some(finding @ node_use::Finding::NoLabel { .. }) = &self.decision.finding {
                notices.push(UseFinding::new(UseReason::NoLabel, finding.to_string()));
            }
            notices.extend(self.cards_are_wrong());
        }
        notices
    }

    fn label_is_wrong(&self, label: &str) -> Option<UseFinding> {
        label.parse::<NodeUse>().err()?;
        let effective = self.decision.effective;
        let (reason, mismatch) = if label.is_empty() {
            (UseReason::EmptyLabelValue, Mismatch::EmptyLabel)
        } else {
            let nearest = NodeUse::nearest_to(label);
            (UseReason::UnknownLabelValue, Mismatch::UnknownLabel { value: one_line(label, 63), nearest })
        };
        let why = if self.settings.enabled { String::new() } else { format!(", as {}", self.flag_is_off()) };
        Some(UseFinding::new(reason, format!("{mismatch}; until then the node is for use {effective}{why}")))
    }

    fn changing(&self) -> Option<UseFinding> {
        let AdvertisementStage::Withdrawing { gone, next } = self.stage else { return None };
        let follows =
            if next.is_empty() { "nothing follows".to_owned() } else { format!("{} follows", list(next)) };
        let effective = self.decision.effective;
        let message = format!("use {effective}: {} has been withdrawn; {follows}", list(gone));
        Some(UseFinding::new(UseReason::ChangingUse, message))
    }

    fn cards_are_wrong(&self) -> Option<UseFinding> {
        let effective = self.decision.effective;
        let (reason, message) = match (self.cards, self.stage) {
            (CardsAnnotation::Unreadable(error), _) => {
                let message = format!(
                    "annotation {CARDS_ANNOTATION}: {error}; write for example {}; until then nothing new is advertised",
                    cards_annotation::example()
                );
                (UseReason::CardsUnreadable, message)
            }
            (CardsAnnotation::Ambiguous(names), _) => {
                let message = format!(
                    "annotation {CARDS_ANNOTATION} names {} for use {effective}; keep one of them, or run gpupool control with --rules operator",
                    names.join(" and ")
                );
                (UseReason::CardsAmbiguous, message)
            }
            (CardsAnnotation::Resources(offer), AdvertisementStage::Blocked { by }) => {
                let wanted = offer.keys().cloned().collect();
                (UseReason::ForeignResource, self.blocked(&wanted, by))
            }
            (CardsAnnotation::Resources(offer), _)
                if offer.is_empty() && self.node.advertised().is_empty() =>
            {
                let message = format!(
                    "annotation {CARDS_ANNOTATION} names nothing for use {effective}; add {}, or label the node with what its cards are for",
                    effective.expected()
                );
                (UseReason::NoCardsForUse, message)
            }
            _ => return None,
        };
        Some(UseFinding::new(reason, message))
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
    fn mismatch(&self, label: &str) -> Option<UseFinding> {
        let effective = self.decision.effective;
        let allocatable = listed(&self.node.allocatable);
        let capacity = listed(&self.node.capacity);
        let facts = JudgedNode {
            label: Some(effective.value()),
            vgpu_config: self.node.label(VGPU_CONFIG_LABEL),
            allocatable: self.node.has_allocatable.then_some(&allocatable),
            capacity: Some(&capacity),
        };
        let mismatch = checker::judge(self.settings.rules, facts)?.mismatch?;
        let reason = match mismatch.code() {
            Code::EmptyLabel => UseReason::EmptyLabelValue,
            Code::UnknownLabel => UseReason::UnknownLabelValue,
            Code::NothingAdvertised => UseReason::NothingAdvertised,
            Code::SeveralResources => UseReason::SeveralResources,
            Code::WrongKind => UseReason::WrongResource,
            Code::OtherProfile => UseReason::OtherProfile,
        };
        if label == effective.value() {
            return Some(UseFinding::new(reason, mismatch.to_string()));
        }
        // The checker's sentence speaks of the label, which is not what was judged.
        let found: BTreeSet<String> = mismatch.found().iter().map(|found| found.resource.clone()).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { list(&found) };
        let message =
            format!("{}; it advertises {found}, expected {}", self.not_read(label), effective.expected());
        Some(UseFinding::new(reason, message))
    }

    fn right(&self) -> UseFinding {
        if let Some(label) = self.node.workload().filter(|label| *label != self.decision.effective.value()) {
            return UseFinding::new(UseReason::LabelNotRead, self.not_read(label));
        }
        let names: BTreeSet<String> = self.node.advertised().into_keys().collect();
        UseFinding::new(
            UseReason::Valid,
            format!("use {}: advertises {}", self.decision.effective, list(&names)),
        )
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
        match &self.settings.source {
            SettingsSource::CommandLine => format!(
                "{ENABLE_FLAG} is not true: run gpupool control with --sandbox-workloads (there is no ClusterPolicy)"
            ),
            SettingsSource::ClusterPolicy(name) => {
                format!("{ENABLE_FLAG} is not true in ClusterPolicy {name}: set it there")
            }
        }
    }
}

fn list(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

fn listed(amounts: &ResourceAmounts) -> Vec<(&str, Quantity)> {
    amounts.iter().map(|(name, amount)| (name.as_str(), *amount)).collect()
}
