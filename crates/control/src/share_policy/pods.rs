//! The pods of a cluster, as far as they weigh on the policies of their nodes.

use std::collections::{BTreeMap, HashMap};

use gpupool_core::quantity::Quantity;
use gpupool_core::sharing::{Amounts, Container, Load, Pod};
use gpupool_core::stock::{InitContainer, Resources, pod_requests};
use k8s_openapi::api::core::v1::{Container as KubeContainer, Pod as KubePod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;

/// Which pods a watch should bring: those that have a node and have not finished.
pub const FIELDS: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Takes out of an object what matters for sharing.
pub fn sharing_pod(pod: &KubePod) -> Pod {
    let mut facts = Pod::new(pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref());
    if let Some(spec) = &pod.spec {
        let init = spec.init_containers.iter().flatten().map(|one| container(one, true));
        facts.containers.extend(init.chain(spec.containers.iter().map(|one| container(one, false))));
    }
    facts
}

fn container(container: &KubeContainer, init: bool) -> Container {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    Container::new(&container.name, init, |name| text(requests, name), |name| text(limits, name))
}

fn text<'a>(list: Option<&'a BTreeMap<String, KubeQuantity>>, name: &str) -> Option<&'a str> {
    list.and_then(|list| list.get(name)).map(|amount| amount.0.as_str())
}

/// What one pod weighs.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Weight {
    /// `namespace/name`.
    name: String,
    shares: bool,
    exclusive: bool,
    requests: Amounts,
}

/// The pods on the nodes of a cluster.
#[derive(Debug, Default)]
pub struct Pods {
    nodes: BTreeMap<String, HashMap<String, Weight>>,
    /// Which node each pod is on, by uid.
    places: HashMap<String, String>,
}

impl Pods {
    /// A pod was added or changed. Says which node's load is another one now.
    pub fn apply(&mut self, pod: &KubePod) -> Option<String> {
        let uid = pod.metadata.uid.clone()?;
        let node = pod.spec.as_ref()?.node_name.clone().filter(|node| !node.is_empty())?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.remove(&uid);
        }
        let weight = Weight::of(pod);
        self.places.insert(uid.clone(), node.clone());
        let before = self.nodes.entry(node.clone()).or_default().insert(uid, weight.clone());
        (before != Some(weight)).then_some(node)
    }

    /// A pod is gone, or has finished.
    pub fn delete(&mut self, pod: &KubePod) -> Option<String> {
        self.remove(pod.metadata.uid.as_deref()?)
    }

    fn remove(&mut self, uid: &str) -> Option<String> {
        let node = self.places.remove(uid)?;
        let pods = self.nodes.get_mut(&node)?;
        pods.remove(uid)?;
        if pods.is_empty() {
            self.nodes.remove(&node);
        }
        Some(node)
    }

    /// What the pods of a node weigh together.
    pub fn load(&self, node: &str) -> Load {
        let mut load = Load::default();
        for weight in self.nodes.get(node).into_iter().flat_map(HashMap::values) {
            load.requested.add(&weight.requests);
            if weight.exclusive {
                load.exclusive.insert(weight.name.clone());
            }
            if weight.shares {
                load.shared.insert(weight.name.clone());
            }
        }
        load
    }

    /// Every node that has pods.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }
}

impl Weight {
    fn of(pod: &KubePod) -> Self {
        let facts = sharing_pod(pod);
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        Self {
            name: format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default()),
            shares: facts.shares(),
            exclusive: facts.is_exclusive(),
            requests: pod.spec.as_ref().map(requests).unwrap_or_default(),
        }
    }
}

/// What the scheduler counts for a pod; what is said for the pod as a whole goes before its containers.
fn requests(spec: &PodSpec) -> Amounts {
    let containers: Vec<Resources> = spec.containers.iter().map(asked).collect();
    let init: Vec<InitContainer> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|one| InitContainer {
            requests: asked(one),
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

fn asked(container: &KubeContainer) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.map(resources).unwrap_or_default()
}

fn resources(list: &BTreeMap<String, KubeQuantity>) -> Resources {
    let read =
        |(name, amount): (&String, &KubeQuantity)| Some((name.clone(), Quantity::parse(&amount.0).ok()?));
    list.iter().filter_map(read).collect()
}
