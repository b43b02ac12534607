//! Dumps of nodes and pods as values, and what is said about those that cannot be read.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use gpupool_core::checker::Rules;
use gpupool_core::stock::{PodPhase, StockNode, StockPod};
use gpupool_dump::check_config::check;
use gpupool_dump::stock::{read_nodes, read_pods};
use gpupool_dump::{DocumentFault, DumpError, ObjectError, TextFault};

fn nodes(text: &str) -> Result<Vec<StockNode>, DumpError> {
    let mut nodes = Vec::new();
    read_nodes(text.as_bytes(), |node| nodes.push(node))?;
    Ok(nodes)
}

fn pods(text: &str) -> Result<Vec<StockPod>, DumpError> {
    let mut pods = Vec::new();
    read_pods(text.as_bytes(), |pod| pods.push(pod))?;
    Ok(pods)
}

#[test]
fn a_node_without_allocatable_offers_its_capacity() {
    let text = r#"{"kind":"NodeList","items":[{"metadata":{"name":"n","labels":{"a":"b"}},
        "spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]},
        "status":{"capacity":{"nvidia.com/gpu":4},"conditions":[{"type":"Ready","status":"Unknown"}]}}]}"#;
    let nodes = nodes(text).unwrap();
    assert_eq!(nodes[0].name, "n");
    assert_eq!(nodes[0].labels["a"], "b");
    assert_eq!(nodes[0].allocatable["nvidia.com/gpu"].to_string(), "4");
    assert_eq!(nodes[0].capacity, nodes[0].allocatable);
    assert_eq!((nodes[0].taints.len(), nodes[0].unschedulable, nodes[0].ready), (1, true, false));
}

#[test]
fn a_pod_asks_for_its_limits_where_it_states_no_requests() {
    let text = "kind: Pod\nmetadata: {name: p}\nspec:\n  nodeName: n\n  containers:\n  - resources:\n      \
                limits: {nvidia.com/gpu: 2, cpu: 4}\n      requests: {cpu: 500m}\nstatus: {phase: Running}\n";
    let pods = pods(text).unwrap();
    assert_eq!((pods[0].namespace.as_str(), pods[0].name.as_str()), ("default", "p"));
    assert_eq!((pods[0].node.as_deref(), pods[0].phase), (Some("n"), PodPhase::Running));
    assert_eq!(pods[0].requests["nvidia.com/gpu"].to_string(), "2");
    assert_eq!(pods[0].requests["cpu"].to_string(), "500m");
}

#[test]
fn an_object_that_cannot_be_used_is_named_with_its_place() {
    let text = r#"{"kind":"List","items":[{"metadata":{"name":"a"}},
        {"metadata":{"name":"b"},"status":{"capacity":{"cpu":true}}}]}"#;
    let error = nodes(text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2 column 9: item 2: node b: cpu: true is no quantity: write a number such as \"4\""
    );
    let DumpError::At { fault: TextFault::Item { index, why: ObjectError::Quantity { name, .. } }, .. } =
        error
    else {
        unreachable!("{error}");
    };
    assert_eq!((index, name.as_str()), (2, "b"));
}

#[test]
fn a_dump_of_something_else_is_refused() {
    let error = pods(r#"{"kind":"Node","metadata":{"name":"n"}}"#).unwrap_err();
    assert!(matches!(
        &error,
        DumpError::Document(DocumentFault::OtherDocument { found, expected: "Pod" }) if found == "Node"
    ));
    assert!(matches!(
        nodes("{\"kind\":\"List\"}"),
        Err(DumpError::Document(DocumentFault::ListWithoutItems(_)))
    ));
    assert!(matches!(nodes("[]"), Err(DumpError::BareArray("Node"))));
    assert!(matches!(nodes(" \n"), Err(DumpError::Empty)));
    assert!(matches!(nodes("{\"kind\":"), Err(DumpError::Truncated { line: 1, .. })));
    let twice = "kind: Node\n---\nkind: Node\n";
    assert!(matches!(nodes(twice), Err(DumpError::Document(DocumentFault::SeveralDocuments))));
}

#[test]
fn a_report_has_its_mismatches_in_name_order_and_its_warnings_in_that_of_the_dump() {
    let node = |name: &str, resource: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"nvidia.com/gpu.workload.config":"container"}}}},
            "status":{{"allocatable":{{"{resource}":1}},"capacity":{{"{resource}":"x"}}}}}}"#
        )
    };
    let items = [node("z", "nvidia.com/GA102GL_A10"), node("m", "nvidia.com/gpu"), node("a", "nvidia.com/x")];
    let unlabelled = r#"{"metadata":{"name":"u"},"status":{"capacity":{"nvidia.com/gpu":1}}}"#;
    let text = format!(r#"{{"kind":"List","items":[{},{unlabelled}]}}"#, items.join(","));
    let report = check(text.as_bytes(), Rules::Strict).unwrap();
    let mismatches: Vec<_> = report.mismatches.iter().map(|mismatch| mismatch.node.as_str()).collect();
    let mut warnings: Vec<_> = report.warnings.iter().map(|warning| warning.node.as_str()).collect();
    // The checker itself warns of these nodes too.
    warnings.dedup();
    assert_eq!((mismatches, warnings), (vec!["a", "z"], vec!["z", "m", "a"]));
    assert_eq!((report.judged, report.is_ok()), (3, false));
    assert_eq!(
        (report.unlabelled.count, report.unlabelled.first_names.as_slice()),
        (1, &["u".to_owned()][..])
    );
}
