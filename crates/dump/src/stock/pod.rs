//! A pod in a dump, as far as the stock depends on it.

use std::collections::BTreeMap;

use gpupool_core::one_line::one_line;
use gpupool_core::stock::{self, InitContainer, PodPhase, StockPod, pod_requests};
use serde::Deserialize;

use super::taint_effect::EffectName;
use crate::document::{Header, ObjectPart};
use crate::error::{ObjectError, ResourceError};
use crate::fields::{AllKeys, RawResources, object};

/// Pods, as far as the stock reads them.
pub(super) struct Pods;

impl ObjectPart for Pods {
    type Part<'a> = PodObject<'a>;

    const KIND: &'static str = "Pod";

    fn header<'i>(pod: &'i PodObject<'_>) -> Header<'i> {
        Header { kind: pod.kind.as_deref(), api_version: pod.api_version.as_deref() }
    }
}

/// The parts of a Pod object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodObject<'a> {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(default, deserialize_with = "object")]
    metadata: Option<Metadata>,
    #[serde(borrow, default, deserialize_with = "object")]
    spec: Option<Spec<'a>>,
    #[serde(default, deserialize_with = "object")]
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    node_name: Option<String>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    overhead: Option<RawResources<'a, AllKeys>>,
    node_selector: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "object")]
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
    scheduling_gates: Option<Vec<Gate>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    restart_policy: Option<String>,
    #[serde(borrow, default, deserialize_with = "object")]
    resources: Option<Requirements<'a>>,
}

#[derive(Debug, Deserialize)]
struct Requirements<'a> {
    #[serde(borrow)]
    requests: Option<RawResources<'a, AllKeys>>,
    #[serde(borrow)]
    limits: Option<RawResources<'a, AllKeys>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    #[serde(default, deserialize_with = "object")]
    node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeAffinity {
    #[serde(default, deserialize_with = "object")]
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSelector {
    node_selector_terms: Option<Vec<Term>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    match_expressions: Option<Vec<Requirement>>,
    match_fields: Option<Vec<Requirement>>,
}

#[derive(Debug, Deserialize)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Debug, Deserialize)]
struct Toleration {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<EffectName>,
}

#[derive(Debug, Deserialize)]
struct Gate {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: Option<String>,
}

impl PodObject<'_> {
    /// The pod as a value, or what is missing in it.
    pub(super) fn into_pod(self) -> Result<StockPod, ObjectError> {
        let metadata = self.metadata.ok_or(ObjectError::Nameless("pod"))?;
        let name = metadata.name.filter(|name| !name.is_empty()).ok_or(ObjectError::Nameless("pod"))?;
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        let requests = spec.requests().map_err(|why| ObjectError::Quantity {
            kind: "pod",
            name: one_line(&name, 100),
            why,
        })?;
        let unscheduled =
            |condition: &Condition| condition.kind == "PodScheduled" && condition.status == "False";
        Ok(StockPod {
            // A single pod from a manifest has none yet.
            namespace: metadata.namespace.unwrap_or_else(|| "default".to_owned()),
            name,
            phase: PodPhase::of(status.phase.as_deref()),
            requests,
            scheduler_message: status
                .conditions
                .unwrap_or_default()
                .into_iter()
                .find(unscheduled)
                .and_then(|it| it.message),
            node_affinity: spec.required_terms(),
            node: spec.node_name.filter(|node| !node.is_empty()),
            node_selector: spec.node_selector.unwrap_or_default(),
            tolerations: spec
                .tolerations
                .unwrap_or_default()
                .into_iter()
                .map(Toleration::into_value)
                .collect(),
            gates: spec.scheduling_gates.unwrap_or_default().into_iter().map(|gate| gate.name).collect(),
        })
    }
}

impl Spec<'_> {
    fn requests(&self) -> Result<stock::Resources, ResourceError> {
        let containers = self.containers.iter().flatten().map(Container::requests);
        let containers: Vec<_> = containers.collect::<Result<_, _>>()?;
        let init = self.init_containers.iter().flatten().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            Ok(InitContainer { requests: container.requests()?, is_sidecar })
        });
        let init: Vec<_> = init.collect::<Result<_, ResourceError>>()?;
        let overhead = self.overhead.as_ref().map(RawResources::to_map).transpose()?.unwrap_or_default();
        Ok(pod_requests(&containers, &init, &overhead))
    }

    fn required_terms(&self) -> Option<Vec<stock::Term>> {
        let node_affinity = self.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = node_affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        Some(required.node_selector_terms.iter().flatten().map(Term::to_value).collect())
    }
}

impl Container<'_> {
    /// What the container asks for; a limit without a request is one.
    fn requests(&self) -> Result<stock::Resources, ResourceError> {
        let Some(resources) = &self.resources else { return Ok(stock::Resources::new()) };
        let read =
            |map: &Option<RawResources<'_, AllKeys>>| map.as_ref().map(RawResources::to_map).transpose();
        let mut requests = read(&resources.limits)?.unwrap_or_default();
        requests.extend(read(&resources.requests)?.unwrap_or_default());
        Ok(requests)
    }
}

impl Term {
    fn to_value(&self) -> stock::Term {
        let labels = self.match_expressions.iter().flatten().map(|wanted| wanted.to_value(true));
        // The only field that there is is the node's name.
        let fields = self.match_fields.iter().flatten().map(|wanted| wanted.to_value(false));
        labels.chain(fields).collect()
    }
}

impl Requirement {
    fn to_value(&self, is_label: bool) -> stock::Requirement {
        stock::Requirement {
            label: is_label.then(|| self.key.clone()),
            operator: match self.operator {
                Operator::In => stock::Operator::In,
                Operator::NotIn => stock::Operator::NotIn,
                Operator::Exists => stock::Operator::Exists,
                Operator::DoesNotExist => stock::Operator::DoesNotExist,
                Operator::Gt => stock::Operator::Gt,
                Operator::Lt => stock::Operator::Lt,
            },
            values: self.values.clone().unwrap_or_default(),
        }
    }
}

impl Toleration {
    fn into_value(self) -> stock::Toleration {
        let exists = self.operator.as_deref() == Some("Exists");
        stock::Toleration {
            key: self.key.filter(|key| !key.is_empty()),
            value: (!exists).then(|| self.value.unwrap_or_default()),
            effect: self.effect.map(Into::into),
        }
    }
}
