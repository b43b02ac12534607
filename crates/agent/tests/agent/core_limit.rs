//! The rate at which a pod's launches may go: what its page says, and what NVML makes of it.

use std::time::{Duration, Instant};

use gpupool_core::pool::PodState;
use gpupool_wire::bucket::Rate;
use simgpu_device::{Machine, MachineSettings, now_ns};

use crate::node::{Node, PATIENCE};
use crate::program::Program;

/// A program that holds a card, with this share.
fn holder(node: &Node, share: &str) -> Program {
    node.register("a", share);
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    program.granted();
    assert_eq!(node.status().pods[0].state, PodState::Running);
    program
}

#[test]
fn a_granted_program_reads_the_rate_of_its_share() {
    let node = Node::start(&[]);
    let rate = holder(&node, "1:50").limits().core_rate;
    assert_eq!((rate.per_second, rate.burst), (500_000_000, 100_000_000));
}

#[test]
fn a_whole_card_has_no_rate_nor_has_a_pod_alone_on_a_work_conserving_node() {
    assert_eq!(holder(&Node::start(&[]), "1:100").limits().core_rate, Rate::UNLIMITED);
    let node = Node::start(&["--work-conserving"]);
    assert_eq!(holder(&node, "1:50").limits().core_rate, Rate::UNLIMITED);
}

#[test]
fn a_pod_that_nvml_sees_use_more_than_its_share_is_slowed_down_whatever_it_charges() {
    let node = Node::start(&[]);
    let program = holder(&node, "1:5");
    let machine = Machine::open(&MachineSettings::new(node.cards_state(), "2").unwrap()).unwrap();
    let card = usize::try_from(program.limits().card).unwrap();
    let process = machine.join().unwrap();
    process.open_context(card).unwrap();
    let start = Instant::now();
    let mut booked = now_ns();
    while program.limits().core_rate.per_second > 25_000_000 {
        assert!(start.elapsed() < PATIENCE, "the rate is still {:?}", program.limits().core_rate);
        if booked < now_ns() + 100_000_000 {
            booked = process.book(card, booked, 100_000_000).unwrap().end;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
