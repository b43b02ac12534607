//! The agent under test, the simulated cards themselves, and how often the agent was killed.

use std::ops::Deref;
use std::time::{Duration, Instant};

use simgpu_device::{Machine, MachineSettings};

use crate::agent_node::AgentNode;

/// How long the end may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Scene {
    node: AgentNode,
    machine: Machine,
    restarts: usize,
}

impl Scene {
    pub(crate) fn start(cards: usize) -> Self {
        let node = AgentNode::with_cards(cards, &[]);
        let state = node.folder().join("simgpu.state");
        assert!(state.exists(), "the agent keeps its simulated cards in {}", state.display());
        let machine = Machine::open(&MachineSettings::new(state, &cards.to_string()).unwrap()).unwrap();
        Self { node, machine, restarts: 0 }
    }

    /// Ends the agent as hard as can be.
    pub(crate) fn kill(&mut self) {
        self.node.kill();
        self.restarts += 1;
    }

    /// Starts it again on what the killed one left.
    pub(crate) fn restart(&mut self) {
        self.node.start_again();
    }

    pub(crate) const fn restarts(&self) -> usize {
        self.restarts
    }

    pub(crate) const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Everything about the state, for the message of a failure.
    pub(crate) fn describe(&self) -> String {
        format!("{:#?}\nseen on the cards: {:#?}", self.status(), crate::card_holders::holders(&self.machine))
    }

    /// Waits until no pod, no lease and no memory is left.
    pub(crate) fn wait_until_empty(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let used: u64 = self.machine.cards().map(|card| card.used_memory()).sum();
            if status.pods.is_empty() && status.leases.is_empty() && status.queue.is_empty() && used == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{used} bytes and this are left: {}", self.describe());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Deref for Scene {
    type Target = AgentNode;

    fn deref(&self) -> &AgentNode {
        &self.node
    }
}
