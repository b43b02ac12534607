//! Programs whose shim speaks no version of the protocol that is spoken here.

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
