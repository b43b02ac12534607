//! Nodes for the tests of decisions, written as the API server would show them.

use gpupool_control::ClusterSettings;
use gpupool_control::FIELD_MANAGER;
use gpupool_control::node_controller::NodeWrite;
use gpupool_control::node_controller::observed::ObservedNode;
use gpupool_control::node_controller::patch;
use gpupool_control::node_controller::plan::{Plan, plan};
use gpupool_core::node_use::LABEL;
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) const CARDS: &str =
    r#"{"nvidia.com/gpu": 4, "nvidia.com/GA102GL_A10": 2, "nvidia.com/NVIDIA_A10-12Q": 4}"#;

/// The names that CARDS offers, by the label's value.
pub(crate) const OFFERED: [(&str, &str, &str); 3] = [
    ("container", "nvidia.com/gpu", "4"),
    ("vm-passthrough", "nvidia.com/GA102GL_A10", "2"),
    ("vm-vgpu", "nvidia.com/NVIDIA_A10-12Q", "4"),
];

pub(crate) fn sandbox() -> ClusterSettings {
    ClusterSettings { enabled: true, ..ClusterSettings::default() }
}

/// A node named n with uid u, to be filled in.
pub(crate) struct Shape {
    pub(crate) label: Option<String>,
    pub(crate) cards: Option<String>,
    /// Name, amount and who wrote it.
    pub(crate) resources: Vec<(String, String, String)>,
    pub(crate) kubelet_version: String,
}

impl Shape {
    pub(crate) fn labelled(label: &str) -> Self {
        Self { label: Some(label.to_owned()), ..Self::bare() }
    }

    pub(crate) fn bare() -> Self {
        Self { label: None, cards: None, resources: Vec::new(), kubelet_version: String::new() }
    }

    pub(crate) fn with_cards(mut self, cards: &str) -> Self {
        self.cards = Some(cards.to_owned());
        self
    }

    pub(crate) fn with(mut self, name: &str, amount: &str, by: &str) -> Self {
        self.resources.push((name.to_owned(), amount.to_owned(), by.to_owned()));
        self
    }

    pub(crate) fn foreign(self, name: &str, amount: &str) -> Self {
        self.with(name, amount, "kubectl-patch")
    }

    pub(crate) fn own(self, name: &str, amount: &str) -> Self {
        self.with(name, amount, FIELD_MANAGER)
    }

    pub(crate) fn node(&self) -> ObservedNode {
        let amounts: Map<String, Value> =
            self.resources.iter().map(|(name, amount, _)| (name.clone(), json!(amount))).collect();
        let mut labels = Map::new();
        labels.extend(self.label.iter().map(|label| (LABEL.to_owned(), json!(label))));
        let mut annotations = Map::new();
        annotations.extend(self.cards.iter().map(|cards| ("gpupool.io/cards".to_owned(), json!(cards))));
        let managed: Vec<Value> = self.resources.iter().map(|(name, _, by)| managed(name, by)).collect();
        let node: KubeNode = serde_json::from_value(json!({
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "1",
                "labels": labels, "annotations": annotations, "managedFields": managed,
            },
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": self.kubelet_version, "machineID": "",
                    "operatingSystem": "", "osImage": "", "systemUUID": "",
                },
            },
        }))
        .unwrap();
        ObservedNode::of(&node)
    }
}

fn managed(name: &str, by: &str) -> Value {
    let field = format!("f:{name}");
    json!({
        "manager": by, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "subresource": "status",
        "fieldsV1": { "f:status": { "f:capacity": { &field: {} }, "f:allocatable": { &field: {} } } },
    })
}

/// Carries out step after step until nothing is left to do: the writes, the node, and what is left to tell.
pub(crate) fn settle(node: ObservedNode, cluster: &ClusterSettings) -> (Vec<NodeWrite>, ObservedNode, Plan) {
    let (mut node, mut writes) = (node, Vec::new());
    loop {
        let next = plan(&node, cluster);
        let Some(write) = next.write.clone() else { return (writes, node, next) };
        assert!(writes.len() < 8, "no end of writes: {writes:?}");
        node = patch::after(&node, &write, Timestamp::UNIX_EPOCH);
        writes.push(write);
    }
}

/// Names with their amounts, as they stand in allocatable.
pub(crate) fn advertised(node: &ObservedNode) -> Vec<(String, String)> {
    node.advertised().into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
}

/// Status and reason of the condition.
pub(crate) fn condition(node: &ObservedNode) -> Option<(&str, &str)> {
    node.condition.as_ref().map(|condition| (condition.status.as_str(), condition.reason.as_str()))
}

pub(crate) fn message(node: &ObservedNode) -> &str {
    node.condition.as_ref().map_or("", |condition| condition.message.as_str())
}
