//! Cards are granted by what NVML shows, whatever programs say, write or leave out.

use gpupool_core::pool::PodState;
use rustix::process::Signal;

use super::machine::Sent;
use super::node::Node;
use super::{heard, program, three_pods};
use crate::procfs::ProcessKey;

const GIBIBYTE: u64 = 1 << 30;

/// Two pods that hold the two cards with memory on them, and a third that waits.
fn busy() -> (Node, [ProcessKey; 3]) {
    let (mut node, programs) = three_pods();
    node.take(programs[0], 0, 10 * GIBIBYTE);
    node.take(programs[1], 1, GIBIBYTE);
    node.look();
    (node, programs)
}

fn held_back(node: &Node) -> Vec<String> {
    let cards = node.task.status().cards;
    cards.iter().flat_map(|card| &card.held_back).map(ToString::to_string).collect()
}

#[test]
fn a_release_counts_when_a_look_after_it_shows_nothing_and_not_before() {
    let (mut node, [first, _, waiting]) = busy();
    node.release(first);
    assert_eq!(heard(&node, waiting), None, "the last look shows it");
    node.look_if_asked();
    assert_eq!(heard(&node, waiting), None, "it is still there");
    let said = format!(
        "process {} of a takes 10240 MiB of it, and the pod has said that it needs it no more",
        first.pid
    );
    assert_eq!(held_back(&node), [said]);
    node.take(first, 0, 0);
    node.wait(1000);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted), "a look that nobody asked for shows it too");
    assert!(held_back(&node).is_empty());
}

#[test]
fn an_honest_release_is_seen_by_the_look_that_it_asks_for() {
    let (mut node, [first, _, waiting]) = busy();
    node.take(first, 0, 0);
    node.release(first);
    assert_eq!(heard(&node, waiting), None, "the last look was before it");
    node.look_if_asked();
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn a_look_that_began_before_the_release_does_not_count() {
    let (mut node, [first, _, waiting]) = busy();
    node.take(first, 0, 0);
    let (before, _) = node.machine.look(None);
    node.take(first, 0, GIBIBYTE);
    node.release(first);
    node.show(before);
    assert_eq!(heard(&node, waiting), None);
    node.look_if_asked();
    assert_eq!(heard(&node, waiting), None, "and the next one shows it");
}

#[test]
fn who_asks_again_meanwhile_has_the_lease_that_it_had() {
    let (mut node, [first, _, waiting]) = busy();
    let lease = node.machine.state().processes[&first].lease;
    node.release(first);
    node.acquire(first);
    assert_eq!(heard(&node, first), Some(Sent::Granted));
    assert_eq!(node.machine.state().processes[&first].lease, lease);
    node.take(first, 0, 0);
    node.look();
    assert_eq!(heard(&node, waiting), None, "it says that it uses the card");
}

#[test]
fn the_end_of_a_process_needs_no_look() {
    let (mut node, [first, _, waiting]) = busy();
    node.end(first);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn who_gives_its_card_back_and_ends_before_anybody_has_looked_keeps_nobody_waiting() {
    let (mut node, [first, _, waiting]) = busy();
    node.release(first);
    node.end(first);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn the_end_of_one_process_makes_no_other_ones_word_true() {
    let (mut node, [first, _, waiting]) = busy();
    let run = node.machine.state().processes[&first].parent;
    let second = node.spawn(ProcessKey { pid: run, start: run.into() });
    node.hello(second);
    node.acquire(second);
    // It has taken memory since the last look.
    node.take(second, 0, GIBIBYTE);
    node.release(second);
    node.end(first);
    assert_eq!(heard(&node, waiting), None);
    node.look_if_asked();
    assert_eq!(heard(&node, waiting), None, "it is still there");
    node.end(second);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn a_lease_goes_on_while_another_process_of_the_pod_is_on_the_card_and_is_told_to_go_for_it() {
    let (mut node, [first, _, waiting]) = busy();
    let run = node.machine.state().processes[&first].parent;
    let hidden = node.spawn(ProcessKey { pid: run, start: run.into() });
    node.take(hidden, 0, GIBIBYTE);
    node.look();
    node.end(first);
    assert_eq!(heard(&node, waiting), None, "a process that never said hello is there");
    // Its time on the card is up, and somebody waits.
    for _ in 0..70 {
        node.wait(1000);
    }
    let signals = node.machine.state().processes[&hidden].signals.clone();
    assert_eq!((signals[0], signals.last()), (Signal::TERM, Some(&Signal::KILL)));
    assert_eq!(node.task.pool.state(&"a".into()), Some(PodState::Running));
    node.end(hidden);
    node.look();
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn nobody_is_granted_a_card_beside_a_stranger_and_the_next_is_when_it_has_gone() {
    let mut node = Node::new();
    let stranger = node.spawn(ProcessKey { pid: 1, start: 1 });
    for card in [0, 1] {
        node.take(stranger, card, GIBIBYTE);
    }
    node.look();
    let (_, first) = program(&mut node, "a");
    node.acquire(first);
    assert_eq!(heard(&node, first), None);
    let said = format!("process {} of no pod takes 1024 MiB of it", stranger.pid);
    assert_eq!(held_back(&node), [said.clone(), said]);
    node.end(stranger);
    node.look();
    assert_eq!(heard(&node, first), Some(Sent::Granted));
}

#[test]
fn a_restarted_agent_grants_nothing_before_it_has_looked() {
    let (mut node, [first, _, waiting]) = busy();
    node.machine.end(first);
    node.restart();
    node.hello(waiting);
    node.acquire(waiting);
    assert_eq!([heard(&node, waiting), heard(&node, waiting)], [Some(Sent::Welcome), None]);
    assert!(held_back(&node).contains(&"NVML has not said who uses it".to_owned()));
    node.look();
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn a_restart_does_not_make_a_lie_true() {
    let (mut node, [first, _, waiting]) = busy();
    node.release(first);
    node.restart();
    node.hello(waiting);
    node.acquire(waiting);
    node.look();
    assert_eq!([heard(&node, waiting), heard(&node, waiting)], [Some(Sent::Welcome), None]);
    node.end(first);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn cards_of_which_nvml_says_nothing_any_more_are_not_granted() {
    let (mut node, [first, _, waiting]) = busy();
    node.machine.state().now += 10_001;
    node.end(first);
    assert_eq!(heard(&node, waiting), None);
    node.look();
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}
