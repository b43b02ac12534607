//! What the checker found out about the nodes of a dump. Names and labels are as the dump has them, so possibly hostile:
//! whoever prints them escapes them.

use gpupool_core::checker::{self, JudgedNode, Mismatch, Rules};

/// How many unlabelled nodes are named before the rest is only counted.
const NAMED: usize = 3;

/// The verdict on a dump.
#[derive(Debug)]
pub struct Report {
    /// The rules that the nodes were judged by.
    pub rules: Rules,
    /// How many nodes carry the label and were judged.
    pub judged: usize,
    /// The nodes that advertise something else than their label says, in name order.
    pub mismatches: Vec<NodeMismatch>,
    /// What is odd about nodes without making them a mismatch, in the order of the dump.
    pub warnings: Vec<NodeWarning>,
    /// Nodes that advertise something without carrying the label.
    pub unlabelled: UnlabelledNodes,
}

/// A node that advertises something else than its label says.
#[derive(Debug)]
pub struct NodeMismatch {
    /// Its name.
    pub node: String,
    /// What its label says.
    pub label: String,
    /// What is wrong.
    pub mismatch: Mismatch,
}

/// Something odd about a node.
#[derive(Debug)]
pub struct NodeWarning {
    /// Its name.
    pub node: String,
    /// What is odd, as part of a sentence.
    pub warning: String,
}

/// Nodes that are not judged although they advertise something.
#[derive(Debug, Default)]
pub struct UnlabelledNodes {
    /// How many there are.
    pub count: usize,
    /// The names of the first few.
    pub first_names: Vec<String>,
}

impl Report {
    /// A report on no node yet.
    pub(super) fn new(rules: Rules) -> Self {
        let (mismatches, warnings) = (Vec::new(), Vec::new());
        Self { rules, judged: 0, mismatches, warnings, unlabelled: UnlabelledNodes::default() }
    }

    /// Judges a node that carries the label.
    pub(super) fn judge(&mut self, node: &str, facts: JudgedNode<'_>) {
        let Some(judgement) = checker::judge(self.rules, facts) else { return };
        self.judged += 1;
        for warning in judgement.warnings {
            self.warn(node, warning.to_string());
        }
        if let Some(mismatch) = judgement.mismatch {
            let label = facts.label.unwrap_or_default().to_owned();
            self.mismatches.push(NodeMismatch { node: node.to_owned(), label, mismatch });
        }
    }

    /// Counts a node that does not carry the label.
    pub(super) fn unlabelled(&mut self, node: &str, advertises: bool) {
        if advertises {
            self.unlabelled.count += 1;
            if self.unlabelled.first_names.len() < NAMED {
                self.unlabelled.first_names.push(node.to_owned());
            }
        }
    }

    /// Notes something odd about a node.
    pub(super) fn warn(&mut self, node: &str, warning: String) {
        self.warnings.push(NodeWarning { node: node.to_owned(), warning });
    }

    /// Whether every judged node matches.
    pub fn is_ok(&self) -> bool {
        self.mismatches.is_empty()
    }

    /// Puts the mismatches in the order of the nodes' names.
    pub(super) fn sort(&mut self) {
        self.mismatches.sort_by(|left, right| left.node.cmp(&right.node));
    }
}
