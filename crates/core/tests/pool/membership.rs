//! Pods that come, change and go, and the sentences for those that can't.

use gpupool_core::pool::{Action, Event, Millis, PodState, Policy, Refusal, TerminationReason};

use crate::harness::{GRACE, Node, config, granted, killed, pod_of, pod_with, terminated, uuid};

fn added(name: &str, request: &str) -> Event {
    Event::PodAdded { pod: name.into(), spec: pod_with(request, request, 0) }
}

#[test]
fn requests_of_all_pods_stay_within_the_healthy_cards() {
    let mut node = Node::share_pool(2);
    node.step(0, added("a", "100"));
    node.step(0, added("b", "60:100"));
    let refusal = node.refused(0, added("c", "41"));
    assert_eq!(refusal.reason(), "NoRoom");
    assert_eq!(
        refusal.to_string(),
        "no room for a core request of 41: 160 of 200 percent are already requested on 2 healthy card(s); \
         ask for at most 40, or wait until others have ended"
    );
    node.step(0, added("c", "40:100"));
    node.remove(1, "c");
    node.step(1, Event::CardLost { card: uuid(1) });
    assert_eq!(node.refused(2, added("d", "1")).reason(), "NoRoom", "160 of 100");
}

#[test]
fn memory_requests_are_counted_as_well() {
    let mut node = Node::share_pool(1);
    node.add("a", pod_with("10", "80", 0));
    let spec = pod_with("10", "21", 0);
    let refusal = node.refused(0, Event::PodAdded { pod: "b".into(), spec });
    assert!(refusal.to_string().contains("memory request of 21: 80 of 100"), "{refusal}");
}

#[test]
fn without_the_check_any_number_of_pods_can_wait() {
    let mut config = config(Policy::SharePool, 1);
    config.check_requests = false;
    let mut node = Node::with(config);
    for name in ["a", "b", "c"] {
        node.start(0, name, pod_with("100", "100", 0));
    }
    assert_eq!(node.queue(), ["b", "c"]);
}

#[test]
fn a_name_can_be_had_once() {
    let mut node = Node::share_pool(1);
    node.add("a", pod_of(10));
    assert_eq!(node.refused(0, added("a", "10")), Refusal::PodExists { pod: "a".into() });
    node.remove(0, "a");
    node.add("a", pod_of(20));
    assert_eq!(node.pool.pod(&"a".into()).unwrap().spec, &pod_of(20));
}

#[test]
fn a_removed_pod_that_runs_is_told_and_stays_charged_and_its_name_taken() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    node.start(1, "b", pod_of(100));
    let actions = node.remove(2, "a");
    assert!(
        matches!(&actions[..], [Action::Terminate { why: TerminationReason::Stopped, .. }]),
        "{actions:?}"
    );
    assert_eq!(node.remove(3, "a"), [], "said twice");
    assert_eq!(node.queue(), ["b"]);
    let leaving = Refusal::PodLeaving { pod: "a".into() };
    assert_eq!(node.refused(3, added("a", "10")), leaving);
    assert_eq!(node.refused(3, Event::GpuWanted { pod: "a".into(), only: None }), leaving);
    assert_eq!(node.refused(3, Event::PodChanged { pod: "a".into(), spec: pod_of(1) }), leaving);
    assert!(node.pool.pod(&"a".into()).unwrap().leaving);
    assert_eq!(killed(&node.tick(2 + GRACE)), ["a"]);
    assert_eq!(granted(&node.release(2 + GRACE, "a")), ["b"]);
    assert_eq!(node.pool.state(&"a".into()), None);
    node.add("a", pod_of(10));
}

#[test]
fn a_victim_that_is_removed_is_not_told_again() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    node.set_qos(0, |qos| qos.pod_max_duration = Millis(0));
    assert_eq!(terminated(&node.start(1, "b", pod_of(100))), ["a"]);
    node.want(2, "a");
    assert!(node.pool.pod(&"a".into()).unwrap().lease.unwrap().wants_again);
    assert_eq!(node.remove(3, "a"), []);
    assert!(!node.pool.pod(&"a".into()).unwrap().lease.unwrap().wants_again);
    let actions = node.tick(1 + GRACE);
    assert!(
        matches!(&actions[..], [Action::Kill { why: TerminationReason::Preempted { .. }, .. }]),
        "{actions:?}"
    );
    node.release(1 + GRACE, "a");
    assert_eq!(node.pool.state(&"a".into()), None, "its want went with it");
}

#[test]
fn requests_of_a_removed_pod_are_free_while_its_lease_goes_on() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_with("100", "100", 0));
    node.remove(1, "a");
    node.start(2, "b", pod_with("100", "100", 0));
    assert_eq!(node.pool.state(&"b".into()), Some(PodState::Ready));
}

