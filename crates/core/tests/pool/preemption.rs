//! Making room for a head that can't be placed.

use gpupool_core::pool::{Action, Event, Millis, PodState, STUCK_AFTER, TerminationReason, Timestamp};

use crate::harness::{GRACE, MAX_DURATION, Node, granted, killed, pod_of, pod_with, terminated, uuid};

/// One card, held by `old` since 0, wanted by `head` since 1.
fn contended() -> Node {
    let mut node = Node::share_pool(1);
    node.start(0, "old", pod_of(100));
    node.start(1, "head", pod_of(100));
    node
}

#[test]
fn nobody_is_told_before_its_time_is_up_and_the_deadline_says_when() {
    let mut node = contended();
    assert_eq!(node.pool.next_deadline(), Some(Timestamp(MAX_DURATION)));
    assert_eq!(node.tick(MAX_DURATION - 1), []);
    let actions = node.tick(MAX_DURATION);
    let lease = node.lease("old");
    let why = TerminationReason::Preempted { by: "head".into() };
    assert_eq!(
        actions,
        [
            Action::Preempted { victim: "old".into(), beneficiary: "head".into(), card: uuid(0) },
            Action::Terminate {
                pod: "old".into(),
                card: uuid(0),
                lease,
                why,
                kill_at: Timestamp(MAX_DURATION + GRACE)
            },
        ]
    );
}

#[test]
fn nobody_is_told_while_nobody_waits() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(100));
    assert_eq!(node.pool.next_deadline(), None);
    assert_eq!(node.tick(10 * MAX_DURATION), []);
    let actions = node.start(10 * MAX_DURATION, "b", pod_of(100));
    assert_eq!(terminated(&actions), ["a"], "its time has been up for long");
}

#[test]
fn a_share_stays_charged_until_the_release_is_confirmed() {
    let mut node = contended();
    node.tick(MAX_DURATION);
    assert_eq!(killed(&node.tick(MAX_DURATION + GRACE - 1)), [""; 0]);
    assert_eq!(killed(&node.tick(MAX_DURATION + GRACE)), ["old"]);
    assert_eq!(node.tick(MAX_DURATION + GRACE + 1), [], "killed once");
    assert_eq!(node.queue(), ["head"]);
    let actions = node.release(MAX_DURATION + GRACE + 2, "old");
    assert_eq!(granted(&actions), ["head"]);
    assert_eq!(node.pool.state(&"old".into()), Some(PodState::Hibernating));
}

#[test]
fn a_victim_that_goes_within_its_grace_is_not_killed() {
    let mut node = contended();
    node.tick(MAX_DURATION);
    let actions = node.release(MAX_DURATION + GRACE, "old");
    assert_eq!(killed(&actions), [""; 0]);
    assert_eq!(granted(&actions), ["head"]);
}

#[test]
fn a_victim_that_wants_a_card_again_waits_at_the_tail() {
    let mut node = contended();
    node.start(2, "behind", pod_of(100));
    node.tick(MAX_DURATION);
    assert_eq!(node.want(MAX_DURATION + 1, "old"), []);
    assert_eq!(node.queue(), ["head", "behind"], "it still holds its card");
    let actions = node.release(MAX_DURATION + 2, "old");
    assert!(
        matches!(&actions[0], Action::Hibernated { pod, why: Some(TerminationReason::Preempted { .. }), .. } if pod.as_str() == "old")
    );
    assert_eq!(node.queue(), ["behind", "old"]);
    let since = node.pool.queue().last().unwrap().since;
    assert_eq!(since, Timestamp(MAX_DURATION + 2));
}

#[test]
fn a_victim_whose_new_want_has_gone_hibernates() {
    let mut node = contended();
    node.tick(MAX_DURATION);
    node.want(MAX_DURATION + 1, "old");
    node.step(MAX_DURATION + 1, Event::WantGone { pod: "old".into() });
    node.release(MAX_DURATION + 2, "old");
    assert_eq!(node.pool.state(&"old".into()), Some(PodState::Hibernating));
}

#[test]
fn the_time_of_a_pod_that_has_ended_is_forgotten() {
    let mut node = Node::share_pool(1);
    node.start(0, "old", pod_of(100));
    node.release(10, "old");
    node.want(20, "old");
    node.start(30, "head", pod_of(100));
    assert_eq!(node.pool.next_deadline(), Some(Timestamp(20 + MAX_DURATION)));
    assert_eq!(node.tick(MAX_DURATION), []);
}

#[test]
fn the_smallest_set_is_told() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(50));
    node.start(1, "b", pod_of(50));
    node.start(2, "c", pod_of(100));
    node.start(3, "head", pod_of(100));
    assert_eq!(terminated(&node.tick(2 * MAX_DURATION)), ["c"], "one pod, though two have held longer");
}

