//! Nodes without a kubelet, as the tests describe them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::control_plane::KWOK_NODE;

/// A node that kwok plays: always Ready, and pods bound to it become Running.
///
/// Nobody but the tests writes its capacity.
#[derive(Clone, Debug)]
pub struct KwokNode {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    capacity: BTreeMap<String, String>,
}

impl KwokNode {
    /// A node with 32 CPUs, 256Gi of memory, room for 110 pods, and the labels that every Linux node has.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let node = Self {
            name: name.clone(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            capacity: BTreeMap::new(),
        };
        node.label("kubernetes.io/hostname", name)
            .label("kubernetes.io/os", "linux")
            .label("kubernetes.io/arch", "amd64")
            .annotation(KWOK_NODE.0, KWOK_NODE.1)
            .capacity("cpu", "32")
            .capacity("memory", "256Gi")
            .capacity("pods", "110")
    }

    /// Adds or replaces a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds or replaces an annotation.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Adds or replaces a resource, in capacity and allocatable alike; a Kubernetes quantity, such as `16` or `1800Gi`.
    #[must_use]
    pub fn capacity(mut self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.capacity.insert(resource.into(), quantity.into());
        self
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Node object as text, for `kubectl create`.
    pub fn manifest(&self) -> String {
        self.object().to_string()
    }

    /// The Node object; its status is kept by the API server when it is created with it.
    pub(crate) fn object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.labels, "annotations": self.annotations},
            "status": {"capacity": self.capacity, "allocatable": self.capacity},
        })
    }
}
