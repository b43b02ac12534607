//! Who is next, and on which card.

use gpupool_core::pool::{Event, Timestamp};

use crate::harness::{Node, granted, pod_of, pod_with, uuid};

#[test]
fn a_pod_goes_to_the_card_that_is_left_fullest() {
    let mut node = Node::share_pool(3);
    node.start(0, "a", pod_of(60));
    node.start(0, "b", pod_of(50));
    assert_eq!((node.card_of("a"), node.card_of("b")), (Some(0), Some(1)));
    node.start(0, "fits both", pod_of(40));
    assert_eq!(node.card_of("fits both"), Some(0));
}

#[test]
fn core_and_memory_count_alike_for_the_fullest_card() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_with("60", "10", 0));
    node.start(0, "b", pod_with("30", "95", 0));
    assert_eq!((node.card_of("a"), node.card_of("b")), (Some(0), Some(1)));
    node.start(0, "c", pod_with("5", "5", 0));
    assert_eq!(node.card_of("c"), Some(1), "125 of 200 are taken there, 70 on card 0");
}

#[test]
fn of_equal_cards_the_lowest_index_is_taken_however_they_are_listed() {
    let mut config = crate::harness::config(gpupool_core::pool::Policy::SharePool, 3);
    config.cards.reverse();
    let mut node = Node::with(config);
    node.start(0, "a", pod_of(100));
    node.start(0, "b", pod_of(100));
    assert_eq!((node.card_of("a"), node.card_of("b")), (Some(0), Some(1)));
    assert_eq!(node.pool.cards().map(|card| card.index).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn memory_alone_can_keep_a_pod_waiting() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_with("1:10", "1:80", 0));
    node.start(0, "b", pod_with("1:10", "1:21", 0));
    assert_eq!(node.queue(), ["b"]);
    node.start(0, "c", pod_with("1:10", "1:20", 1));
    assert_eq!(node.card_of("c"), Some(0));
}

#[test]
fn nothing_overtakes_a_blocked_head_and_all_follow_it_when_it_runs() {
    let mut node = Node::share_pool(2);
    node.start(0, "long", pod_of(50));
    node.start(0, "whole", pod_of(100));
    node.start(1, "head", pod_of(100));
    node.start(2, "small", pod_of(10));
    node.start(3, "small too", pod_of(10));
    assert_eq!(node.queue(), ["head", "small", "small too"]);
    assert_eq!(node.pool.position(&"small too".into()), Some(3));
    let actions = node.release(4, "whole");
    assert_eq!(granted(&actions), ["head", "small", "small too"]);
    assert_eq!(node.card_of("small"), Some(0));
}

#[test]
fn higher_priority_goes_first_and_equal_ones_in_the_order_they_became_ready() {
    let mut node = Node::share_pool(1);
    node.start(0, "running", pod_of(100));
    node.start(1, "first", pod_of(100));
    node.start(2, "low", pod_with("1:100", "1:100", -1));
    node.start(3, "second", pod_of(100));
    node.start(4, "high", pod_with("1:100", "1:100", 5));
    assert_eq!(node.queue(), ["high", "first", "second", "low"]);
}

#[test]
fn a_waiting_pod_keeps_its_number_when_it_changes_and_asks_again() {
    let mut node = Node::share_pool(1);
    node.start(0, "running", pod_of(100));
    node.start(1, "first", pod_of(100));
    node.start(2, "second", pod_of(100));
    node.want(3, "first");
    let spec = pod_with("1:90", "1:100", 0);
    node.step(4, Event::PodChanged { pod: "first".into(), spec });
    assert_eq!(node.queue(), ["first", "second"]);
    let spec = pod_with("1:100", "1:100", 1);
    node.step(5, Event::PodChanged { pod: "second".into(), spec });
    assert_eq!(node.queue(), ["second", "first"]);
    let waits: Vec<_> = node.pool.queue().map(|entry| (entry.number, entry.since)).collect();
    assert_eq!(waits, [(3, Timestamp(2)), (2, Timestamp(1))]);
}

#[test]
fn a_waiting_pod_that_asks_for_less_is_placed_at_once() {
    let mut node = Node::share_pool(1);
    node.start(0, "running", pod_of(60));
    node.start(1, "head", pod_of(50));
    let actions = node.step(2, Event::PodChanged { pod: "head".into(), spec: pod_of(40) });
    assert_eq!(granted(&actions), ["head"]);
}

#[test]
fn when_the_head_gives_up_the_next_is_placed() {
    for gives_up in [Event::WantGone { pod: "head".into() }, Event::PodRemoved { pod: "head".into() }] {
        let mut node = Node::share_pool(1);
        node.start(0, "running", pod_of(50));
        node.start(1, "head", pod_of(100));
        node.start(2, "next", pod_of(50));
        assert_eq!(granted(&node.step(3, gives_up)), ["next"]);
    }
}

#[test]
fn a_pod_whose_processes_are_bound_to_a_card_waits_for_that_one() {
    let mut node = Node::share_pool(2);
    node.start(0, "running", pod_of(100));
    node.add("bound", pod_of(50));
    node.want_only(1, "bound", 0);
    assert_eq!(node.queue(), ["bound"]);
    let only: Vec<_> = node.pool.queue().map(|entry| entry.only.cloned()).collect();
    assert_eq!(only, [Some(uuid(0))]);
    node.start(2, "behind", pod_of(50));
    assert_eq!(node.queue(), ["bound", "behind"], "nothing overtakes it, though card 1 is free");
    node.release(3, "running");
    assert_eq!((node.card_of("bound"), node.card_of("behind")), (Some(0), Some(0)));
}

#[test]
fn what_a_waiting_pod_said_last_about_its_card_counts() {
    let mut node = Node::share_pool(2);
    node.start(0, "running", pod_of(100));
    node.add("bound", pod_of(50));
    node.want_only(1, "bound", 0);
    assert_eq!(granted(&node.want(2, "bound")), ["bound"]);
    assert_eq!(node.card_of("bound"), Some(1));
}

#[test]
fn another_process_of_a_running_pod_changes_nothing() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(50));
    assert_eq!(node.want(1, "a"), []);
    assert_eq!(node.want_only(2, "a", 0), []);
    let refusal = node.refused(3, Event::GpuWanted { pod: "a".into(), only: Some(uuid(1)) });
    assert_eq!(refusal.reason(), "OtherCard");
    assert_eq!(node.step(4, Event::WantGone { pod: "a".into() }), []);
    assert_eq!(node.card_of("a"), Some(0));
}

#[test]
fn time_never_goes_back() {
    let mut node = Node::share_pool(1);
    node.tick(500);
    node.start(100, "a", pod_of(100));
    assert_eq!(node.pool.leases().next().unwrap().since, Timestamp(500));
}

#[test]
fn the_likeliest_card_is_the_own_one_else_the_one_that_would_be_granted() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(60));
    node.add("small", pod_of(40));
    node.add("large", pod_of(100));
    node.add("bound", pod_of(100));
    node.start(1, "b", pod_of(50));
    node.want_only(2, "bound", 0);
    let likeliest = |name: &str| node.pool.likeliest_card(&name.into()).cloned();
    assert_eq!(likeliest("b"), Some(uuid(1)));
    assert_eq!(likeliest("small"), Some(uuid(0)));
    assert_eq!(likeliest("large"), Some(uuid(1)), "fits nowhere; most is free there");
    assert_eq!(likeliest("bound"), Some(uuid(0)));
    assert_eq!(likeliest("nobody"), None);
}
