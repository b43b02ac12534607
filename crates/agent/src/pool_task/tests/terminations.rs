//! Whoever's processes are signalled has been told why, on every path.

use gpupool_core::pool::PodId;
use rustix::process::Signal;

use super::cluster::{OTHER, TRAIN, pod};
use super::node::Node;
use super::program;
use crate::notice::Notice;
use crate::pod::PodNews;
use crate::procfs::ProcessKey;

const THIRD: &str = "33333333-3333-4333-b333-333333333333";
const GIBIBYTE: u64 = 1 << 30;

impl Node {
    /// The signals that a process has got.
    fn signals(&self, process: ProcessKey) -> Vec<Signal> {
        self.machine.state().processes[&process].signals.clone()
    }

    /// Who was told what of terminations, and whether of the killing, since this was last asked.
    fn endings(&mut self) -> Vec<(String, &'static str, bool)> {
        let told = self.told().into_iter().filter_map(|notice| match notice {
            Notice::Ended { pod, termination, .. } => {
                Some((pod.name, termination.cause.reason(), termination.outlived.is_some()))
            }
            _ => None,
        });
        told.collect()
    }

    fn wait_seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.wait(1000);
        }
    }

    /// NVML says for a second that the first card is lost.
    fn lose_the_first_card(&mut self) {
        let (observation, _) = self.machine.look(Some(0));
        self.show(observation);
    }
}

/// Two pods of a cluster that hold the two cards.
fn two_holders() -> (Node, [ProcessKey; 2]) {
    let mut node = Node::in_cluster();
    node.hears(PodNews::Listed(vec![pod(TRAIN, "train", 100), pod(OTHER, "other", 100)]));
    let holders = [TRAIN, OTHER].map(|id| node.holder(id));
    node.take(holders[0], 0, GIBIBYTE);
    node.take(holders[1], 1, GIBIBYTE);
    node.look();
    assert_eq!(node.endings(), []);
    (node, holders)
}

/// A third, which waits.
fn a_third_waits(node: &mut Node) {
    node.hears(PodNews::Present(pod(THIRD, "third", 100)));
    let waiting = node.program_of(THIRD);
    node.hello(waiting);
    node.acquire(waiting);
}

fn said(pod: &str, reason: &'static str, killed: bool) -> (String, &'static str, bool) {
    (pod.to_owned(), reason, killed)
}

#[test]
fn a_lost_card_is_told_to_those_on_it_and_so_is_the_killing_once_each() {
    let (mut node, [train, other]) = two_holders();
    node.lose_the_first_card();
    assert_eq!(node.endings(), [said("train", "GPUShareCardLost", false)]);
    assert_eq!(node.signals(train), [Signal::TERM]);
    for _ in 0..5 {
        node.machine.state().now += 1000;
        node.lose_the_first_card();
        node.task.tick(true);
    }
    assert_eq!(node.signals(train).last(), Some(&Signal::KILL));
    assert_eq!(node.endings(), [said("train", "GPUShareCardLost", true)]);
    assert_eq!(node.signals(other), []);
}