#[test]
fn all_of_a_set_are_told_at_once_and_the_head_waits_for_the_last() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(40));
    node.start(1, "b", pod_of(60));
    node.start(2, "head", pod_of(70));
    assert_eq!(terminated(&node.tick(MAX_DURATION)), [""; 0], "a alone would not do, and b has time left");
    let actions = node.tick(MAX_DURATION + 1);
    assert_eq!(terminated(&actions), ["a", "b"]);
    let pairs = actions.iter().filter(|action| matches!(action, Action::Preempted { .. })).count();
    assert_eq!(pairs, 2);
    assert_eq!(granted(&node.release(MAX_DURATION + 2, "b")), [""; 0]);
    assert_eq!(granted(&node.release(MAX_DURATION + 3, "a")), ["head"]);
}

#[test]
fn of_equal_sets_idle_pods_go_first_then_the_longest_held() {
    let mut node = Node::share_pool(2);
    node.start(0, "longest", pod_of(100));
    node.start(1, "idle", pod_of(100));
    node.start(2, "head", pod_of(100));
    node.idle(3, "idle");
    let mut busy = Node { pool: node.pool.clone() };
    assert_eq!(terminated(&node.tick(2 * MAX_DURATION)), ["idle"]);
    busy.step(4, Event::Idle { pod: "idle".into(), idle: false });
    assert_eq!(terminated(&busy.tick(2 * MAX_DURATION)), ["longest"]);
}

#[test]
fn a_busy_pod_is_told_rather_than_two_idle_ones() {
    let mut node = Node::share_pool(1);
    node.start(0, "small", pod_of(25));
    node.start(1, "small too", pod_of(25));
    node.start(2, "busy", pod_of(50));
    node.idle(3, "small");
    node.idle(3, "small too");
    node.start(4, "head", pod_of(50));
    assert_eq!(terminated(&node.tick(2 * MAX_DURATION)), ["busy"]);
}

#[test]
fn what_each_dimension_lacks_decides_who_is_enough() {
    let mut node = Node::share_pool(1);
    node.start(0, "core", pod_with("1:60", "1:10", 0));
    node.start(1, "memory", pod_with("1:10", "1:60", 0));
    node.start(2, "head", pod_with("1:20", "1:80", 0));
    assert_eq!(terminated(&node.tick(2 * MAX_DURATION)), ["memory"]);
}

#[test]
fn nobody_else_is_told_while_enough_room_is_coming() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.start(1, "b", pod_of(100));
    node.start(2, "head", pod_of(100));
    assert_eq!(terminated(&node.tick(2 * MAX_DURATION)), ["a"]);
    assert_eq!(node.tick(2 * MAX_DURATION + 1), []);
    node.start(2 * MAX_DURATION + 2, "behind", pod_of(100));
    assert_eq!(terminated(&node.tick(2 * MAX_DURATION + 3)), [""; 0], "one head at a time");
    let actions = node.release(2 * MAX_DURATION + 4, "a");
    assert_eq!((granted(&actions), terminated(&actions)), (vec!["head".into()], vec!["b".into()]));
}

#[test]
fn when_the_head_goes_away_the_victim_goes_on_and_its_room_is_for_the_next() {
    let mut node = contended();
    node.start(2, "next", pod_of(100));
    node.tick(MAX_DURATION);
    let actions = node.step(MAX_DURATION + 1, Event::WantGone { pod: "head".into() });
    assert_eq!(actions, []);
    assert_eq!(killed(&node.tick(MAX_DURATION + GRACE)), ["old"]);
    assert_eq!(granted(&node.release(MAX_DURATION + GRACE, "old")), ["next"]);
}

#[test]
fn when_the_head_goes_away_room_that_waited_for_the_rest_is_free_for_all() {
    let mut node = Node::share_pool(1);
    node.start(0, "a", pod_of(50));
    node.start(0, "b", pod_of(50));
    node.start(1, "head", pod_of(100));
    node.start(2, "small", pod_of(50));
    node.tick(MAX_DURATION);
    assert_eq!(granted(&node.release(MAX_DURATION + 1, "a")), [""; 0], "kept for the head");
    let actions = node.remove(MAX_DURATION + 2, "head");
    assert_eq!(granted(&actions), ["small"]);
}

#[test]
fn a_head_that_is_placed_elsewhere_leaves_the_room_to_the_next() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.start(1, "b", pod_of(100));
    node.start(2, "head", pod_of(100));
    node.start(3, "next", pod_of(100));
    assert_eq!(terminated(&node.tick(MAX_DURATION)), ["a"]);
    assert_eq!(granted(&node.release(MAX_DURATION, "b")), ["head"]);
    assert_eq!(granted(&node.release(MAX_DURATION + 1, "a")), ["next"]);
}

#[test]
fn a_pod_of_higher_priority_takes_over_the_place_and_the_room_of_the_head() {
    let mut node = contended();
    node.tick(MAX_DURATION);
    let actions = node.start(MAX_DURATION + 1, "high", pod_with("1:100", "1:100", 1));
    assert_eq!(actions, [], "room is coming already");
    assert_eq!(granted(&node.release(MAX_DURATION + 2, "old")), ["high"]);
}

