//! The whole task in memory: no kernel's clock, journal, process or socket, and everything under one seed.

mod cluster;
mod machine;
mod node;
mod occupied;
mod terminations;
mod world;

use std::os::fd::AsFd as _;

use gpupool_wire::message::RefusalReason;
use machine::Sent;
use node::{Node, standing};

use crate::admin_api::Reply;
use crate::environment::PeerSocket as _;
use crate::log;
use crate::procfs::ProcessKey;
use crate::shared_memory::{self, Inode};

/// A pod with one program that has said hello.
fn program(node: &mut Node, name: &str) -> (ProcessKey, ProcessKey) {
    let (run, reply) = node.register(name, 10);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    let program = node.spawn(run);
    assert_eq!(node.hello(program).socket.receive(), Some(Sent::Welcome));
    (run, program)
}

fn heard(node: &Node, program: ProcessKey) -> Option<Sent> {
    node.lines[&program].socket.receive()
}

/// Two pods that hold the two cards, and a third that waits.
fn three_pods() -> (Node, [ProcessKey; 3]) {
    let mut node = Node::new();
    let programs = ["a", "b", "c"].map(|name| program(&mut node, name).1);
    for program in programs {
        node.acquire(program);
    }
    assert_eq!(
        programs.map(|program| heard(&node, program)),
        [Some(Sent::Granted), Some(Sent::Granted), None]
    );
    (node, programs)
}

#[test]
fn the_next_in_line_is_granted_when_a_holder_ends() {
    let (mut node, [first, _, waiting]) = three_pods();
    node.end(first);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
    assert!(node.task.registry.process(first).is_none());
}

#[test]
fn a_restarted_agent_has_the_same_leases_and_queue_and_goes_on() {
    let (mut node, [first, second, waiting]) = three_pods();
    let before = node.standing();
    node.restart();
    assert_eq!(node.standing(), before);
    for program in [first, second, waiting] {
        assert_eq!(node.hello(program).socket.receive(), Some(Sent::Welcome));
    }
    node.acquire(waiting);
    node.look();
    assert_eq!(heard(&node, waiting), None);
    node.end(second);
    assert_eq!(heard(&node, waiting), Some(Sent::Granted));
}

#[test]
fn who_ended_while_no_agent_ran_has_left_its_card_to_the_next() {
    let (mut node, [first, _, waiting]) = three_pods();
    node.machine.end(first);
    node.restart();
    node.hello(waiting);
    node.acquire(waiting);
    node.look();
    assert_eq!([heard(&node, waiting), heard(&node, waiting)], [Some(Sent::Welcome), Some(Sent::Granted)]);
}

fn made_ledger(node: &Node, pod: &str) -> Option<Inode> {
    node.task.registry.pod(&pod.into()).expect("a pod").ledger
}

#[test]
fn after_a_restart_all_of_a_pod_count_in_the_ledger_that_one_of_them_has_mapped() {
    let (mut node, [first, ..]) = three_pods();
    let made = made_ledger(&node, "a");
    node.restart();
    let run = node.task.registry.pod(&"a".into()).unwrap().run.unwrap();
    let second = node.spawn(run);
    assert_eq!(node.hello(second).socket.receive(), Some(Sent::Welcome));
    let state = node.machine.state();
    let of = |key| shared_memory::inode(state.ledger_of(key).unwrap().as_fd()).unwrap();
    assert_eq!((Some(of(first)), Some(of(second))), (made, made));
}

#[test]
fn no_second_ledger_is_made_while_somebody_who_counts_in_a_lost_one_lives() {
    let (mut node, [first, ..]) = three_pods();
    let made = made_ledger(&node, "a");
    let run = node.task.registry.pod(&"a".into()).unwrap().run.unwrap();
    node.machine.hide_ledger(first);
    node.restart();
    let refused = Some(Sent::Refused(RefusalReason::Other));
    let second = node.spawn(run);
    assert_eq!(node.hello(second).socket.receive(), refused);
    assert_eq!(node.hello(first).socket.receive(), Some(Sent::Welcome), "it keeps what it has");
    // It says that it needs no card any more, and NVML knows better.
    node.release(first);
    node.take(first, 0, 1 << 30);
    node.look();
    let third = node.spawn(run);
    assert_eq!(node.hello(third).socket.receive(), refused);
    // So does one that says that it has become another program.
    node.hang_up(first);
    assert_eq!(node.hello(first).socket.receive(), refused);
    assert_eq!(made_ledger(&node, "a"), made);
    node.end(first);
    let fourth = node.spawn(run);
    assert_eq!(node.hello(fourth).socket.receive(), Some(Sent::Welcome));
    assert_ne!(made_ledger(&node, "a"), made);
}

#[test]
fn who_has_a_lost_ledger_and_holds_nothing_counts_in_the_new_one_before_it_holds_anything_again() {
    let (mut node, [first, ..]) = three_pods();
    let run = node.task.registry.pod(&"a".into()).unwrap().run.unwrap();
    let zeroth = node.spawn(run);
    node.hello(zeroth);
    for process in [zeroth, first] {
        node.machine.hide_ledger(process);
    }
    node.restart();
    assert_eq!(node.hello(zeroth).socket.receive(), Some(Sent::Refused(RefusalReason::Other)));
    assert_eq!(node.hello(first).socket.receive(), Some(Sent::Welcome));
    node.release(first);
    node.look();
    let second = node.spawn(run);
    assert_eq!(node.hello(second).socket.receive(), Some(Sent::Welcome));
    assert!(!node.lines[&first].socket.is_alive(), "it must come again");
    node.close_what_was_cut();
    assert_eq!(node.hello(first).socket.receive(), Some(Sent::Welcome));
    let state = node.machine.state();
    let of = |key| shared_memory::inode(state.ledger_of(key).unwrap().as_fd()).unwrap();
    assert_eq!(of(first), of(second));
    drop(state);
    let ledger = node.task.pages.ledger(&"a".into()).unwrap();
    for process in [zeroth, first, second] {
        let slot = node.task.registry.process(process).unwrap().slot;
        ledger.with(|ledger| ledger.charge_anyway(slot, 4096));
    }
    assert_eq!(ledger.with(|ledger| ledger.charged()), Some(3 * 4096), "sums include every slot");
}

#[test]
fn a_journal_that_cannot_be_written_is_said_and_counted_and_whole_again_with_the_next_write() {
    let mut node = Node::new();
    let (_, first) = program(&mut node, "a");
    log::take();
    node.machine.state().journal_fails = true;
    node.acquire(first);
    assert_eq!(heard(&node, first), Some(Sent::Granted), "programs do not wait for a full disk");
    assert_eq!(node.task.scrape().counters.journal_failures.get(), 1);
    let said = log::take().join("\n");
    assert!(said.contains("an agent started now would not know the latest changes"), "{said}");
    assert_eq!(node.machine.state().recover().pool.leases().count(), 0);
    node.machine.state().journal_fails = false;
    program(&mut node, "b");
    let recovered = node.machine.state().recover();
    assert_eq!(standing(&recovered.pool, &recovered.registry), node.standing());
}

#[test]
fn a_lost_connection_keeps_its_place_for_ten_seconds() {
    let (mut node, [_, _, waiting]) = three_pods();
    node.hang_up(waiting);
    node.wait(9000);
    assert_eq!(node.task.pool.position(&"c".into()), Some(1));
    node.wait(1000);
    assert_eq!(node.task.pool.position(&"c".into()), None);
}
