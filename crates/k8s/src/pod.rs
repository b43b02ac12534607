//! A pod's requests, its card and whether it has finished.

use std::collections::BTreeMap;

use gpupool_core::pool::CardUuid;
use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::names::CARD_ANNOTATION;
use gpupool_core::sharing::{self, Amounts};
use gpupool_core::stock::{InitContainer, PodPhase, Resources, pod_requests};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use serde_json::Value;

/// Field selector of watches and lists: pods that have a node and have not finished.
pub const ON_NODES: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// What of a pod matters for sharing: its labels and annotations about it, and its containers' requests and limits.
pub fn sharing(pod: &Pod) -> sharing::Pod {
    let mut read = sharing::Pod::new(pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref());
    if let Some(spec) = &pod.spec {
        let init = spec.init_containers.iter().flatten().map(|one| container(one, true));
        read.containers.extend(init.chain(spec.containers.iter().map(|one| container(one, false))));
    }
    read
}

/// The same from JSON: an object as it is stored, or a template in one, as somebody wrote it. What is not of a pod's form
/// counts as absent; a quantity may be a number.
pub fn sharing_of_json(pod: &Value) -> sharing::Pod {
    let text = |map: &str, name: &str| Some(pod.get("metadata")?.get(map)?.get(name)?.as_str()?.to_owned());
    let mut read = sharing::Pod::read(|name| text("labels", name), |name| text("annotations", name));
    for (list, init) in [("initContainers", true), ("containers", false)] {
        let containers = pod.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array);
        read.containers.extend(containers.into_iter().flatten().map(|one| container_of_json(one, init)));
    }
    read
}

/// Whether a pod has ended, well or badly: it holds nothing any more, and its containers will not start again.
pub fn has_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    PodPhase::of(phase) == PodPhase::Finished
}

/// The card in the annotation that only gpupool writes.
pub fn card(pod: &Pod) -> Option<CardUuid> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(CARD_ANNOTATION).map(|uuid| uuid.as_str().into())
}

/// What the scheduler counts for a pod of cpu, memory and ephemeral storage: what is requested for the pod as a whole
/// goes before its containers' requests; overhead comes on top.
pub fn scheduled_requests(spec: &PodSpec) -> Amounts {
    let containers: Vec<Resources> = spec.containers.iter().map(container_requests).collect();
    let init: Vec<InitContainer> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|one| InitContainer {
            requests: container_requests(one),
            is_sidecar: one.restart_policy.as_deref() == Some("Always"),
        })
        .collect();
    let overhead = spec.overhead.as_ref().map(resources).unwrap_or_default();
    let mut all = pod_requests(&containers, &init, &overhead);
    let whole = spec.resources.as_ref().and_then(|all| all.requests.as_ref());
    for (name, amount) in whole.map(resources).unwrap_or_default() {
        let with_overhead = overhead.get(&name).map_or(amount, |overhead| amount.plus(*overhead));
        all.insert(name, with_overhead);
    }
    let texts: BTreeMap<String, String> =
        all.into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
    Amounts::read(|name| texts.get(name).map(String::as_str))
}

fn container<'a>(container: &'a Container, init: bool) -> sharing::Container {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let texts = |list: Option<&'a BTreeMap<String, QuantityText>>| {
        list.into_iter().flatten().map(|(name, amount)| (name.as_str(), amount.0.clone()))
    };
    sharing::Container::new(&container.name, init, texts(requests), texts(limits))
}

fn container_of_json(container: &Value, init: bool) -> sharing::Container {
    let amounts = |list: &str| {
        let list = container.get("resources").and_then(|all| all.get(list)).and_then(Value::as_object);
        list.into_iter().flatten().filter_map(|(name, amount)| Some((name.as_str(), quantity(amount)?)))
    };
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    sharing::Container::new(name, init, amounts("requests"), amounts("limits"))
}

/// A quantity's text. The API server writes texts; an applied configuration has what somebody typed.
fn quantity(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn container_requests(container: &Container) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.map(resources).unwrap_or_default()
}

/// The amounts of a list that can be read; the API server stores no other.
fn resources(list: &BTreeMap<String, QuantityText>) -> Resources {
    let read =
        |(name, amount): (&String, &QuantityText)| Some((name.clone(), Quantity::parse(&amount.0).ok()?));
    list.iter().filter_map(read).collect()
}