#[test]
fn an_idle_pod_that_makes_room_is_told_and_so_is_for_whom() {
    let (mut node, [train, other]) = two_holders();
    a_third_waits(&mut node);
    node.wait_seconds(36);
    let [victim, spared] = if node.signals(train).is_empty() { [other, train] } else { [train, other] };
    let name = if victim == train { "train" } else { "other" };
    assert_eq!((node.signals(victim)[0], node.signals(spared)), (Signal::TERM, vec![]));
    let told = node.told();
    let beneficiaries: Vec<_> = told
        .iter()
        .filter_map(|notice| match notice {
            Notice::Ended { pod, termination, beneficiary, .. } => {
                assert_eq!((pod.name.as_str(), termination.cause.reason()), (name, "GPUShareIdleReleased"));
                beneficiary.as_ref().map(|beneficiary| beneficiary.name.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(beneficiaries[0], "third");
}

#[test]
fn a_pod_that_is_gone_while_its_program_lives_is_told_why_that_is_ended() {
    let (mut node, [train, _]) = two_holders();
    node.hears(PodNews::Gone { id: TRAIN.into(), uid: TRAIN.to_owned() });
    assert_eq!(node.signals(train), [Signal::TERM]);
    assert_eq!(node.endings(), [said("train", "GPUShareStopped", false)]);
    node.wait_seconds(3);
    assert_eq!(node.endings(), [said("train", "GPUShareStopped", true)]);
}

#[test]
fn a_pod_without_processes_is_told_nothing_when_it_goes() {
    let (mut node, [train, _]) = two_holders();
    node.end(train);
    node.look();
    node.hears(PodNews::Gone { id: TRAIN.into(), uid: TRAIN.to_owned() });
    assert_eq!(node.endings(), []);
    assert!(node.task.terminations.is_empty());
}

#[test]
fn a_pre_empted_pod_that_does_not_go_is_told_of_the_killing_too() {
    let (mut node, [train, other]) = two_holders();
    a_third_waits(&mut node);
    // Busy ones are not idle, and their time is up after a minute.
    for _ in 0..64 {
        for id in [TRAIN, OTHER] {
            let id = PodId::from(id);
            let now = node.task.now();
            node.task.pages.get_mut(&id).unwrap().submitted = now;
        }
        node.wait(1000);
    }
    let victim = if node.signals(train).is_empty() { other } else { train };
    assert_eq!(node.signals(victim)[..2], [Signal::TERM, Signal::KILL]);
    let told = node.told();
    assert!(told.iter().any(|notice| matches!(notice, Notice::Preempted { .. })), "{told:?}");
    let killed: Vec<_> = told
        .iter()
        .filter_map(|notice| match notice {
            Notice::Ended { termination, .. } => {
                Some((termination.cause.reason(), termination.outlived.is_some()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(killed, [("GPUSharePreempted", true)], "and nothing else beside the published words");
}

#[test]
fn who_takes_more_than_its_limit_is_told_before_its_programs_are_ended_and_when_they_are_killed() {
    let mut node = Node::in_cluster();
    node.evicts = true;
    node.restart();
    node.look();
    node.hears(PodNews::Listed(vec![pod(TRAIN, "train", 20)]));
    let train = node.holder(TRAIN);
    node.take(train, 0, 15 * GIBIBYTE);
    node.wait_seconds(20);
    assert_eq!((node.signals(train)[0], node.signals(train).last()), (Signal::TERM, Some(&Signal::KILL)));
    let told = [said("train", "GPUShareEvicted", false), said("train", "GPUShareEvicted", true)];
    assert_eq!(node.endings(), told);
    // It is over with its last process.
    node.end(train);
    node.wait_seconds(2);
    assert_eq!(node.endings(), []);
}

#[test]
fn an_agent_that_was_killed_before_it_could_tell_tells_when_it_starts_again() {
    let (mut node, [train, _]) = two_holders();
    node.lose_the_first_card();
    node.restart();
    assert_eq!(node.endings(), [said("train", "GPUShareCardLost", false)]);
    node.machine.state().now += 3000;
    node.task.tick(true);
    assert_eq!(node.signals(train).last(), Some(&Signal::KILL));
    node.restart();
    let both = [said("train", "GPUShareCardLost", false), said("train", "GPUShareCardLost", true)];
    assert_eq!(node.endings(), both);
}

#[test]
fn on_a_machine_of_its_own_the_status_says_why_a_pods_programs_were_ended() {
    let mut node = Node::new();
    let (_, first) = program(&mut node, "a");
    node.acquire(first);
    node.take(first, 0, GIBIBYTE);
    node.look();
    node.lose_the_first_card();
    let pods = node.task.status().pods;
    let termination = pods[0].termination.as_ref().expect("it was told to go");
    assert_eq!((termination.reason.as_str(), termination.killed), ("GPUShareCardLost", false));
    assert_eq!(termination.why, "its card is lost");
    node.end(first);
    assert!(node.task.status().pods[0].termination.is_some(), "it is still there for its run to read");
}
