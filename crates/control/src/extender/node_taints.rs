//! Whether a pod may come to a node, by the node's taints and the pod's tolerations.

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

/// The taint that a cordoned node has, or will have in a moment.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// The first taint that keeps the pod off the node, as people write it.
pub(super) fn untolerated(node: &Node, pod: &Pod) -> Option<String> {
    let spec = node.spec.as_ref()?;
    let cordoned = spec.unschedulable.unwrap_or_default().then(|| Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    });
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut taints = spec.taints.iter().flatten().chain(&cordoned);
    let taint = taints.find(|taint| {
        [NO_SCHEDULE, NO_EXECUTE].contains(&&*taint.effect)
            && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })?;
    let value = taint.value.as_deref().map_or_else(String::new, |value| format!("={value}"));
    Some(format!("{}{value}:{}", taint.key, taint.effect))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let key = given(&toleration.key);
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect)
        || key.as_ref().is_some_and(|key| *key != taint.key)
    {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => {
            key.is_some()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        // Newer ones compare; the scheduler, which knows them, has done so.
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn untolerated_of(node: &Value, tolerations: &Value) -> Option<String> {
        let node: Node = serde_json::from_value(json!({ "spec": node })).unwrap();
        let spec = json!({ "spec": { "containers": [], "tolerations": tolerations } });
        untolerated(&node, &serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_taint_keeps_off_whoever_does_not_tolerate_it() {
        let tainted = json!({ "taints": [
            { "key": "soft", "effect": "PreferNoSchedule" }, { "key": "k", "value": "v", "effect": "NoSchedule" },
        ] });
        for (tolerations, keeps_off) in [
            (json!([]), true),
            (json!([{ "operator": "Exists" }]), false),
            (json!([{ "key": "k", "operator": "Exists" }]), false),
            (json!([{ "key": "other", "operator": "Exists" }]), true),
            (json!([{ "key": "k", "value": "v" }]), false),
            (json!([{ "key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule" }]), false),
            (json!([{ "key": "k", "value": "w" }]), true),
            (json!([{ "key": "k", "value": "v", "effect": "NoExecute" }]), true),
            (json!([{ "value": "v" }]), true),
            (json!([{ "key": "k", "operator": "Gt", "value": "1" }]), false),
        ] {
            let taint = untolerated_of(&tainted, &tolerations);
            assert_eq!(taint, keeps_off.then(|| "k=v:NoSchedule".to_owned()), "{tolerations}");
        }
    }

    #[test]
    fn a_cordoned_node_takes_those_who_tolerate_that() {
        let cordoned = json!({ "unschedulable": true });
        let said = "node.kubernetes.io/unschedulable:NoSchedule".to_owned();
        assert_eq!(untolerated_of(&cordoned, &json!([])), Some(said));
        let tolerates = json!([{ "key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule" }]);
        assert_eq!(untolerated_of(&cordoned, &tolerates), None);
        assert_eq!(untolerated_of(&json!({}), &json!([])), None);
    }
}
