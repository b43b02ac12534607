//! Whether the nodes of a dump advertise what their labels say: what `gpupool check-config` reports.
//!
//! Nodes become the facts that `gpupool_core::checker` judges; nothing is decided or printed here.

mod node;
mod report;

use std::io::Read;

use gpupool_core::checker::{self, JudgedNode, Rules};
use gpupool_core::node_use::LABEL;
use gpupool_core::one_line::one_line;

use node::{CheckedNode, CheckedNodes};

use crate::document;
use crate::error::{DumpError, ObjectError, ResourceError};
use crate::fields::RawResources;

pub use report::{NodeMismatch, NodeWarning, Report, UnlabelledNodes};

/// Judges every node of a dump. There is no report on a part of a dump.
pub fn check(source: impl Read, rules: Rules) -> Result<Report, DumpError> {
    let mut report = Report::new(rules);
    document::read::<CheckedNodes>(source, &mut |node| judge(&node, &mut report))?;
    report.sort();
    Ok(report)
}

fn judge(node: &CheckedNode<'_>, report: &mut Report) -> Result<(), ObjectError> {
    let name = node.name().ok_or(ObjectError::Nameless("node"))?;
    let (allocatable, capacity) = (node.allocatable(), node.capacity());
    let Some(label) = node.label(LABEL) else {
        // Not judged, so an oddity in it is no reason to refuse the dump.
        let seen = allocatable.or(capacity).map(|resources| resources.quantities().unwrap_or_default());
        let seen = seen.unwrap_or_default();
        let facts = JudgedNode { allocatable: Some(&seen), ..JudgedNode::default() };
        report.unlabelled(name, !checker::advertised(facts).is_empty());
        return Ok(());
    };
    let named = |why: ResourceError| ObjectError::Quantity { kind: "node", name: one_line(name, 100), why };
    let allocatable = allocatable.map(RawResources::quantities).transpose().map_err(named)?;
    let capacity = match capacity.map(RawResources::quantities).transpose() {
        Ok(capacity) => capacity,
        Err(what) if allocatable.is_some() => {
            report.warn(name, format!("capacity does not count here and cannot be read: {what}"));
            None
        }
        Err(what) => return Err(named(what)),
    };
    let facts = JudgedNode {
        label: Some(label),
        vgpu_config: node.label(checker::VGPU_CONFIG_LABEL),
        allocatable: allocatable.as_deref(),
        capacity: capacity.as_deref(),
    };
    report.judge(name, facts);
    Ok(())
}

#[cfg(test)]
mod tests;
