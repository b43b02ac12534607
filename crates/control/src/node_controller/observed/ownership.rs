//! Who wrote which part of a node's status, read from `metadata.managedFields`.
//!
//! The API server keeps these records for every writer, so a controller that was restarted knows from the node
//! alone what is its own. This room only reads the records; what follows from them is decided in `plan`.
//! The form of `fieldsV1` is that of `sigs.k8s.io/structured-merge-diff`.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use crate::api_server::FIELD_MANAGER;

/// The name under which a kubelet writes its node's status, unless its program was renamed.
const KUBELET: &str = "kubelet";

/// The type of the node condition that this controller keeps.
pub const CONDITION_TYPE: &str = "GPUNodeUseValid";

/// What of one node's status is this controller's own, and whether a kubelet writes there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ownership {
    /// Names in `status.capacity` that this controller owns and nobody else does.
    pub capacity: BTreeSet<String>,
    /// Names in `status.allocatable` that this controller owns and nobody else does.
    pub allocatable: BTreeSet<String>,
    /// Types of conditions that this controller wrote.
    pub conditions: BTreeSet<String>,
    /// Whether a writer named `kubelet` has written the status.
    pub kubelet: bool,
}

impl Ownership {
    /// Reads the records. What is not of the known form is taken as somebody else's.
    pub fn read(entries: &[ManagedFieldsEntry]) -> Self {
        let mut own = Self::default();
        let (mut others_capacity, mut others_allocatable) = (BTreeSet::new(), BTreeSet::new());
        for entry in entries {
            let Some(status) = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:status")) else {
                continue;
            };
            let ours = is_ours(entry);
            own.conditions.extend(ours.then(|| conditions(status)).into_iter().flatten());
            own.kubelet |= entry.manager.as_deref() == Some(KUBELET);
            let (capacity, allocatable) = if ours {
                (&mut own.capacity, &mut own.allocatable)
            } else {
                (&mut others_capacity, &mut others_allocatable)
            };
            capacity.extend(names(status, "f:capacity"));
            allocatable.extend(names(status, "f:allocatable"));
        }
        own.capacity.retain(|name| !others_capacity.contains(name));
        own.allocatable.retain(|name| !others_allocatable.contains(name));
        own
    }

    /// Whether the condition about the node's use is this controller's.
    pub fn has_condition(&self) -> bool {
        self.conditions.contains(CONDITION_TYPE)
    }
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref() == Some("status")
}

fn names<'a>(status: &'a Value, field: &str) -> impl Iterator<Item = String> + use<'a> {
    let keys = status.get(field).and_then(Value::as_object).into_iter().flatten();
    keys.filter_map(|(key, _)| key.strip_prefix("f:")).map(str::to_owned)
}

fn conditions(status: &Value) -> impl Iterator<Item = String> {
    let conditions = status.get("f:conditions").and_then(Value::as_object).into_iter().flatten();
    conditions.filter_map(|(key, _)| {
        let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        key.get("type")?.as_str().map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, status: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": operation, "subresource": subresource,
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": { "f:status": status },
        }))
        .unwrap()
    }

    fn gpu() -> Value {
        json!({
            "f:capacity": { "f:nvidia.com/gpu": {} },
            "f:allocatable": { "f:nvidia.com/gpu": {} },
            "f:conditions": { "k:{\"type\":\"GPUNodeUseValid\"}": { ".": {}, "f:status": {} } },
        })
    }

    #[test]
    fn what_this_controller_wrote_is_its_own_after_a_restart() {
        let own = Ownership::read(&[entry(FIELD_MANAGER, "Update", "status", &gpu())]);
        assert!(
            own.has_condition()
                && own.capacity.contains("nvidia.com/gpu")
                && own.allocatable.contains("nvidia.com/gpu")
        );
    }

    #[test]
    fn what_somebody_else_owns_too_is_not_ours() {
        let own = Ownership::read(&[
            entry(FIELD_MANAGER, "Update", "status", &gpu()),
            entry("kubectl-patch", "Update", "status", &json!({ "f:capacity": { "f:nvidia.com/gpu": {} } })),
        ]);
        assert!(own.capacity.is_empty() && own.allocatable.contains("nvidia.com/gpu"));
    }

    #[test]
    fn the_same_name_with_another_operation_or_subresource_is_not_ours() {
        for (operation, subresource) in [("Apply", "status"), ("Update", "")] {
            let own = Ownership::read(&[entry(FIELD_MANAGER, operation, subresource, &gpu())]);
            assert_eq!(own, Ownership::default());
        }
    }

    #[test]
    fn a_kubelet_is_known_by_its_name() {
        let own = Ownership::read(&[entry("kubelet", "Update", "status", &json!({ "f:conditions": {} }))]);
        assert!(own.kubelet && !own.has_condition());
    }

    #[test]
    fn records_of_an_unknown_form_are_nobodys() {
        for status in [json!(null), json!([]), json!({ "f:capacity": 4 }), json!({ "f:capacity": ["f:x"] })] {
            let own = Ownership::read(&[entry(FIELD_MANAGER, "Update", "status", &status)]);
            assert!(own.capacity.is_empty() && own.allocatable.is_empty());
        }
        assert_eq!(Ownership::read(&[ManagedFieldsEntry::default()]), Ownership::default());
    }
}