#[test]
fn priority_does_not_protect_a_running_pod() {
    let mut node = Node::share_pool(1);
    node.start(0, "high", pod_with("1:100", "1:100", 9));
    node.start(1, "low", pod_of(100));
    assert_eq!(terminated(&node.tick(MAX_DURATION)), ["high"]);
}

#[test]
fn with_preemption_off_nobody_is_told() {
    let mut node = contended();
    node.set_qos(2, |qos| qos.preempt_enabled = false);
    assert_eq!(node.pool.next_deadline(), None);
    assert_eq!(node.tick(10 * MAX_DURATION), []);
    let actions = node.set_qos(10 * MAX_DURATION, |qos| qos.preempt_enabled = true);
    assert_eq!(terminated(&actions), ["old"]);
}

#[test]
fn switched_off_in_between_who_was_told_still_goes_and_nobody_else_is_told() {
    let mut node = Node::share_pool(2);
    node.start(0, "a", pod_of(100));
    node.start(1, "b", pod_of(100));
    node.start(2, "head", pod_of(100));
    node.start(3, "next", pod_of(100));
    assert_eq!(terminated(&node.tick(MAX_DURATION)), ["a"]);
    node.set_qos(MAX_DURATION + 1, |qos| qos.preempt_enabled = false);
    assert_eq!(killed(&node.tick(MAX_DURATION + GRACE)), ["a"]);
    let actions = node.release(MAX_DURATION + GRACE, "a");
    assert_eq!((granted(&actions), terminated(&actions)), (vec!["head".into()], vec![]));
    assert_eq!(node.tick(10 * MAX_DURATION), []);
}

#[test]
fn a_shorter_duration_counts_at_once_and_a_new_grace_for_those_told_later() {
    let mut node = contended();
    node.set_qos(2, |qos| qos.grace = Millis(5));
    let actions = node.set_qos(100, |qos| qos.pod_max_duration = Millis(100));
    assert_eq!(terminated(&actions), ["old"]);
    node.set_qos(101, |qos| qos.grace = Millis(GRACE));
    assert_eq!(killed(&node.tick(105)), ["old"]);
}

#[test]
fn without_a_grace_the_kill_follows_at_once() {
    let mut node = contended();
    node.set_qos(2, |qos| qos.grace = Millis(0));
    let actions = node.tick(MAX_DURATION);
    assert_eq!((terminated(&actions), killed(&actions)), (vec!["old".into()], vec!["old".into()]));
    assert_eq!(node.tick(MAX_DURATION), []);
}

#[test]
fn a_process_that_survives_its_kill_holds_up_the_head_no_longer_than_needed() {
    let mut node = Node::share_pool(2);
    node.start(0, "immortal", pod_of(100));
    node.start(1, "other", pod_of(100));
    node.start(2, "head", pod_of(100));
    assert_eq!(terminated(&node.tick(MAX_DURATION)), ["immortal"]);
    node.tick(MAX_DURATION + GRACE);
    let given_up = Timestamp(MAX_DURATION + GRACE) + STUCK_AFTER;
    assert_eq!(node.pool.next_deadline(), Some(given_up));
    assert_eq!(node.tick(given_up.0 - 1), []);
    assert_eq!(terminated(&node.tick(given_up.0)), ["other"]);
    assert_eq!(node.card_of("immortal"), Some(0), "still charged");
    node.release(given_up.0 + 1, "other");
    node.start(given_up.0 + 2, "next", pod_of(100));
    assert_eq!(granted(&node.release(given_up.0 + 3, "immortal")), ["next"]);
}

#[test]
fn an_idle_pod_is_let_go_for_a_head_with_pre_emption_off_if_the_setting_says_so() {
    let mut node = Node::share_pool(1);
    node.set_qos(0, |qos| {
        qos.preempt_enabled = false;
        qos.idle_release = Some(Millis(1000));
    });
    node.start(0, "idle", pod_of(100));
    node.idle(10, "idle");
    assert_eq!(node.pool.next_deadline(), None);
    assert_eq!(node.tick(1009), [], "nobody waits");
    node.start(1009, "head", pod_of(100));
    assert_eq!(node.pool.next_deadline(), Some(Timestamp(1010)));
    let actions = node.tick(1010);
    let why = TerminationReason::IdleRelease { by: "head".into() };
    assert!(matches!(&actions[..], [Action::Terminate { why: told, .. }] if *told == why), "{actions:?}");
}

#[test]
fn a_pod_that_works_again_is_not_idle() {
    let mut node = Node::share_pool(1);
    node.set_qos(0, |qos| qos.idle_release = Some(Millis(1000)));
    node.start(0, "a", pod_of(100));
    node.start(0, "head", pod_of(100));
    node.idle(10, "a");
    node.step(900, Event::Idle { pod: "a".into(), idle: false });
    node.idle(950, "a");
    node.idle(960, "a");
    assert_eq!(node.tick(1949), []);
    assert_eq!(terminated(&node.tick(1950)), ["a"]);
}
