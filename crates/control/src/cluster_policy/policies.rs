//! What GPU Operator's `ClusterPolicy` says about sandbox workloads.
//!
//! Only the three fields that decide a node's use are read. Where there is no `ClusterPolicy`, the operator does
//! nothing, and the command line holds.

use std::collections::BTreeMap;

use gpupool_core::node_use::operands::Mode;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};

use crate::settings::{ClusterSettings, SettingsSource};

/// The name of the definition of `ClusterPolicy`.
pub(crate) const DEFINITION: &str = "clusterpolicies.nvidia.com";

/// How `ClusterPolicy` objects are asked for.
pub(crate) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("nvidia.com", "v1", "ClusterPolicy"),
        "clusterpolicies",
    )
}

/// What the `ClusterPolicy` objects of a cluster say. There should be one; the operator ignores all but one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterPolicies {
    /// Whether the definition exists. Where it does, GPU Operator is taken to run.
    pub(crate) defined: bool,
    policies: BTreeMap<String, SandboxWorkloads>,
}

#[derive(Clone, Debug)]
struct SandboxWorkloads {
    /// Seconds since 1970: the operator follows the first.
    created: i64,
    ignored: bool,
    enabled: bool,
    default_workload: Option<String>,
    kata: bool,
}

impl ClusterPolicies {
    /// One was added or changed.
    pub(crate) fn apply(&mut self, object: &DynamicObject) {
        let sandbox = |field: &str| object.data.pointer(&format!("/spec/sandboxWorkloads/{field}"));
        let text =
            |field: &str| sandbox(field).and_then(|value| value.as_str()).filter(|text| !text.is_empty());
        let state = object.data.pointer("/status/state").and_then(|state| state.as_str());
        let policy = SandboxWorkloads {
            created: object.creation_timestamp().map_or(i64::MAX, |time| time.0.as_second()),
            ignored: state == Some("ignored"),
            enabled: sandbox("enabled").and_then(serde_json::Value::as_bool).unwrap_or(false),
            default_workload: text("defaultWorkload").map(str::to_owned),
            kata: text("mode") == Some("kata"),
        };
        self.policies.insert(object.name_any(), policy);
    }

    /// One is gone.
    pub(crate) fn delete(&mut self, object: &DynamicObject) {
        self.policies.remove(&object.name_any());
    }

    /// None is there.
    pub(crate) fn clear(&mut self) {
        self.policies.clear();
    }

    /// The settings in force: those of the policy that the operator follows, else those of the command line.
    pub(crate) fn settings(&self, command_line: &ClusterSettings) -> ClusterSettings {
        let manage_operands = command_line.manage_operands && !self.defined;
        let followed =
            self.policies.iter().min_by_key(|(name, policy)| (policy.ignored, policy.created, *name));
        match followed {
            None => ClusterSettings { manage_operands, ..command_line.clone() },
            Some((name, policy)) => ClusterSettings {
                enabled: policy.enabled,
                default_workload: policy.default_workload.clone(),
                mode: if policy.kata { Mode::Kata } else { Mode::Kubevirt },
                source: SettingsSource::ClusterPolicy(name.clone()),
                rules: command_line.rules,
                manage_operands,
                no_reservation: command_line.no_reservation,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, created: &str, body: &Value) -> DynamicObject {
        let mut object = json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
            "metadata": { "name": name, "creationTimestamp": created },
        });
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    fn on(mode: &str, default: &str) -> Value {
        json!({ "spec": { "sandboxWorkloads": { "enabled": true, "mode": mode, "defaultWorkload": default } } })
    }

    #[test]
    fn without_a_policy_the_command_line_holds() {
        let line = ClusterSettings {
            enabled: true,
            default_workload: Some("vm-vgpu".to_owned()),
            ..ClusterSettings::default()
        };
        assert_eq!(ClusterPolicies::default().settings(&line), line);
    }

    #[test]
    fn a_policy_wins_over_the_command_line_and_says_so() {
        let line = ClusterSettings { enabled: true, ..ClusterSettings::default() };
        let mut policies = ClusterPolicies { defined: true, ..ClusterPolicies::default() };
        policies.apply(&object("cluster-policy", "2026-01-01T00:00:00Z", &json!({ "spec": {} })));
        let settings = policies.settings(&line);
        assert!(!settings.enabled);
        assert_eq!(settings.source, SettingsSource::ClusterPolicy("cluster-policy".to_owned()));
        policies.clear();
        assert!(policies.settings(&line).enabled);
    }

    #[test]
    fn the_policy_that_the_operator_follows_is_the_first_that_it_does_not_ignore() {
        let mut policies = ClusterPolicies::default();
        policies.apply(&object("a", "2026-01-02T00:00:00Z", &json!({ "status": { "state": "ready" } })));
        policies.apply(&object("b", "2026-01-01T00:00:00Z", &on("kata", "vm-vgpu")));
        let settings = policies.settings(&ClusterSettings::default());
        assert_eq!(settings.default_workload.as_deref(), Some("vm-vgpu"));
        assert_eq!(settings.mode, Mode::Kata);
        let mut ignored = on("kata", "vm-vgpu");
        ignored["status"] = json!({ "state": "ignored" });
        policies.apply(&object("b", "2026-01-01T00:00:00Z", &ignored));
        assert_eq!(
            policies.settings(&ClusterSettings::default()).source,
            SettingsSource::ClusterPolicy("a".to_owned())
        );
    }

    #[test]
    fn operands_are_never_managed_where_the_operator_is_defined() {
        let line = ClusterSettings { manage_operands: true, ..ClusterSettings::default() };
        assert!(ClusterPolicies::default().settings(&line).manage_operands);
        let defined = ClusterPolicies { defined: true, ..ClusterPolicies::default() };
        assert!(!defined.settings(&line).manage_operands);
    }

    #[test]
    fn fields_of_the_wrong_type_count_as_not_set() {
        let mut policies = ClusterPolicies::default();
        let odd =
            json!({ "spec": { "sandboxWorkloads": { "enabled": "yes", "mode": 4, "defaultWorkload": "" } } });
        policies.apply(&object("a", "2026-01-01T00:00:00Z", &odd));
        let settings = policies.settings(&ClusterSettings::default());
        assert!(!settings.enabled && settings.default_workload.is_none() && settings.mode == Mode::Kubevirt);
    }
}
