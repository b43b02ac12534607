//! How the verdict is printed. Names come from the dump and are escaped here.

use std::io::{self, Write};

use gpupool_core::checker::Rules;
use gpupool_core::node_use::LABEL;
use gpupool_core::one_line::{one_line, one_word};
use gpupool_dump::check_config::{NodeMismatch, Report, UnlabelledNodes};
use serde_json::{Value, json};

/// Longer names than Kubernetes allows are cut: in characters.
const LONGEST_NAME: usize = 253;
/// Longer labels than Kubernetes allows are cut: in characters.
const LONGEST_LABEL: usize = 63;

/// Writes the warnings, one line each.
pub(super) fn print_warnings(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for warning in &report.warnings {
        writeln!(out, "warning: node {}: {}", one_word(&warning.node, LONGEST_NAME), warning.warning)?;
    }
    if let Some(note) = note_on_unlabelled(&report.unlabelled) {
        writeln!(out, "warning: {note}")?;
    }
    if report.judged == 0 {
        writeln!(out, "warning: no node carries the label {LABEL}: nothing was judged")?;
    }
    Ok(())
}

fn note_on_unlabelled(unlabelled: &UnlabelledNodes) -> Option<String> {
    let more = match unlabelled.count.saturating_sub(unlabelled.first_names.len()) {
        _ if unlabelled.count == 0 => return None,
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names: Vec<_> = unlabelled.first_names.iter().map(|name| one_word(name, LONGEST_NAME)).collect();
    let names = names.join(", ");
    Some(format!(
        "without the label {LABEL}, so not judged, but advertising nvidia.com/ resources: {names}{more}"
    ))
}

/// Writes the verdict as lines: a mismatch each, in name order, or that all is well.
pub(super) fn print_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for bad in &report.mismatches {
        writeln!(out, "MISMATCH={} {}", one_word(&bad.node, LONGEST_NAME), bad.mismatch)?;
    }
    if report.is_ok() {
        writeln!(out, "OK={}", report.judged)?;
    }
    Ok(())
}

/// Writes the verdict as one JSON object.
pub(super) fn print_json(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mismatches: Vec<Value> = report.mismatches.iter().map(mismatch).collect();
    let warnings = report
        .warnings
        .iter()
        .map(|warning| json!({ "node": one_word(&warning.node, LONGEST_NAME), "warning": warning.warning }));
    let rules = match report.rules {
        Rules::Strict => "strict",
        Rules::Operator => "operator",
    };
    let verdict = json!({
        "verdict": if report.is_ok() { "ok" } else { "mismatch" },
        "rules": rules,
        "judged": report.judged,
        "mismatches": mismatches,
        "warnings": warnings.collect::<Vec<_>>(),
        "unlabelled": report.unlabelled.count,
    });
    serde_json::to_writer_pretty(&mut *out, &verdict)?;
    writeln!(out)
}

fn mismatch(bad: &NodeMismatch) -> Value {
    let found = bad.mismatch.found().iter().map(|advert| {
        json!({
            "resource": advert.resource,
            "kind": advert.kind.word(),
            "quantity": advert.quantity.to_string(),
        })
    });
    json!({
        "node": one_word(&bad.node, LONGEST_NAME),
        "label": one_line(&bad.label, LONGEST_LABEL),
        "code": bad.mismatch.code().word(),
        "reason": bad.mismatch.to_string(),
        "found": found.collect::<Vec<_>>(),
    })
}
