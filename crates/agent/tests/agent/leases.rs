//! Grants, waiting, sharing a lease, and giving it back.

use gpupool_agent::admin_api::Reply;
use gpupool_core::pool::PodState;
use gpupool_wire::limits::PodState as PageState;

use crate::node::Node;
use crate::program::{Answer, Program};

fn state(node: &Node) -> PodState {
    node.status().pods[0].state
}

#[test]
fn a_program_is_granted_a_card_and_reads_its_limit_there() {
    let node = Node::start(&[]);
    assert!(matches!(node.register("a", "50"), Reply::Registered(_)));
    let mut program = Program::connect(&node.socket());
    assert_eq!(program.hello(), Answer::Welcome { slot: 0, pod: "a".to_owned() });
    let card = node.status().cards[0].memory_total_bytes;
    let before = program.limits();
    assert_eq!(
        (before.state, before.memory_bytes, before.core_percent),
        (PageState::Hibernating, card / 2, 50)
    );
    assert!(before.context_reserve_bytes > 0);
    program.acquire();
    let granted = program.granted();
    assert_eq!((granted.lease(), granted.index()), (1, 0));
    let during = program.limits();
    assert_eq!((during.state, during.memory_bytes, during.position), (PageState::Running, card / 2, 0));
    assert_eq!(state(&node), PodState::Running);
}

#[test]
fn asking_twice_is_answered_twice_and_leases_once() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    let first = program.granted();
    program.acquire();
    assert_eq!(program.granted(), first);
    assert_eq!(node.status().leases.len(), 1);
}

#[test]
fn a_lease_is_over_when_the_last_context_is_gone_and_not_before_the_ledger_says_so() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    program.granted();
    program.ledger().charge_anyway(0, 4096);
    assert_eq!(node.status().leases[0].memory_used_bytes, Some(4096));
    program.release();
    // The next answer proves that the word before it was dealt with.
    program.acquire();
    program.granted();
    assert_eq!(state(&node), PodState::Running, "a release with memory in the ledger must not be believed");
    program.ledger().slot(0).unwrap().release(4096);
    program.release();
    node.wait_until("the lease to end", |status| status.leases.is_empty());
    program.acquire();
    assert_eq!(program.granted().lease(), 2);
}

#[test]
fn a_closed_socket_is_no_death_and_the_program_comes_back_to_its_lease() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    let granted = program.granted();
    drop(program);
    let mut again = Program::connect(&node.socket());
    assert!(matches!(again.resume(&granted, 0), Answer::Welcome { slot: 0, .. }));
    assert_eq!(node.status().leases[0].lease, granted.lease());
}

#[test]
fn a_program_that_became_another_gives_back_what_the_old_one_held() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    let first = program.granted();
    program.ledger().charge_anyway(0, 4096);
    let old = program.ledger();
    // What exec does: the socket closes, and a shim that knows of nothing introduces itself from the same process.
    let mut next = Program::welcomed_after(program, &node.socket());
    assert_eq!(old.committed(), 0);
    // NVML shows nothing of the old one any more.
    node.wait_until("the lease to end", |status| status.leases.is_empty());
    next.acquire();
    assert_ne!(next.granted().lease(), first.lease());
}

#[test]
fn a_waiting_program_whose_connection_broke_keeps_its_place() {
    let node = Node::start(&[]);
    node.register("a", "1:100");
    let mut holders: Vec<std::process::Child> = Vec::new();
    // Two other pods take both cards.
    for name in ["x", "y"] {
        holders.push(whole_card(&node, name));
    }
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    let status = node.wait_until("the program to wait", |status| status.queue.len() == 1);
    assert_eq!(program.limits().position, 1);
    drop(program);
    let mut again = Program::welcomed(&node.socket());
    again.acquire();
    assert!(!again.has_answer());
    let waited = node.status().queue[0].waiting_seconds;
    assert!(waited >= status.queue[0].waiting_seconds, "the place is the old one");
    for mut holder in holders {
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
    }
    again.granted();
}

#[test]
fn a_question_has_one_answer_also_when_the_grant_came_before_it() {
    let mut node = Node::start(&[]);
    node.register("a", "1:100");
    let mut holders = [whole_card(&node, "x"), whole_card(&node, "y")];
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    node.wait_until("the program to wait", |status| status.queue.len() == 1);
    // The agent is away; the program introduces itself to the next one, is granted a card, and only then asks again.
    node.kill();
    node.start_again();
    let mut again = Program::welcomed(&node.socket());
    drop(holders[0].stdin.take());
    holders[0].wait().unwrap();
    node.wait_until("the grant", |status| status.leases.iter().any(|lease| lease.pod == "a"));
    assert!(!again.has_answer(), "a grant that nobody asked for on this connection");
    again.acquire();
    let granted = again.granted();
    // The next answer is that to the next question.
    again.release();
    node.wait_until("the lease to end", |status| status.leases.iter().all(|lease| lease.pod != "a"));
    again.acquire();
    assert_ne!(again.granted().lease(), granted.lease());
    drop(holders[1].stdin.take());
    holders[1].wait().unwrap();
}

#[test]
fn what_a_waiting_program_has_announced_is_no_sign_of_another_program() {
    let mut node = Node::start(&[]);
    node.register("a", "1:100");
    let mut holders = [whole_card(&node, "x"), whole_card(&node, "y")];
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut program = Program::welcomed(&node.socket());
    let reservation = program.ledger().reserve(0, 4096, 1 << 20, |_| false).unwrap();
    program.acquire();
    node.wait_until("the program to wait", |status| status.queue.len() == 1);
    node.kill();
    node.start_again();
    let mut again = Program::welcomed(&node.socket());
    assert_eq!(node.status().queue.len(), 1, "its place is kept");
    assert_eq!(program.ledger().charged(), 4096, "so is what it announced");
    again.acquire();
    for holder in &mut holders {
        drop(holder.stdin.take());
        holder.wait().unwrap();
    }
    again.granted();
    reservation.commit(4096);
    assert_eq!(node.status().leases[0].memory_used_bytes, Some(4096));
}

/// A pod that takes a whole card until its standard input closes.
pub(crate) fn whole_card(node: &Node, name: &str) -> std::process::Child {
    let dist = gpupool_dist::given_or_built().unwrap();
    let gpupool = dist.join("bin/gpupool");
    std::process::Command::new(&gpupool)
        .args(["run", "--core", "1:100", "--memory", "1:100", "--name", name, "--socket"])
        .arg(node.socket())
        .arg("--")
        .arg(&gpupool)
        .arg("demo-program")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}