#[test]
fn a_removed_pod_that_waits_is_gone_at_once() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    node.start(0, "b", pod_of(100));
    assert_eq!(node.remove(1, "b"), []);
    assert_eq!((node.queue(), node.pool.state(&"b".into())), (vec![], None));
}

#[test]
fn unknown_pods_are_refused_whatever_happens_to_them() {
    let mut node = Node::share_pool(1);
    let pod = || "ghost".into();
    for event in [
        Event::PodChanged { pod: pod(), spec: pod_of(1) },
        Event::PodRemoved { pod: pod() },
        Event::GpuWanted { pod: pod(), only: None },
        Event::WantGone { pod: pod() },
        Event::Released { pod: pod(), lease: gpupool_core::pool::LeaseId(1) },
        Event::Idle { pod: pod(), idle: true },
    ] {
        assert_eq!(node.refused(0, event), Refusal::UnknownPod { pod: pod() });
    }
}

#[test]
fn a_late_release_of_an_old_lease_does_not_end_the_new_one() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    let late = node.release_of("a");
    node.step(1, late.clone());
    assert_eq!(node.refused(2, late.clone()).reason(), "StaleLease");
    node.want(3, "a");
    assert_eq!(node.refused(4, late).reason(), "StaleLease");
    assert_eq!(node.card_of("a"), Some(0));
}

#[test]
fn idle_means_nothing_for_a_pod_that_does_not_run() {
    let mut node = Node::share_pool(1);
    node.add("a", pod_of(100));
    assert_eq!(node.idle(0, "a"), []);
    node.want(1, "a");
    assert_eq!(node.pool.leases().next().unwrap().idle_since, None);
}

#[test]
fn a_running_pod_that_asks_for_less_core_gives_it_back_at_once() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_with("1:80", "1:20", 0));
    node.start(1, "b", pod_with("1:50", "1:50", 0));
    let spec = pod_with("1:50", "1:20", 0);
    let actions = node.step(2, Event::PodChanged { pod: "a".into(), spec: spec.clone() });
    assert_eq!(actions[0], Action::LimitsChanged { pod: "a".into(), limits: spec.limits() });
    assert_eq!(granted(&actions), ["b"]);
}

#[test]
fn memory_that_may_be_in_use_is_given_back_with_the_lease() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_with("1:20", "1:80", 0));
    node.start(1, "b", pod_with("1:50", "1:50", 0));
    let spec = pod_with("1:20", "1:50", 0);
    assert_eq!(node.step(2, Event::PodChanged { pod: "a".into(), spec: spec.clone() }), []);
    assert_eq!(granted(&node.release(3, "a")), ["b"]);
    node.want(4, "a");
    assert_eq!(node.pool.pod(&"a".into()).unwrap().lease.unwrap().limits, spec.limits());
}

#[test]
fn a_running_pod_gets_more_where_there_is_room_and_nobody_waits() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(50));
    node.start(0, "b", pod_of(20));
    let more = |limit| Event::PodChanged { pod: "a".into(), spec: pod_of(limit) };
    assert_eq!(node.step(1, more(81)), [], "only 30 are free");
    assert_eq!(node.step(2, more(80)).len(), 1);
    node.start(3, "c", pod_of(10));
    assert_eq!(node.step(4, Event::PodChanged { pod: "b".into(), spec: pod_of(10) }).len(), 1, "core only");
    node.release(5, "b");
    assert_eq!(node.card_of("c"), Some(0));
    node.want(6, "b");
    node.start(7, "d", pod_of(50));
    assert_eq!(node.step(8, more(85)), [], "d waits");
}

#[test]
fn larger_requests_must_find_room_and_smaller_ones_always_do() {
    let mut node = Node::share_pool(1);
    node.add("a", pod_with("50", "50", 0));
    node.add("b", pod_with("50", "50", 0));
    let change = |request: &str| Event::PodChanged { pod: "a".into(), spec: pod_with(request, request, 0) };
    let refusal = node.refused(1, change("51"));
    assert!(refusal.to_string().contains("request of 51: 50 of 100"), "{refusal}");
    node.step(1, Event::CardLost { card: uuid(0) });
    node.step(2, change("40"));
    node.step(2, Event::CardBack { card: uuid(0) });
    node.step(3, change("50"));
}

#[test]
fn a_pool_pod_names_no_card() {
    let mut node = Node::share_pool(1);
    let mut spec = pod_of(10);
    spec.card = Some(uuid(0));
    let refusal = node.refused(0, Event::PodAdded { pod: "a".into(), spec });
    assert_eq!(refusal.reason(), "CardNotForPool");
}
