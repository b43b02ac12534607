//! Node affinity that a pod gets beside its own: on nodes of its policy, or on none that share.

use gpupool_core::sharing::Policy;
use gpupool_core::sharing::names::POLICY_IN_FORCE_LABEL;
use serde_json::{Value, json};

use super::pod_template::object_mut;

/// What a node's labels must meet.
pub(super) fn shared(policy: Policy) -> Value {
    json!({ "key": POLICY_IN_FORCE_LABEL, "operator": "In", "values": [policy.value()] })
}

/// The same for a pod that has cards, or parts of them, for itself.
pub(super) fn exclusive() -> Value {
    json!({ "key": POLICY_IN_FORCE_LABEL, "operator": "DoesNotExist" })
}

/// Adds a requirement to a pod's node affinity. Terms are alternatives, so each of them gets it; one that asks for nothing
/// matches no node, and stays like that.
pub(super) fn require(pod: &mut Value, requirement: &Value) -> Option<()> {
    let affinity = object_mut(pod.get_mut("spec")?, "affinity")?;
    let node = object_mut(affinity, "nodeAffinity")?;
    let required = object_mut(node, "requiredDuringSchedulingIgnoredDuringExecution")?;
    let terms = required.as_object_mut()?.entry("nodeSelectorTerms").or_insert_with(|| json!([]));
    let terms = terms.as_array_mut()?;
    if terms.is_empty() {
        terms.push(json!({ "matchExpressions": [requirement] }));
        return Some(());
    }
    for term in terms.iter_mut().filter(|term| asks(term)) {
        let expressions = term.as_object_mut()?.entry("matchExpressions").or_insert_with(|| json!([]));
        let expressions = expressions.as_array_mut()?;
        if !expressions.contains(requirement) {
            expressions.push(requirement.clone());
        }
    }
    Some(())
}

/// Whether a pod has a requirement in its node affinity.
pub(super) fn has(pod: &Value, requirement: &Value) -> bool {
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let mut expressions = terms.filter_map(|term| term.get("matchExpressions")?.as_array()).flatten();
    expressions.any(|expression| expression == requirement)
}

fn asks(term: &Value) -> bool {
    let some = |list: &str| term.get(list).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    some("matchExpressions") || some("matchFields")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(pod: &Value) -> &Value {
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    }

    fn pod(terms: &Value) -> Value {
        json!({ "spec": { "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
        } } } })
    }

    #[test]
    fn a_pod_without_affinity_gets_one_term_and_only_once() {
        for mut pod in [json!({ "spec": {} }), json!({ "spec": { "affinity": null } }), pod(&json!([]))] {
            let wanted = shared(Policy::Static);
            assert!(!has(&pod, &wanted));
            for _ in 0..2 {
                require(&mut pod, &wanted).unwrap();
                assert_eq!(terms(&pod), &json!([{ "matchExpressions": [wanted] }]));
            }
            assert!(has(&pod, &wanted) && !has(&pod, &exclusive()));
        }
    }

    #[test]
    fn every_alternative_gets_it_but_not_one_that_matches_nothing() {
        let zone = json!({ "key": "zone", "operator": "In", "values": ["a"] });
        let name = json!({ "key": "metadata.name", "operator": "In", "values": ["n"] });
        let mut pod = pod(&json!([{ "matchExpressions": [zone] }, { "matchFields": [name] }, {}]));
        require(&mut pod, &exclusive()).unwrap();
        assert_eq!(
            terms(&pod),
            &json!([
                { "matchExpressions": [zone, exclusive()] },
                { "matchFields": [name], "matchExpressions": [exclusive()] },
                {},
            ])
        );
    }

    #[test]
    fn what_is_no_pod_is_left_alone() {
        for mut odd in [json!(null), json!({}), json!({ "spec": { "affinity": 4 } }), pod(&json!("x"))] {
            let before = odd.clone();
            assert_eq!(require(&mut odd, &exclusive()), None);
            assert_eq!(odd, before);
        }
    }
}
