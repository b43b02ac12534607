//! Programs whose shim is of another release: it speaks no version of the protocol that is spoken here, or cannot say a word.

use gpupool_wire::ledger::Ledger;
use gpupool_wire::message::RefusalReason;

use super::machine::Sent;
use super::node::Node;
use crate::pool_task::UnservedPrograms;
use crate::usage_audit::WhyNotHeld;

#[test]
fn they_get_no_card_and_take_no_part() {
    let mut node = Node::new();
    let (run, _) = node.register("a", 10);
    let program = node.spawn(run);
    assert_eq!(node.foreign_hello(program).socket.receive(), Some(Sent::Refused(RefusalReason::Version)));
    assert!(node.task.registry.process(program).is_none());
}

#[test]
fn where_the_node_lets_them_run_they_are_reported_with_the_reason_and_nobody_is_granted_their_card() {
    let mut node = Node::new();
    node.task.settings.unserved = UnservedPrograms::Unheld;
    let (run, _) = node.register("a", 10);
    let program = node.spawn(run);
    assert_eq!(node.foreign_hello(program).socket.receive(), Some(Sent::Refused(RefusalReason::Unheld)));
    for card in 0..2 {
        node.take(program, card, 1 << 30);
    }
    node.look();
    let status = node.task.status();
    let not_held = &status.pods[0].hold.not_held;
    assert!(
        !not_held.is_empty() && not_held.iter().all(|it| it.why == WhyNotHeld::OtherVersion),
        "{not_held:?}"
    );
    let (_, other) = super::program(&mut node, "b");
    node.acquire(other);
    node.look();
    assert_eq!(super::heard(&node, other), None, "both cards are occupied");
    node.end(program);
    node.look();
    assert_eq!(super::heard(&node, other), Some(Sent::Granted));
}

/// Shims of the first days send a descriptor with the word that they come back with a lease, which kernels from Linux 6.16 on
/// refuse for the agent's socket: they connect and hang up again. Their other words have none.
#[test]
fn who_cannot_say_that_it_has_come_back_keeps_its_lease_and_can_give_it_back() {
    let mut node = Node::new();
    let programs = ["a", "b", "c"].map(|name| super::program(&mut node, name).1);
    for program in programs {
        node.acquire(program);
    }
    let [first, second, waiting] = programs;
    for (card, program) in [(0, first), (1, second)] {
        node.take(program, card, 1 << 30);
    }
    let slot = node.task.registry.process(first).unwrap().slot;
    let pod = node.task.registry.process(first).unwrap().pod.clone();
    let ledger = |node: &Node, change: &dyn Fn(Ledger<'_>)| {
        node.task.pages.ledger(&pod).unwrap().with(change).unwrap();
    };
    ledger(&node, &|ledger| ledger.charge_anyway(slot, 1 << 30));
    let leases = |node: &Node| node.task.pool.leases().map(|lease| lease.lease).collect::<Vec<_>>();
    let before = leases(&node);
    node.restart();
    node.hello(second);
    node.hello(waiting);
    node.acquire(waiting);
    for _ in 0..120 {
        node.connect(first);
        node.hang_up(first);
        node.wait(1000);
    }
    assert_eq!(leases(&node), before);
    // Without a lease it comes with bare words.
    ledger(&node, &|ledger| assert_eq!(ledger.reclaim(slot), Some(1 << 30)));
    node.take(first, 0, 0);
    node.machine.state().processes.get_mut(&first).unwrap().lease = None;
    let line = node.hello(first);
    assert_eq!(line.socket.receive(), Some(Sent::Welcome));
    node.release(first);
    node.look_if_asked();
    assert_eq!(super::heard(&node, waiting), Some(Sent::Welcome));
    assert_eq!(super::heard(&node, waiting), Some(Sent::Granted));
}
