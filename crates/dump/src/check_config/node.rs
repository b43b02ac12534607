//! A node in a dump, as far as the checker reads it, borrowed from the text.

use gpupool_core::checker;
use gpupool_core::names;
use gpupool_core::node_use::LABEL;
use serde::Deserialize;

use crate::document::{Header, ObjectPart};
use crate::fields::{FilteredMap, KeyFilter, RawResources, Text, object};

/// Nodes, as far as the checker reads them.
pub(super) struct CheckedNodes;

impl ObjectPart for CheckedNodes {
    type Part<'a> = CheckedNode<'a>;

    const KIND: &'static str = "Node";

    fn header<'i>(node: &'i CheckedNode<'_>) -> Header<'i> {
        let text = |text: &'i Option<Text<'_>>| text.as_ref().map(|text| text.0.as_ref());
        Header { kind: text(&node.kind), api_version: text(&node.api_version) }
    }
}

/// The parts of a Node object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckedNode<'a> {
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
    labels: Option<FilteredMap<'a, Text<'a>, JudgedLabels>>,
}

#[derive(Debug, Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    allocatable: Option<RawResources<'a, Nvidia>>,
    #[serde(borrow)]
    capacity: Option<RawResources<'a, Nvidia>>,
}

/// The labels that the checker reads.
#[derive(Debug)]
struct JudgedLabels;

impl KeyFilter for JudgedLabels {
    fn keep(key: &str) -> bool {
        key == LABEL || key == checker::VGPU_CONFIG_LABEL
    }
}

/// The resources that the checker reads.
#[derive(Debug)]
pub(super) struct Nvidia;

impl KeyFilter for Nvidia {
    fn keep(key: &str) -> bool {
        key.starts_with(names::DOMAIN)
    }
}

impl CheckedNode<'_> {
    /// The node's name, if it has one.
    pub(super) fn name(&self) -> Option<&str> {
        let name = self.metadata.as_ref()?.name.as_ref()?.0.as_ref();
        Some(name).filter(|name| !name.is_empty())
    }

    /// What its `status.allocatable` says.
    pub(super) fn allocatable(&self) -> Option<&RawResources<'_, Nvidia>> {
        self.status.as_ref()?.allocatable.as_ref()
    }

    /// What its `status.capacity` says.
    pub(super) fn capacity(&self) -> Option<&RawResources<'_, Nvidia>> {
        self.status.as_ref()?.capacity.as_ref()
    }

    /// The value of a label, one of those that the checker reads.
    pub(super) fn label(&self, wanted: &str) -> Option<&str> {
        let labels = self.metadata.as_ref()?.labels.as_ref()?;
        labels.0.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.0.as_ref())
    }
}
