//! What a context takes of each card is measured once, and never on a card on which somebody computes.

use std::fs;

use serde_json::{Value, json};

use crate::agent_node::AgentNode;

/// The figures that the agent keeps beside its journal.
fn figures(node: &AgentNode) -> Value {
    let text = fs::read(node.folder().join("agent.contexts")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_context_is_measured_once_and_never_where_somebody_computes() {
    let mut node = AgentNode::start(&[]);
    let first = figures(&node);
    let contexts = first["contexts"].as_object().unwrap().clone();
    assert_eq!(contexts.len(), 2, "{first}");
    assert!(contexts.values().all(|bytes| bytes.as_u64() > Some(1 << 20)), "{first}");
    // A figure that nobody would measure is believed: so nothing is measured.
    let mut told = first.clone();
    for bytes in told["contexts"].as_object_mut().unwrap().values_mut() {
        *bytes = json!(123 << 20);
    }
    node.kill();
    fs::write(node.folder().join("agent.contexts"), told.to_string()).unwrap();
    node.start_again();
    assert_eq!(figures(&node), told);
    // Of another driver it is not.
    let mut other = told;
    other["driver"] = json!("1.2.3");
    node.kill();
    fs::write(node.folder().join("agent.contexts"), other.to_string()).unwrap();
    node.start_again();
    assert_eq!(figures(&node), first);
    // Nothing is known, and somebody holds a card.
    let mut program = node.program("holder", "1:100");
    let status = node.wait_until("the card to be taken", |status| status.leases.len() == 1);
    let held = status.leases[0].card_uuid.clone();
    node.kill();
    fs::remove_file(node.folder().join("agent.contexts")).unwrap();
    node.start_again();
    let known = figures(&node)["contexts"].as_object().unwrap().clone();
    assert_eq!(
        known.keys().collect::<Vec<_>>(),
        contexts.keys().filter(|card| **card != held).collect::<Vec<_>>()
    );
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
