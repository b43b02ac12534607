//! Cards on which somebody is who has no right to it, and cards that nobody looks at.

use std::collections::BTreeMap;

use gpupool_core::pool::{Action, Event, Occupants, PodId, Refusal, Snapshot};

use crate::harness::{MAX_DURATION, Node, granted, pod_of, terminated, uuid};

fn occupied(card: u32, pods: &[&str], strangers: bool) -> Event {
    let pods = pods.iter().map(|pod| PodId::from(*pod)).collect();
    Event::CardsSeen { occupied: [(uuid(card), Occupants { pods, strangers })].into() }
}

fn free() -> Event {
    Event::CardsSeen { occupied: BTreeMap::new() }
}

const NOBODY: [&str; 0] = [];

#[test]
fn nobody_is_let_in_beside_a_stranger_and_the_next_is_when_it_has_gone() {
    let mut node = Node::share_pool(1);
    node.step(0, occupied(0, &[], true));
    assert_eq!(granted(&node.start(1, "a", pod_of(50))), NOBODY);
    assert_eq!(node.queue(), ["a"]);
    assert_eq!(granted(&node.step(2, free())), ["a"]);
}

#[test]
fn leases_stay_on_a_card_that_becomes_occupied_and_grow_no_more() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(50));
    assert_eq!(node.step(1, occupied(0, &[], true)), []);
    let more = Event::PodChanged { pod: "a".into(), spec: pod_of(60) };
    assert_eq!(node.step(2, more.clone()), []);
    node.step(3, free());
    assert!(matches!(node.step(4, more)[..], [Action::LimitsChanged { .. }]));
}

#[test]
fn who_can_use_occupied_cards_only_keeps_its_place_and_holds_up_nobody() {
    let mut node = Node::share_pool(2);
    node.step(0, occupied(0, &["gone"], false));
    node.add("bound", pod_of(100));
    node.want_only(1, "bound", 0);
    assert_eq!(granted(&node.start(2, "free", pod_of(100))), ["free"]);
    assert_eq!(node.pool.position(&"bound".into()), Some(1));
    assert_eq!(granted(&node.step(3, free())), ["bound"]);
}

#[test]
fn a_pod_that_is_on_a_card_without_a_lease_can_get_one_there() {
    let mut node = Node::share_pool(1);
    node.step(0, occupied(0, &["a"], false));
    assert_eq!(granted(&node.start(1, "b", pod_of(50))), NOBODY);
    assert_eq!(granted(&node.start(2, "a", pod_of(50))), ["a"]);
    assert_eq!(granted(&node.step(3, free())), ["b"]);
}

#[test]
fn who_is_alone_on_the_card_that_it_waits_for_gets_it_whoever_is_before_it() {
    let mut node = Node::share_pool(2);
    node.start(0, "other", pod_of(100));
    assert_eq!(granted(&node.start(1, "head", pod_of(100))), ["head"]);
    node.release(2, "head");
    node.step(3, occupied(1, &["there"], false));
    assert_eq!(granted(&node.want(4, "head")), NOBODY, "somebody is there");
    node.add("there", pod_of(60));
    node.want_only(5, "there", 1);
    assert_eq!(node.pool.state(&"there".into()), Some(gpupool_core::pool::PodState::Running));
    assert_eq!(node.queue(), ["head"]);
    // Not where others are as well, nor for a card that it is not on.
    for (pods, strangers, only) in
        [(&["late", "x"][..], false, 1), (&["late"][..], true, 1), (&["late"][..], false, 0)]
    {
        let mut node = Node::share_pool(2);
        node.start(0, "other", pod_of(100));
        node.step(1, occupied(1, pods, strangers));
        node.start(2, "head", pod_of(100));
        node.add("late", pod_of(60));
        node.want_only(3, "late", only);
        assert_eq!(node.queue(), ["head", "late"], "{pods:?} {strangers} {only}");
    }
}

#[test]
fn a_pod_over_its_limit_keeps_others_out_and_is_the_one_that_is_told_to_go() {
    let mut node = Node::share_pool(1);
    node.start(0, "older", pod_of(60));
    node.start(1, "over", pod_of(20));
    node.step(2, occupied(0, &["over"], false));
    assert_eq!(granted(&node.start(3, "next", pod_of(20))), NOBODY, "there would be room");
    assert_eq!(node.tick(MAX_DURATION), [], "that the older one goes would help nobody");
    assert_eq!(terminated(&node.tick(MAX_DURATION + 1)), ["over"]);
    assert_eq!(granted(&node.release(MAX_DURATION + 2, "over")), NOBODY, "it was not seen to have gone");
    assert_eq!(granted(&node.step(MAX_DURATION + 3, free())), ["next"]);
}

#[test]
fn nobody_is_told_to_go_where_a_stranger_stays() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    node.step(1, occupied(0, &[], true));
    node.start(2, "b", pod_of(100));
    assert_eq!(node.tick(2 * MAX_DURATION), []);
    assert_eq!(terminated(&node.step(2 * MAX_DURATION + 1, free())), ["a"]);
}

#[test]
fn while_nobody_looks_nothing_is_granted_and_nobody_is_told_to_go() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.step(1, Event::CardsUnseen);
    assert_eq!(granted(&node.start(2, "b", pod_of(100))), NOBODY);
    node.start(3, "c", pod_of(100));
    assert_eq!(node.tick(2 * MAX_DURATION), []);
    assert_eq!(node.pool.next_deadline(), None);
    let actions = node.step(2 * MAX_DURATION + 1, free());
    assert_eq!((granted(&actions), terminated(&actions)), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn an_unknown_card_is_not_occupied() {
    let refusal = Node::share_pool(1).refused(0, occupied(7, &[], true));
    assert_eq!(refusal, Refusal::UnknownCard { card: uuid(7) });
}

#[test]
fn a_snapshot_of_before_there_were_occupied_cards_is_read() {
    let node = Node::share_pool(1);
    let mut written = serde_json::to_value(node.pool.snapshot()).unwrap();
    written.as_object_mut().unwrap().remove("unseen");
    assert!(written.get("occupied").is_none());
    let snapshot: Snapshot = serde_json::from_value(written).unwrap();
    assert_eq!(snapshot, node.pool.snapshot());
}
