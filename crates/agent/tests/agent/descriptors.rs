//! Strangers pass descriptors, whose closing can take as long as they like: the agent takes none, and nobody waits for
//! one of them to be closed. On a kernel that can refuse them for the agent, and as on an older one.

use std::os::fd::AsFd as _;
use std::time::Duration;

use gpupool_wire::NO_CARD;
use gpupool_wire::message::{Acquire, Hello};
use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use crate::node::Node;
use crate::passed::{self, KINDS, MOST, Passed, Peers, kernel_can_refuse, lingering_long, pass};
use crate::program::{Answer, Program};

/// Lets descriptors arrive as on an older kernel.
const ARRIVE: &[&str] = &["--descriptors-arrive"];

#[test]
fn the_kernel_refuses_descriptors_for_the_agent_before_it_has_even_accepted() {
    if !kernel_can_refuse() {
        println!("not tried: this kernel cannot refuse descriptors");
        return;
    }
    let node = Node::start(&[]);
    node.register("a", "50");
    drop(Program::welcomed(&node.socket()));
    let passed = passed::lingering_long();
    node.freeze();
    let mut program = Program::connect(&node.socket());
    let hello = Hello::fresh(NO_CARD);
    let refused = Err(Errno::PERM);
    assert_eq!(passed::send(program.socket(), hello.as_bytes(), &[passed.descriptor.as_fd()]), refused);
    node.thaw();
    program.send(hello.as_bytes(), None);
    assert!(matches!(program.next(), Answer::Welcome { .. }), "the connection goes on");
    assert_eq!(passed::send(program.socket(), hello.as_bytes(), &[passed.descriptor.as_fd()]), refused);
    program.acquire();
    program.granted();
}

#[test]
fn a_packet_with_a_descriptor_ends_its_connection_and_no_other() {
    let node = Node::start(ARRIVE);
    node.register("a", "50");
    let mut other = Program::welcomed(&node.socket());
    for (kind, make) in KINDS {
        let mut program = Program::connect(&node.socket());
        node.freeze();
        let _peers = pass(&program, Hello::fresh(NO_CARD).as_bytes(), make, 1, 1);
        node.thaw();
        assert_eq!(program.next(), Answer::HungUp, "{kind}");
    }
    other.acquire();
    other.granted();
}

#[test]
fn what_strangers_pass_is_closed_and_holds_up_nobody() {
    for options in [&[][..], ARRIVE] {
        let node = Node::start(options);
        node.register("a", "50");
        node.status();
        let before = node.descriptors();
        let control = node.slowest_answer(50);
        let mut peers = Peers::new();
        for (kind, make) in KINDS {
            println!("{options:?}, {kind}");
            for attack in [beside_hello, unread, over_the_limit] {
                peers.extend(attack(&node, make));
            }
            let slowest = node.slowest_answer(50);
            let limit = Duration::from_millis(100) + 10 * control;
            assert!(slowest < limit, "{slowest:?} with {options:?} and a {kind}; {control:?} before");
        }
        node.wait_for("everything to be closed", || node.descriptors() <= before);
        assert!(matches!(Program::connect(&node.socket()).hello(), Answer::Welcome { .. }));
    }
}

/// One beside a hello, and as many as fit.
fn beside_hello(node: &Node, make: fn() -> Passed) -> Peers {
    node.freeze();
    let programs = [1, MOST].map(|copies| (Program::connect(&node.socket()), copies));
    let hello = Hello::fresh(NO_CARD);
    let pass = |(program, copies): &(Program, usize)| pass(program, hello.as_bytes(), make, *copies, 1);
    let peers = programs.iter().flat_map(pass).collect();
    node.thaw();
    peers
}

/// Packets that still lie unread when the agent hangs up, because of what came before them.
fn unread(node: &Node, make: fn() -> Passed) -> Peers {
    let mut program = Program::connect(&node.socket());
    node.freeze();
    program.send(b"rubbish", None);
    let peers = pass(&program, Acquire::new(NO_CARD).as_bytes(), make, MOST, 4);
    node.thaw();
    assert_eq!(program.next(), Answer::HungUp);
    peers
}

/// Connections that are not taken in any more, with packets that came before the agent had accepted them.
fn over_the_limit(node: &Node, make: fn() -> Passed) -> Peers {
    node.freeze();
    let mut programs: Vec<Program> = (0..64).map(|_| Program::connect(&node.socket())).collect();
    let hello = Hello::fresh(NO_CARD);
    let peers = programs.iter().flat_map(|program| pass(program, hello.as_bytes(), make, 2, 2)).collect();
    node.thaw();
    for program in &mut programs[8..] {
        assert_eq!(program.next(), Answer::HungUp);
    }
    peers
}

#[test]
fn an_agent_ends_at_once_whatever_lies_in_its_sockets() {
    for options in [&[][..], ARRIVE] {
        let mut node = Node::start(options);
        let programs: Vec<Program> = (0..4).map(|_| Program::connect(&node.socket())).collect();
        node.status();
        node.freeze();
        let unaccepted = Program::connect(&node.socket());
        let all = programs.iter().chain([&unaccepted]);
        let _peers: Peers =
            all.flat_map(|program| pass(program, b"anything", lingering_long, 1, 2)).collect();
        node.terminate();
        node.thaw();
        node.wait_for_end();
    }
}
