//! A node in a dump, as far as the stock depends on it.

use std::collections::BTreeMap;

use gpupool_core::one_line::one_line;
use gpupool_core::stock::{StockNode, Taint};
use serde::Deserialize;

use super::taint_effect::EffectName;
use crate::document::{Header, ObjectPart};
use crate::error::{ObjectError, ResourceError};
use crate::fields::{AllKeys, RawResources, object};

/// Nodes, as far as the stock reads them.
pub(super) struct StockNodes;

impl ObjectPart for StockNodes {
    type Part<'a> = NodeObject<'a>;

    const KIND: &'static str = "Node";

    fn header<'i>(node: &'i NodeObject<'_>) -> Header<'i> {
        Header { kind: node.kind.as_deref(), api_version: node.api_version.as_deref() }
    }
}

/// The parts of a Node object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeObject<'a> {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(default, deserialize_with = "object")]
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "object")]
    spec: Option<Spec>,
    #[serde(borrow, default, deserialize_with = "object")]
    status: Option<Status<'a>>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    unschedulable: Option<bool>,
    taints: Option<Vec<TaintObject>>,
}

#[derive(Debug, Deserialize)]
struct TaintObject {
    key: String,
    value: Option<String>,
    effect: EffectName,
}

#[derive(Debug, Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    allocatable: Option<RawResources<'a, AllKeys>>,
    #[serde(borrow)]
    capacity: Option<RawResources<'a, AllKeys>>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl NodeObject<'_> {
    /// The node as a value, or what is missing in it.
    pub(super) fn into_node(self) -> Result<StockNode, ObjectError> {
        let metadata = self.metadata.ok_or(ObjectError::Nameless("node"))?;
        let name = metadata.name.filter(|name| !name.is_empty()).ok_or(ObjectError::Nameless("node"))?;
        let named =
            |why: ResourceError| ObjectError::Quantity { kind: "node", name: one_line(&name, 100), why };
        let (spec, status) = (self.spec.unwrap_or_default(), self.status.unwrap_or_default());
        let conditions = status.conditions.unwrap_or_default();
        let capacity = status.capacity.as_ref().map(RawResources::to_map).transpose().map_err(named)?;
        let allocatable = status.allocatable.as_ref().map(RawResources::to_map).transpose().map_err(named)?;
        let taints = spec.taints.unwrap_or_default().into_iter().map(|taint| Taint {
            key: taint.key,
            value: taint.value.unwrap_or_default(),
            effect: taint.effect.into(),
        });
        Ok(StockNode {
            labels: metadata.labels.unwrap_or_default(),
            taints: taints.collect(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            ready: conditions.iter().all(|condition| condition.kind != "Ready" || condition.status == "True"),
            // The API server fills allocatable from capacity where a kubelet states none.
            allocatable: allocatable.or_else(|| capacity.clone()).unwrap_or_default(),
            capacity: capacity.unwrap_or_default(),
            name,
        })
    }
}
