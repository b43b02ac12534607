//! Who holds the simulated cards at one moment, read from the cards themselves: the truth for the tests that kill.

use simgpu_device::Machine;

/// A process with a context: on which card, and how much memory it takes there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) card: usize,
    pub(crate) pid: u32,
    pub(crate) memory: u64,
}

/// All holders of one moment: the cards are read until two readings in a row agree, because one reading alone may
/// see a program leave one card after it saw another arrive there.
pub(crate) fn holders(machine: &Machine) -> Vec<Holder> {
    let mut last = read(machine);
    loop {
        let next = read(machine);
        if next == last {
            return next;
        }
        last = next;
    }
}

fn read(machine: &Machine) -> Vec<Holder> {
    let mut holders = Vec::new();
    for card in machine.cards() {
        let processes = card.processes().into_iter().filter(|process| process.contexts > 0);
        holders.extend(processes.filter_map(|process| {
            Some(Holder { card: card.index(), pid: process.pid?, memory: process.memory })
        }));
    }
    holders.sort();
    holders
}
