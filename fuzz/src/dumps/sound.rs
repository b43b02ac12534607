//! Dumps that are whole, with the verdicts that they must get; what is broken is made of them.

use serde_json::{Value, json};

const LABEL: &str = "nvidia.com/gpu.workload.config";

/// A dump with its verdict.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) value: Value,
    /// The first word of every line of the verdict.
    pub(super) verdict: Vec<String>,
}

/// How a dump is written down.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// JSON on one line.
    Compact,
    /// JSON as kubectl prints it.
    Pretty,
    /// YAML in blocks, with its strings in quotes.
    Yaml,
}

/// Every form.
pub(super) const FORMS: [Form; 3] = [Form::Compact, Form::Pretty, Form::Yaml];

impl Form {
    /// The text of a value in this form.
    pub(super) fn text(self, value: &Value) -> String {
        match self {
            Self::Compact => value.to_string(),
            Self::Pretty => format!("{value:#}\n"),
            Self::Yaml => block(value, 0),
        }
    }
}

/// A value as a YAML block, which stands so many blanks to the right.
fn block(value: &Value, depth: usize) -> String {
    let member = |key: &str, value: &Value| {
        let inside = match value {
            Value::Object(map) if !map.is_empty() => format!("\n{}", block(value, depth + 2)),
            Value::Array(list) if !list.is_empty() => format!("\n{}", block(value, depth + 2)),
            scalar => format!(" {scalar}\n"),
        };
        format!("{:depth$}{key}{inside}", "")
    };
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| member(&format!("{}:", json!(key)), value)).collect()
        }
        Value::Array(list) => list.iter().map(|value| member("-", value)).collect(),
        scalar => format!("{scalar}\n"),
    }
}

impl Dump {
    fn new(value: Value, verdict: &[&str]) -> Self {
        Self { value, verdict: verdict.iter().map(|word| (*word).to_owned()).collect() }
    }

    /// Its text in every form.
    #[cfg(test)]
    pub(super) fn forms(&self) -> impl Iterator<Item = String> {
        FORMS.iter().map(|form| form.text(&self.value))
    }
}

/// One of each sort.
pub(super) fn all() -> Vec<Dump> {
    let lab = [
        node("lab-node-0", Some("container"), &json!({ "cpu": "8", "nvidia.com/gpu": "4" })),
        node("lab-node-1", Some("vm-passthrough"), &json!({ "cpu": "8", "nvidia.com/GA102GL_A10": "2" })),
        node("lab-node-2", Some("vm-vgpu"), &json!({ "cpu": "8", "nvidia.com/NVIDIA_A10-12Q": "4" })),
    ];
    let wrong = [
        node("node-b", Some("vm-vgpu"), &json!({ "nvidia.com/GA102GL_A10": "2", "memory": "1Gi" })),
        node("node-c", None, &json!({ "nvidia.com/gpu": 2 })),
        node("node-a", Some("container"), &json!({ "nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7" })),
        node("node \"d\"\n\u{1f600}", Some("vm-passthru"), &json!({ "nvidia.com/pgpu": "1e0" })),
        node("node-e", Some("container"), &json!({ "nvidia.com/gpu": "4k" })),
    ];
    let bare = lab.clone().map(|mut node| {
        if let Some(node) = node.as_object_mut() {
            node.retain(|key, _| key == "metadata" || key == "status");
        }
        node
    });
    let mut plain = lab[0].clone();
    plain["status"]["allocatable"] = Value::Null;
    plain["status"]["capacity"]["nvidia.com/gpu"] = json!(0.5);
    vec![
        Dump::new(list(&lab), &["OK=3"]),
        Dump::new(list(&wrong), &[r#"MISMATCH=node\u{20}"d"\n😀"#, "MISMATCH=node-a", "MISMATCH=node-b"]),
        Dump::new(
            json!({ "apiVersion": "v1", "items": bare, "kind": "NodeList", "metadata": {} }),
            &["OK=3"],
        ),
        Dump::new(lab[1].clone(), &["OK=1"]),
        Dump::new(wrong[0].clone(), &["MISMATCH=node-b"]),
        Dump::new(list(&[plain]), &["OK=1"]),
        Dump::new(list(&[]), &["OK=0"]),
    ]
}

fn list(nodes: &[Value]) -> Value {
    json!({ "apiVersion": "v1", "items": nodes, "kind": "List", "metadata": { "resourceVersion": "" } })
}

fn node(name: &str, label: Option<&str>, amounts: &Value) -> Value {
    let mut labels = json!({ "kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true" });
    if let Some(label) = label {
        labels[LABEL] = json!(label);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": { "a": "[{\"nested\": \"}\\\"\"}]", "b": "\u{feff}ü\u{2028}\t\\" },
            "creationTimestamp": "2026-01-05T09:30:00Z",
            "labels": labels,
            "name": name,
        },
        "spec": { "taints": [{ "effect": "NoSchedule", "key": "nvidia.com/gpu" }], "unschedulable": false },
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{ "status": "True", "type": "Ready" }],
            "images": [{ "names": ["registry.example.com/a:v1"], "sizeBytes": 123_456_789 }],
        },
    })
}
