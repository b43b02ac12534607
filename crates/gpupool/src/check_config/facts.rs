//! From a node in a dump to what the checker looks at.

use std::path::Path;

use gpupool_core::checker::{self, NodeFacts};
use gpupool_core::names;
use gpupool_core::node_use::LABEL;
use gpupool_core::one_line::one_line;
use serde::Deserialize;

use super::report::Report;
use crate::dump::fields::{Kept, Keys, Resources, Text, object};
use crate::dump::{self, DumpError, Header, Shape};

/// Judges every node of a dump into the report.
pub(super) fn judge_all(path: &Path, report: &mut Report) -> Result<(), DumpError> {
    dump::read::<NodeShape>(path, &mut |node| judge(&node, report))
}

/// A node, as far as the checker reads it.
pub(super) struct NodeShape;

impl Shape for NodeShape {
    type Item<'a> = Node<'a>;

    const KIND: &'static str = "Node";

    fn header<'i>(node: &'i Node<'_>) -> Header<'i> {
        let text = |text: &'i Option<Text<'_>>| text.as_ref().map(|text| text.0.as_ref());
        Header { kind: text(&node.kind), api_version: text(&node.api_version) }
    }
}

/// The parts of a Node object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node<'a> {
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    status: Option<Status<'a>>,
}

#[derive(Debug, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    labels: Option<Kept<'a, Text<'a>, JudgedLabels>>,
}

#[derive(Debug, Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    allocatable: Option<Resources<'a, Nvidia>>,
    #[serde(borrow)]
    capacity: Option<Resources<'a, Nvidia>>,
}

/// The labels that the checker reads.
#[derive(Debug)]
struct JudgedLabels;

impl Keys for JudgedLabels {
    fn keep(key: &str) -> bool {
        key == LABEL || key == checker::VGPU_CONFIG_LABEL
    }
}

/// The resources that the checker reads.
#[derive(Debug)]
struct Nvidia;

impl Keys for Nvidia {
    fn keep(key: &str) -> bool {
        key.starts_with(names::DOMAIN)
    }
}

impl Node<'_> {
    fn label(&self, wanted: &str) -> Option<&str> {
        let labels = self.metadata.as_ref()?.labels.as_ref()?;
        labels.0.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.0.as_ref())
    }
}

fn judge(node: &Node<'_>, report: &mut Report) -> Result<(), String> {
    let name = node.metadata.as_ref().and_then(|metadata| metadata.name.as_ref()).map(|name| name.0.as_ref());
    let name = name.filter(|name| !name.is_empty()).ok_or("a node without a name")?;
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let capacity = status.and_then(|status| status.capacity.as_ref());
    let Some(label) = node.label(LABEL) else {
        // Not judged, so an oddity in it is no reason to refuse the dump.
        let seen = allocatable.or(capacity).map(|resources| resources.quantities().unwrap_or_default());
        let seen = seen.unwrap_or_default();
        let facts = NodeFacts { allocatable: Some(&seen), ..NodeFacts::default() };
        report.unlabelled(name, !checker::advertised(facts).is_empty());
        return Ok(());
    };
    let named = |what: String| format!("node {}: {what}", one_line(name, 100));
    let allocatable = allocatable.map(Resources::quantities).transpose().map_err(named)?;
    let capacity = match capacity.map(Resources::quantities).transpose() {
        Ok(capacity) => capacity,
        Err(what) if allocatable.is_some() => {
            report.warn(name, format!("capacity does not count here and cannot be read: {what}"));
            None
        }
        Err(what) => return Err(named(what)),
    };
    let facts = NodeFacts {
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
