//! What a pool writes down, and what it takes back.

use gpupool_core::pool::{Change, Event, Policy, Pool, Rebuilt, Snapshot, Timestamp};
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

#[test]
fn what_came_of_an_event_counts_and_not_what_would_come_of_it_today() {
    let mut node = Node::share_pool(2);
    node.step(0, Event::PodAdded { pod: "a".into(), spec: pod_of(50) });
    let before = node.pool.snapshot();
    let event = Event::GpuWanted { pod: "a".into(), only: None };
    node.step(1, event.clone());
    let mut written = serde_json::to_value(node.pool.last_change(&event)).unwrap();
    let card = written.pointer_mut("/pods/0/phase/Running/card").unwrap();
    assert_eq!(*card, json!(0), "the lowest index, today");
    *card = json!(1);
    let mut rebuilt = Rebuilt::new(before);
    rebuilt.apply(serde_json::from_value::<Change>(written).unwrap());
    let pool = rebuilt.pool().unwrap();
    assert_eq!(pool.leases().map(|lease| lease.card.to_string()).collect::<Vec<_>>(), ["GPU-1"]);
    assert_eq!(pool.now(), Timestamp(1));
}

#[test]
fn what_a_newer_pool_may_write_is_not_taken_for_less_than_it_is() {
    let mut node = busy();
    let event = Event::QosChanged { qos: node.pool.qos() };
    node.step(MAX_DURATION + 1, event.clone());
    let change = serde_json::to_value(node.pool.last_change(&event)).unwrap();
    let places = ["", "/surroundings", "/surroundings/qos"];
    for place in places {
        let mut newer = change.clone();
        newer.pointer_mut(place).unwrap()["later"] = json!(1);
        let said = serde_json::from_value::<Change>(newer).unwrap_err().to_string();
        assert!(said.contains("unknown field `later`"), "{place}: {said}");
    }
    let snapshot = serde_json::to_value(node.pool.snapshot()).unwrap();
    for place in [
        "",
        "/qos",
        "/pods/0",
        "/pods/0/phase/Running",
        "/pods/0/phase/Running/ending",
        "/pods/2/phase/Ready",
    ] {
        let mut newer = snapshot.clone();
        newer.pointer_mut(place).unwrap_or_else(|| panic!("no {place} in {snapshot}"))["later"] = json!(1);
        assert!(serde_json::from_value::<Snapshot>(newer).is_err(), "{place}");
    }
}
