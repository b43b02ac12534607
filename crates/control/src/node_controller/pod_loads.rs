//! The load of each node: what its pods ask for, as far as the node's share policy depends on it.

use std::collections::{BTreeMap, HashMap};

use gpupool_core::sharing::{Amounts, Load};
use gpupool_k8s::pod::{has_finished, scheduled_requests, sharing};
use k8s_openapi::api::core::v1::Pod as KubePod;

/// What one pod adds to the load of its node.
#[derive(Clone, Debug, Eq, PartialEq)]
struct PodLoad {
    /// `namespace/name`.
    name: String,
    shares: bool,
    /// The resource by which it has cards, or parts of them, for itself.
    exclusive: Option<String>,
    requests: Amounts,
}

/// The pods on the nodes of a cluster.
#[derive(Debug, Default)]
pub(crate) struct PodLoads {
    nodes: BTreeMap<String, HashMap<String, PodLoad>>,
    /// The node that each pod is on, by the pod's uid.
    places: HashMap<String, String>,
}

impl PodLoads {
    /// A pod was added or changed. Says which node's load has changed.
    pub(crate) fn apply(&mut self, pod: &KubePod) -> Option<String> {
        let uid = pod.metadata.uid.clone()?;
        let node = pod.spec.as_ref()?.node_name.clone().filter(|node| !node.is_empty())?;
        if has_finished(pod) {
            return self.remove(&uid);
        }
        let weight = PodLoad::of(pod);
        self.places.insert(uid.clone(), node.clone());
        let before = self.nodes.entry(node.clone()).or_default().insert(uid, weight.clone());
        (before != Some(weight)).then_some(node)
    }

    /// A pod is gone, or has finished.
    pub(crate) fn delete(&mut self, pod: &KubePod) -> Option<String> {
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

    /// What the pods of a node ask for together.
    pub(crate) fn load(&self, node: &str) -> Load {
        let mut load = Load::default();
        for weight in self.nodes.get(node).into_iter().flat_map(HashMap::values) {
            load.requested.add(&weight.requests);
            if let Some(resource) = &weight.exclusive {
                load.exclusive.insert(weight.name.clone(), resource.clone());
            }
            if weight.shares {
                load.shared.insert(weight.name.clone());
            }
        }
        load
    }

    /// Every node that has pods.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }
}

impl PodLoad {
    fn of(pod: &KubePod) -> Self {
        let sharing = sharing(pod);
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        Self {
            name: format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default()),
            shares: sharing.shares(),
            exclusive: sharing.exclusive().map(str::to_owned),
            requests: pod.spec.as_ref().map(scheduled_requests).unwrap_or_default(),
        }
    }
}
