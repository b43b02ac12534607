//! Nobody is let in on a card beside memory that NVML shows there, whatever its holder says, writes or leaves out.
//!
//! The test's process is the holder: it takes memory of the simulated cards by itself, as a program past the shim would.

use std::process::Child;

use gpupool_agent::admin_api::{HeldBackStatus, Status, WhyHeldBack};
use simgpu_device::{Machine, MachineSettings, Process};

use crate::leases::whole_card;
use crate::node::Node;
use crate::program::Program;

const TAKEN: u64 = 60 << 30;

/// Memory of a card that this process holds.
struct Memory {
    process: Process,
    card: usize,
}

impl Memory {
    fn take(node: &Node, card: usize) -> Self {
        let machine = Machine::open(&MachineSettings::new(node.cards_state(), "2").unwrap()).unwrap();
        let process = machine.join().unwrap();
        process.open_context(card).unwrap();
        process.take_memory(card, TAKEN).unwrap();
        let memory = Self { process, card };
        assert!(memory.shown() >= TAKEN, "NVML shows {} bytes", memory.shown());
        memory
    }

    /// What the cards themselves say of this process.
    fn shown(&self) -> u64 {
        let processes = self.process.machine().card(self.card).unwrap().processes();
        processes.iter().filter(|it| it.pid == Some(std::process::id())).map(|it| it.memory).sum()
    }

    fn give_back(self) {
        self.process.give_memory(self.card, TAKEN);
        self.process.close_context(self.card);
        assert_eq!(self.shown(), 0);
    }
}

/// A node whose cards are taken by another pod and by this process, which holds memory on its card and counts it, and
/// a pod that waits.
struct Scene {
    node: Node,
    program: Program,
    memory: Memory,
    others: Vec<Child>,
}

impl Scene {
    fn set() -> Self {
        let node = Node::start(&[]);
        let mut others = vec![whole_card(&node, "other")];
        node.wait_until("the other to hold a card", |status| status.leases.len() == 1);
        node.register("holder", "1:100");
        let mut program = Program::welcomed(&node.socket());
        program.acquire();
        let card = usize::try_from(program.granted().index()).unwrap();
        let memory = Memory::take(&node, card);
        program.ledger().charge_anyway(0, memory.shown());
        others.push(whole_card(&node, "next"));
        node.wait_until("the next to wait", |status| status.queue.len() == 1);
        Self { node, program, memory, others }
    }

    /// Waits until the agent has seen through it, and goes on until the memory has really gone: only then is the next
    /// let in.
    fn the_next_is_let_in_only_after_the_memory_has_gone(self) {
        let shown = self.memory.shown();
        let status = self.node.wait_until("the agent to see it", |status| held_back(status).is_some());
        let why = held_back(&status).unwrap();
        assert_eq!((why.pod.as_deref(), why.memory_bytes), (Some("holder"), Some(shown)));
        assert_eq!(why.pids, [std::process::id()]);
        assert_eq!(pods(&status), ["other", "holder"], "its lease goes on");
        assert_eq!(self.memory.shown(), shown, "the holder really holds it");
        self.memory.give_back();
        let status = self.node.wait_until("the next to be let in", |status| status.queue.is_empty());
        assert_eq!(pods(&status), ["other", "next"]);
        end(self.others);
    }
}

fn held_back(status: &Status) -> Option<&HeldBackStatus> {
    let reasons = status.cards.iter().flat_map(|card| &card.held_back);
    reasons.into_iter().find(|reason| reason.why == WhyHeldBack::KeptAfterRelease)
}

fn pods(status: &Status) -> Vec<&str> {
    status.leases.iter().map(|lease| lease.pod.as_str()).collect()
}

fn end(children: Vec<Child>) {
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_second_hello_that_clears_its_slot_keeps_its_card_while_nvml_shows_memory() {
    let mut scene = Scene::set();
    let ledger = scene.program.ledger();
    scene.program = Program::welcomed_after(scene.program, &scene.node.socket());
    assert_eq!(ledger.committed(), 0, "its slot is empty");
    scene.the_next_is_let_in_only_after_the_memory_has_gone();
}

#[test]
fn a_release_with_a_cleared_slot_keeps_its_card_while_nvml_shows_memory() {
    let mut scene = Scene::set();
    let ledger = scene.program.ledger();
    ledger.slot(0).unwrap().release(scene.memory.shown());
    assert_eq!(ledger.charged(), 0);
    scene.program.release();
    scene.the_next_is_let_in_only_after_the_memory_has_gone();
}

#[test]
fn a_restart_of_the_agent_gives_nobody_a_card_on_which_nvml_shows_memory() {
    let mut scene = Scene::set();
    scene.node.kill();
    scene.node.start_again();
    scene.program = Program::welcomed_after(scene.program, &scene.node.socket());
    scene.the_next_is_let_in_only_after_the_memory_has_gone();
}

#[test]
fn nobody_is_let_in_beside_a_process_of_no_pod_and_the_next_is_when_it_has_gone() {
    let node = Node::start(&[]);
    let memory = [0, 1].map(|card| Memory::take(&node, card));
    node.wait_until("the stranger to be seen", |status| status.strangers.len() == 2);
    let next = whole_card(&node, "next");
    let status = node.wait_until("the next to wait", |status| status.queue.len() == 1);
    let reasons: Vec<_> = status.cards.iter().flat_map(|card| &card.held_back).collect();
    for (reason, memory) in reasons.iter().zip(&memory) {
        assert_eq!((reason.why, reason.memory_bytes), (WhyHeldBack::Stranger, Some(memory.shown())));
        assert_eq!(reason.pids, [std::process::id()]);
    }
    assert_eq!(reasons.len(), 2);
    memory.into_iter().for_each(Memory::give_back);
    let status = node.wait_until("the next to be let in", |status| !status.leases.is_empty());
    assert_eq!(pods(&status), ["next"]);
    end(vec![next]);
}
