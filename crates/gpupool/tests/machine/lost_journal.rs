//! An agent that comes back without its journal: what runs is known again, and nobody is let in beside it meanwhile.

use std::fs;
use std::process::{Child, Command, Stdio};

use gpupool_agent::admin_api::Status;
use simgpu_device::{Machine, MachineSettings};

use crate::agent_node::{AgentNode, said, wait_for};
use crate::card_holders::holders;

/// A pod whose program uses a card until its standard input closes.
fn program(node: &AgentNode, name: &str) -> Child {
    let binary = node.folder().join("allocator");
    if !binary.exists() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/allocator.c");
        let compiled = Command::new("gcc").arg("-o").arg(&binary).args([source, "-ldl"]).status();
        assert!(compiled.unwrap().success(), "allocator.c does not compile");
    }
    let mut command = node.gpupool("run");
    command.args(["--core", "1:100", "--memory", "1:100", "--name", name, "--"]).arg(binary);
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Lets it end; gives what it has said, which must be nothing but that it waited.
fn end(mut program: Child) {
    drop(program.stdin.take());
    let output = program.wait_with_output().unwrap();
    let words = said(&output);
    assert!(output.status.success(), "{words}");
    for line in words.lines() {
        let waited = ["You have been waiting", "gpupool: the agent is away"];
        assert!(waited.iter().any(|wait| line.starts_with(wait)), "{words}");
    }
}

fn holds(status: &Status, pod: &str) -> bool {
    status.leases.iter().any(|lease| lease.pod == pod)
}

/// What can become of a journal, and how.
type Loss = (&'static str, Box<dyn Fn()>);

fn losses(node: &AgentNode) -> [Loss; 3] {
    let journal = node.folder().join("agent.journal");
    let (emptied, broken) = (journal.clone(), journal.clone());
    [
        ("emptied", Box::new(move || fs::write(&emptied, "").unwrap())),
        (
            "snapshot broken",
            Box::new(move || {
                let mut content = fs::read(&broken).unwrap();
                let second = content.iter().position(|byte| *byte == b'\n').unwrap() + 20;
                content[second] ^= 1;
                fs::write(&broken, content).unwrap();
            }),
        ),
        ("removed", Box::new(move || fs::remove_file(&journal).unwrap())),
    ]
}

#[test]
fn programs_of_a_lost_journal_are_known_again_and_nobody_gets_their_cards() {
    let mut node = AgentNode::start(&[]);
    let settings = MachineSettings::new(node.folder().join("simgpu.state"), "2").unwrap();
    let machine = Machine::open(&settings).unwrap();
    let mut pods: Vec<Child> = ["a", "b"].map(|name| program(&node, name)).into();
    node.wait_until("both cards to be taken", |status| holds(status, "a") && holds(status, "b"));
    pods.push(program(&node, "c"));
    node.wait_until("the third to wait", |status| status.queue.len() == 1);
    let before = holders(&machine);
    assert_eq!(before.len(), 2);
    for (what, lose) in losses(&node) {
        node.kill();
        lose();
        node.start_again();
        wait_for("the two to hold their cards again", || {
            let status = node.status();
            let now: Vec<u32> = holders(&machine).iter().map(|holder| holder.pid).collect();
            assert_eq!(now, before.iter().map(|holder| holder.pid).collect::<Vec<_>>(), "{what}");
            assert!(!holds(&status, "c"), "{what}");
            (holds(&status, "a") && holds(&status, "b") && status.queue.len() == 1).then_some(())
        });
        let status = node.status();
        for lease in &status.leases {
            assert!(lease.memory_used_bytes.is_some_and(|bytes| bytes >= 1 << 30), "{what}: {status:#?}");
        }
    }
    end(pods.remove(0));
    node.wait_until("the third to be let in", |status| holds(status, "c"));
    pods.into_iter().for_each(end);
}
