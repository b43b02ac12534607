//! One card, as everybody may look at it.

use std::sync::atomic::Ordering::SeqCst;

use crate::{
    identity::{PciAddress, Uuid},
    layout::CardState,
    locks::SlotHolder,
    machine::Machine,
    memory::{GRANULE, amount, used},
    model::{MODELS, Model},
    time::now_ns,
};

/// A card of a [`Machine`]. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Card {
    machine: Machine,
    index: usize,
}

/// What one live process has of one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    /// Its pid in the calling process's pid namespace; `None` when it can't be seen from there.
    pub pid: Option<u32>,
    /// Device memory in bytes, contexts included.
    pub memory: u64,
    /// Live contexts; 0 for a process that has joined and holds none.
    pub contexts: u32,
    /// Share of the time in which the card worked for it, in percent of the last second or of what was asked for.
    pub utilisation: u32,
}

impl Machine {
    /// Card number `index`, counted from 0 in the order of the PCI bus.
    pub fn card(&self, index: usize) -> Option<Card> {
        (index < self.card_count()).then_some(Card { machine: *self, index })
    }

    /// All cards in the order of their indices.
    pub fn cards(&self) -> impl ExactSizeIterator<Item = Card> {
        let machine = *self;
        (0..self.card_count()).map(move |index| Card { machine, index })
    }
}

impl Card {
    /// Its number, counted from 0; NVML's index.
    pub const fn index(&self) -> usize {
        self.index
    }

    /// What kind of card it is.
    pub fn model(&self) -> &'static Model {
        MODELS.get(self.state().model as usize).unwrap_or(&MODELS[0])
    }

    /// The name that programs and tools are told; it says that the card is simulated.
    pub fn name(&self) -> &'static str {
        self.model().name
    }

    /// Its UUID, the same for the same place and model on every machine.
    pub fn uuid(&self) -> Uuid {
        Uuid::of_card(self.state().model, self.number())
    }

    /// Where it sits on the PCI bus.
    pub fn pci(&self) -> PciAddress {
        PciAddress::of_card(self.number())
    }

    /// Its memory in bytes.
    pub fn total_memory(&self) -> u64 {
        self.model().memory
    }

    /// Memory that live processes hold, in bytes.
    pub fn used_memory(&self) -> u64 {
        self.machine.sweep();
        let shared = self.machine.shared_granules(self.index) * GRANULE;
        used(&self.machine.cells(self.index)[..self.machine.slots_in_use()]) + shared
    }

    /// Live processes that hold memory or a context of this card, in no particular order.
    pub fn processes(&self) -> Vec<ProcessUse> {
        self.processes_since(0)
    }

    /// As [`Self::processes`], with utilisation measured from `since` (nanoseconds of [`now_ns`]) if that is less than
    /// a second ago.
    pub fn processes_since(&self, since: u64) -> Vec<ProcessUse> {
        let now = now_ns();
        let cells = self.machine.cells(self.index);
        let shared = self.machine.shared_of_slots(self.index);
        let shared_of =
            |slot| shared.iter().filter(|(holder, _)| *holder == slot).map(|(_, bytes)| bytes).sum::<u64>();
        (0..self.machine.slots_in_use())
            .filter_map(|slot| {
                let cell = &cells[slot];
                let contexts = u32::try_from(amount(&cell.contexts)).unwrap_or(u32::MAX);
                let memory = amount(&cell.committed) * GRANULE + shared_of(slot);
                if contexts == 0 && memory == 0 {
                    return None;
                }
                let SlotHolder::Process(pid) = self.machine.holder(slot) else { return None };
                Some(ProcessUse { pid, memory, contexts, utilisation: cell.busy.percent_since(since, now) })
            })
            .collect()
    }

    /// Share of the last second in which the card worked, in percent.
    pub fn utilisation(&self) -> u32 {
        self.state().busy.percent(now_ns())
    }

    /// Nanoseconds of the last second ([`crate::WINDOW_NS`]) in which the card worked.
    pub fn busy_ns(&self) -> u64 {
        self.state().busy.busy_ns(now_ns())
    }

    /// Whether the card is lost ("fallen off the bus").
    pub fn lost(&self) -> bool {
        self.state().lost.load(SeqCst) != 0
    }

    /// How often the card was lost. What was made before the last loss is dead even after it came back.
    pub fn losses(&self) -> u32 {
        self.state().losses.load(SeqCst)
    }

    /// Makes the card lost, for every process of the machine. Losing a lost card changes nothing.
    pub fn lose(&self) {
        if self.state().lost.swap(1, SeqCst) == 0 {
            self.state().losses.fetch_add(1, SeqCst);
        }
    }

    /// Makes a lost card usable again; programs have to start afresh on it.
    pub fn recover(&self) {
        self.state().lost.store(0, SeqCst);
    }

    pub(crate) fn state(&self) -> &'static CardState {
        self.machine.card_state(self.index)
    }

    fn number(&self) -> u32 {
        u32::try_from(self.index).unwrap_or_default()
    }
}
