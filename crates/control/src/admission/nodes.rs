//! What is reserved of a node whose kubelet writes `allocatable` itself: subtracted whenever a status is written.

use gpupool_core::sharing::Amounts;
use gpupool_core::sharing::names::{KUBELET_ALLOCATABLE_ANNOTATION, RESERVED_ANNOTATION};
use gpupool_core::sharing::reservation::unreserved;
use serde_json::Value;

use super::pod_template::object_mut;

/// The node as it is to be stored. `old`: as it is stored now; nothing for a new one.
pub(super) fn reserve(node: &Value, old: Option<&Value>) -> Value {
    let mut after = node.clone();
    // A node of unusual shape is left alone.
    let _ = apply(&mut after, node, old);
    after
}

fn apply(after: &mut Value, node: &Value, old: Option<&Value>) -> Option<()> {
    let reserved = Amounts::parse(annotation(node, RESERVED_ANNOTATION)?)?;
    let noted = annotation(node, KUBELET_ALLOCATABLE_ANNOTATION).and_then(Amounts::parse).unwrap_or_default();
    let unreserved = unreserved(&allocatable(node), old.map(allocatable).as_ref(), &noted);
    let annotations = object_mut(object_mut(after, "metadata")?, "annotations")?.as_object_mut()?;
    annotations.insert(KUBELET_ALLOCATABLE_ANNOTATION.to_owned(), unreserved.to_json().into());
    let list = after.pointer_mut("/status/allocatable")?.as_object_mut()?;
    for (one, amount) in unreserved.without(&reserved).iter() {
        list.insert(one.resource().to_owned(), amount.to_string().into());
    }
    Some(())
}

fn annotation<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    node.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn allocatable(node: &Value) -> Amounts {
    let list = node.pointer("/status/allocatable");
    Amounts::read(|name| list?.get(name)?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(cpu: &str, reserved: &str) -> Value {
        json!({
            "metadata": { "annotations": { RESERVED_ANNOTATION: format!(r#"{{"cpu":"{reserved}"}}"#) } },
            "status": { "allocatable": { "cpu": cpu, "memory": "1800Gi", "pods": "110" } },
        })
    }

    fn cpu(node: &Value) -> &str {
        node["status"]["allocatable"]["cpu"].as_str().unwrap()
    }

    /// A status as somebody writes it: `cpu` only if it was sent.
    fn write(stored: &Value, sent: Option<&str>) -> Value {
        let mut node = stored.clone();
        if let Some(cpu) = sent {
            node["status"]["allocatable"]["cpu"] = json!(cpu);
        }
        reserve(&node, Some(stored))
    }

    #[test]
    fn it_is_subtracted_once_whoever_writes_and_however_often() {
        let mut stored = node("176", "32");
        for sent in [None, None, Some("176"), None, Some("176"), Some("176")] {
            stored = write(&stored, sent);
            assert_eq!(cpu(&stored), "144");
        }
        assert_eq!(stored["status"]["allocatable"]["memory"], "1800Gi");
        assert_eq!(stored["status"]["allocatable"]["pods"], "110");
        assert_eq!(
            stored["metadata"]["annotations"][KUBELET_ALLOCATABLE_ANNOTATION],
            r#"{"cpu":"176","memory":"1800Gi"}"#
        );
        // The kubelet finds more processors, and later something else is reserved.
        stored = write(&stored, Some("180"));
        assert_eq!(cpu(&stored), "148");
        stored["metadata"]["annotations"][RESERVED_ANNOTATION] = json!(r#"{"cpu":"30"}"#);
        stored = write(&stored, None);
        assert_eq!(cpu(&stored), "150");
    }

    #[test]
    fn a_node_that_reserves_nothing_is_left_alone() {
        let mut bare = node("176", "32");
        bare["metadata"]["annotations"] = json!({});
        assert_eq!(reserve(&bare, Some(&bare)), bare);
        assert_eq!(reserve(&bare, None), bare);
        for odd in
            [json!(null), json!({}), json!({ "metadata": { "annotations": { RESERVED_ANNOTATION: "x" } } })]
        {
            assert_eq!(reserve(&odd, None), odd);
        }
    }

    #[test]
    fn a_new_node_is_lowered_from_what_it_comes_with() {
        let stored = reserve(&node("176", "32"), None);
        assert_eq!(cpu(&stored), "144");
        // Restored from a backup: it comes as it was stored.
        assert_eq!(reserve(&stored, None), stored);
    }
}
