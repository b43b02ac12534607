//! `static`: one queue per card, and nobody is pre-empted.

use gpupool_core::pool::{Event, Millis, PodSpec, Refusal};

use crate::harness::{MAX_DURATION, Node, granted, pod_of, pod_with, terminated, uuid};

fn on(card: u32, request: &str) -> PodSpec {
    PodSpec { card: Some(uuid(card)), ..pod_with(request, request, 0) }
}

fn added(name: &str, spec: PodSpec) -> Event {
    Event::PodAdded { pod: name.into(), spec }
}

#[test]
fn each_card_has_its_own_queue() {
    let mut node = Node::fixed(2);
    node.start(0, "a", on(0, "1:100"));
    node.start(1, "b", on(0, "1:100"));
    node.start(2, "c", on(0, "1:100"));
    node.start(3, "x", on(1, "1:60"));
    node.start(4, "y", on(1, "1:60"));
    let queue: Vec<_> = node.pool.queue().map(|entry| (entry.pod.as_str(), entry.position)).collect();
    assert_eq!(queue, [("b", 1), ("c", 2), ("y", 1)]);
    assert_eq!(node.pool.position(&"y".into()), Some(1));
    assert_eq!(granted(&node.release(5, "x")), ["y"]);
    assert_eq!(granted(&node.release(6, "a")), ["b"], "the pods of one card take turns");
}

#[test]
fn nobody_is_pre_empted_however_long_others_wait() {
    let mut node = Node::fixed(1);
    node.start(0, "a", on(0, "1:100"));
    node.start(1, "b", on(0, "1:100"));
    assert_eq!(node.pool.next_deadline(), None);
    assert_eq!(node.tick(100 * MAX_DURATION), []);
}

#[test]
fn an_idle_pod_is_let_go_if_the_setting_says_so() {
    let mut node = Node::fixed(2);
    node.set_qos(0, |qos| qos.idle_release = Some(Millis(10)));
    node.start(0, "a", on(0, "1:100"));
    node.start(0, "other", on(1, "1:100"));
    node.idle(1, "a");
    node.idle(1, "other");
    node.start(2, "b", on(0, "1:100"));
    assert_eq!(terminated(&node.tick(11)), ["a"], "nobody waits for card 1");
}

#[test]
fn without_a_card_of_its_own_a_pod_goes_where_requests_leave_least() {
    let mut node = Node::fixed(2);
    node.add("a", pod_with("60", "60", 0));
    node.add("b", pod_with("70", "70", 0));
    node.add("c", pod_with("30", "30", 0));
    node.add("d", pod_with("40", "40", 0));
    let cards: Vec<_> = node.pool.pods().map(|pod| pod.only.cloned().unwrap()).collect();
    assert_eq!(cards, [uuid(0), uuid(1), uuid(1), uuid(0)]);
    let refusal = node.refused(0, added("e", pod_with("1", "1", 0)));
    assert_eq!(
        refusal.to_string(),
        "none of the 2 healthy card(s) has room for requests of 1 core and 1 memory: ask for less, \
         or wait until others have ended"
    );
}

#[test]
fn requests_stay_within_the_card_and_limits_may_exceed_it() {
    let mut node = Node::fixed(2);
    node.add("a", on(0, "60:100"));
    node.add("b", on(0, "40:100"));
    let refusal = node.refused(0, added("c", on(0, "1:100")));
    assert!(refusal.to_string().starts_with("no room on card GPU-0 for a core request of 1: 100 of 100"));
    node.add("c", on(1, "1:100"));
}

#[test]
fn a_pods_card_is_healthy_at_first_and_never_changes() {
    let mut node = Node::fixed(2);
    node.add("a", on(0, "1:100"));
    node.step(0, Event::CardLost { card: uuid(1) });
    assert_eq!(node.refused(1, added("b", on(1, "1"))), Refusal::CardIsLost { card: uuid(1) });
    assert_eq!(node.refused(1, added("b", on(9, "1"))), Refusal::UnknownCard { card: uuid(9) });
    let other = Refusal::OtherCard { pod: "a".into(), card: uuid(0), asked: uuid(1) };
    assert_eq!(node.refused(2, Event::PodChanged { pod: "a".into(), spec: on(1, "1:100") }), other);
    assert_eq!(node.refused(2, Event::GpuWanted { pod: "a".into(), only: Some(uuid(1)) }), other);
    node.step(3, Event::PodChanged { pod: "a".into(), spec: pod_of(50) });
    node.want_only(4, "a", 0);
    assert_eq!(node.card_of("a"), Some(0));
}

#[test]
fn while_its_card_is_lost_a_pod_waits() {
    let mut node = Node::fixed(2);
    node.start(0, "a", on(0, "1:100"));
    node.add("b", on(0, "1:100"));
    node.step(1, Event::CardLost { card: uuid(0) });
    node.release(2, "a");
    assert_eq!(granted(&node.want(3, "b")), [""; 0]);
    assert_eq!(granted(&node.step(4, Event::CardBack { card: uuid(0) })), ["b"]);
}
