//! Cards that are lost, come back, or are new.

use gpupool_core::pool::{Action, Event, PodState, Refusal, TerminationReason};

use crate::harness::{GRACE, MAX_DURATION, Node, card, granted, killed, pod_of, terminated, uuid};

fn lost(index: u32) -> Event {
    Event::CardLost { card: uuid(index) }
}

fn back(index: u32) -> Event {
    Event::CardBack { card: uuid(index) }
}

#[test]
fn pods_of_a_lost_card_are_evicted_and_hibernate() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(50));
    node.start(0, "b", pod_of(50));
    node.start(0, "c", pod_of(100));
    let actions = node.step(1, lost(0));
    assert_eq!(terminated(&actions), ["a", "b"]);
    assert!(
        actions
            .iter()
            .all(|action| matches!(action, Action::Terminate { why: TerminationReason::CardLost, .. }))
    );
    assert_eq!(node.step(2, lost(0)), [], "said twice");
    assert_eq!(killed(&node.tick(1 + GRACE)), ["a", "b"]);
    let actions = node.release(1 + GRACE, "a");
    assert!(
        matches!(&actions[..], [Action::Hibernated { why: Some(TerminationReason::CardLost), .. }]),
        "{actions:?}"
    );
    assert_eq!(node.pool.state(&"a".into()), Some(PodState::Hibernating));
    assert_eq!(node.pool.state(&"b".into()), Some(PodState::Running), "not confirmed yet");
}

#[test]
fn nobody_gets_a_lost_card_until_it_is_back() {
    let mut node = Node::share_pool(1);
    node.add("a", pod_of(100));
    node.step(0, lost(0));
    assert_eq!(granted(&node.want(1, "a")), [""; 0]);
    assert_eq!(node.queue(), ["a"]);
    assert_eq!(granted(&node.step(2, back(0))), ["a"]);
}

#[test]
fn the_share_of_a_card_that_is_back_is_charged_until_the_evicted_have_gone() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(50));
    node.start(0, "b", pod_of(50));
    node.add("c", pod_of(100));
    node.step(1, lost(0));
    node.want(2, "c");
    node.release(3, "a");
    assert_eq!(granted(&node.step(4, back(0))), [""; 0]);
    assert_eq!(granted(&node.release(5, "b")), ["c"]);
    assert_eq!(node.step(6, back(0)), [], "said twice");
}

#[test]
fn who_waits_for_a_lost_card_keeps_its_place_and_holds_up_nobody() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.start(0, "b", pod_of(100));
    node.add("bound", pod_of(100));
    node.want_only(1, "bound", 0);
    node.start(2, "free", pod_of(100));
    assert_eq!(granted(&node.release(3, "b")), [""; 0], "nothing overtakes it while its card works");
    assert_eq!(granted(&node.step(4, lost(0))), ["free"]);
    assert_eq!(node.pool.position(&"bound".into()), Some(1));
    node.release(5, "a");
    assert_eq!(granted(&node.step(6, back(0))), ["bound"]);
}

#[test]
fn nobody_is_pre_empted_for_a_pod_that_waits_for_a_lost_card() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.add("bound", pod_of(100));
    node.step(0, lost(1));
    node.want_only(1, "bound", 1);
    assert_eq!(node.tick(MAX_DURATION), []);
    assert_eq!(node.pool.next_deadline(), None);
}

#[test]
fn a_new_card_is_given_to_the_head_at_once() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    node.start(1, "b", pod_of(100));
    assert_eq!(granted(&node.step(2, Event::CardAdded { card: card(1) })), ["b"]);
}

#[test]
fn a_pool_may_begin_without_cards() {
    let mut node = Node::share_pool(0);
    assert_eq!(node.pool.likeliest_card(&"a".into()), None);
    node.step(0, Event::CardAdded { card: card(0) });
    assert_eq!(granted(&node.start(1, "a", pod_of(100))), ["a"]);
}

#[test]
fn unknown_and_doubled_cards_are_refused() {
    let mut node = Node::share_pool(1);
    assert_eq!(node.refused(0, lost(7)), Refusal::UnknownCard { card: uuid(7) });
    assert_eq!(node.refused(0, back(7)), Refusal::UnknownCard { card: uuid(7) });
    assert_eq!(node.refused(0, Event::CardAdded { card: card(0) }), Refusal::CardExists { card: uuid(0) });
    node.add("a", pod_of(10));
    let refusal = node.refused(0, Event::GpuWanted { pod: "a".into(), only: Some(uuid(7)) });
    assert_eq!(refusal, Refusal::UnknownCard { card: uuid(7) });
}

#[test]
fn a_card_that_is_renumbered_keeps_its_pods() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.step(1, Event::CardRenumbered { card: uuid(0), index: 1 });
    node.step(1, Event::CardRenumbered { card: uuid(1), index: 0 });
    let cards: Vec<_> = node.pool.cards().map(|card| (card.uuid.clone(), card.pods.len())).collect();
    assert_eq!(cards, [(uuid(1), 0), (uuid(0), 1)]);
    let unknown = Event::CardRenumbered { card: uuid(7), index: 0 };
    assert_eq!(node.refused(2, unknown), Refusal::UnknownCard { card: uuid(7) });
}
