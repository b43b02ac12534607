//! What the checker found, and how it is printed.

use std::io::{self, Write};

use gpupool_core::checker::{self, Mismatch, NodeFacts, Rules};
use gpupool_core::node_use::LABEL;
use gpupool_core::one_line::{one_line, one_word};
use serde_json::{Value, json};

/// How many unlabelled nodes are named before the rest is only counted.
const NAMED: usize = 3;
/// Longer names than Kubernetes allows are cut.
const LONGEST_NAME: usize = 253;

/// The verdict on a dump.
pub(super) struct Report {
    rules: Rules,
    judged: usize,
    mismatches: Vec<Bad>,
    warnings: Vec<Odd>,
    /// Nodes that advertise something without carrying the label.
    unlabelled: usize,
    unlabelled_names: Vec<String>,
}

struct Bad {
    node: String,
    label: String,
    mismatch: Mismatch,
}

struct Odd {
    node: String,
    what: String,
}

impl Report {
    /// A report on no node yet.
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            judged: 0,
            mismatches: Vec::new(),
            warnings: Vec::new(),
            unlabelled: 0,
            unlabelled_names: Vec::new(),
        }
    }

    /// Judges a node that carries the label.
    pub(super) fn judge(&mut self, node: &str, facts: NodeFacts<'_>) {
        let Some(judgement) = checker::judge(self.rules, facts) else { return };
        self.judged += 1;
        for warning in judgement.warnings {
            self.warn(node, warning.to_string());
        }
        if let Some(mismatch) = judgement.mismatch {
            let label = one_line(facts.label.unwrap_or_default(), 63);
            self.mismatches.push(Bad { node: node.to_owned(), label, mismatch });
        }
    }

    /// Counts a node that does not carry the label.
    pub(super) fn unlabelled(&mut self, node: &str, advertises: bool) {
        if advertises {
            self.unlabelled += 1;
            if self.unlabelled_names.len() < NAMED {
                self.unlabelled_names.push(one_word(node, LONGEST_NAME));
            }
        }
    }

    /// Notes something odd about a node.
    pub(super) fn warn(&mut self, node: &str, what: String) {
        self.warnings.push(Odd { node: one_word(node, LONGEST_NAME), what });
    }

    /// Whether every judged node matches.
    pub(super) fn is_ok(&self) -> bool {
        self.mismatches.is_empty()
    }

    /// Writes the warnings, one line each.
    pub(super) fn print_warnings(&self, out: &mut impl Write) -> io::Result<()> {
        for warning in &self.warnings {
            writeln!(out, "warning: node {}: {}", warning.node, warning.what)?;
        }
        if let Some(note) = self.note_on_unlabelled() {
            writeln!(out, "warning: {note}")?;
        }
        if self.judged == 0 {
            writeln!(out, "warning: no node carries the label {LABEL}: nothing was judged")?;
        }
        Ok(())
    }

    fn note_on_unlabelled(&self) -> Option<String> {
        let more = match self.unlabelled.saturating_sub(self.unlabelled_names.len()) {
            _ if self.unlabelled == 0 => return None,
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = self.unlabelled_names.join(", ");
        Some(format!(
            "without the label {LABEL}, so not judged, but advertising nvidia.com/ resources: {names}{more}"
        ))
    }

    /// Writes the verdict as lines: a mismatch each, in name order, or that all is well.
    pub(super) fn print_text(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.sort();
        for bad in &self.mismatches {
            writeln!(out, "MISMATCH={} {}", one_word(&bad.node, LONGEST_NAME), bad.mismatch)?;
        }
        if self.is_ok() {
            writeln!(out, "OK={}", self.judged)?;
        }
        Ok(())
    }

    /// Writes the verdict as one JSON object.
    pub(super) fn print_json(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.sort();
        let mismatches: Vec<Value> = self.mismatches.iter().map(Bad::json).collect();
        let warnings = self.warnings.iter().map(|odd| json!({ "node": odd.node, "warning": odd.what }));
        let rules = match self.rules {
            Rules::Strict => "strict",
            Rules::Operator => "operator",
        };
        let verdict = json!({
            "verdict": if self.is_ok() { "ok" } else { "mismatch" },
            "rules": rules,
            "judged": self.judged,
            "mismatches": mismatches,
            "warnings": warnings.collect::<Vec<_>>(),
            "unlabelled": self.unlabelled,
        });
        serde_json::to_writer_pretty(&mut *out, &verdict)?;
        writeln!(out)
    }

    fn sort(&mut self) {
        self.mismatches.sort_by(|left, right| left.node.cmp(&right.node));
    }
}

impl Bad {
    fn json(&self) -> Value {
        let found = self.mismatch.found().iter().map(|advert| {
            json!({
                "resource": advert.resource,
                "kind": advert.kind.word(),
                "quantity": advert.quantity.to_string(),
            })
        });
        json!({
            "node": one_word(&self.node, LONGEST_NAME),
            "label": self.label,
            "code": self.mismatch.code().word(),
            "reason": self.mismatch.to_string(),
            "found": found.collect::<Vec<_>>(),
        })
    }
}
