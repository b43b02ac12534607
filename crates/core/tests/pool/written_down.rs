//! What a pool writes down, and what it takes back.

use gpupool_core::pool::{Policy, Pool, Snapshot};
use serde_json::{Value, json};

use crate::harness::{MAX_DURATION, Node, config, pod_of};

fn busy() -> Node {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(60));
    node.start(1, "b", pod_of(40));
    node.start(2, "c", pod_of(50));
    node.tick(MAX_DURATION);
    node
}

/// What becomes of the snapshot of a busy pool when `path` in it is replaced.
fn damaged(path: &str, value: Value) -> String {
    let mut written = serde_json::to_value(busy().pool.snapshot()).unwrap();
    *written.pointer_mut(path).unwrap() = value;
    match serde_json::from_value::<Snapshot>(written) {
        Err(error) => error.to_string(),
        Ok(snapshot) => Pool::restore(snapshot).unwrap_err().to_string(),
    }
}

#[test]
fn damage_is_noticed() {
    let running = "/pods/0/phase/Running";
    let table = [
        (format!("{running}/limits/core"), json!(61), "over its whole"),
        (format!("{running}/limits/core"), json!(0), "out of range"),
        (format!("{running}/card"), json!(1), "a card that isn't there"),
        (format!("{running}/id"), json!(2), "is there twice"),
        (format!("{running}/id"), json!(99), "was never given"),
        ("/pods/0/id".into(), json!("b"), "is there twice"),
        ("/pods/0/fixed".into(), json!(0), "disagree"),
        ("/pods/2/phase/Ready/number".into(), json!(9), "was never given"),
        ("/pods/2/spec/core/limit".into(), json!(0), "out of range"),
        ("/next_lease".into(), json!(1), "was never given"),
        ("/now".into(), json!(0), "later moment"),
    ];
    for (path, value, complaint) in table {
        let said = damaged(&path, value.clone());
        assert!(said.contains(complaint), "{path} = {value}: {said}");
    }
}

#[test]
fn a_head_that_could_be_placed_is_noticed() {
    let said = damaged("/pods/0/phase", json!("Hibernating"));
    assert!(said.contains("has room for it"), "{said}");
}

#[test]
fn doubled_cards_are_refused_from_the_start() {
    let mut config = config(Policy::SharePool, 1);
    config.cards.push(gpupool_core::pool::Card { uuid: "GPU-0".into(), index: 5 });
    assert_eq!(Pool::new(config).unwrap_err().reason(), "CardExists");
}
