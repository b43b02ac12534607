//! What dead processes hold is given back.

use crate::{locks::SlotHolder, machine::Machine, memory};

impl Machine {
    /// Gives back what dead processes hold. Every query and every refusal does this by itself.
    pub fn sweep(&self) {
        self.sweep_segments();
        for slot in 0..self.slots_in_use() {
            // Looking comes before asking who lives: see `memory::forget`.
            let seen: Vec<_> =
                (0..self.card_count()).map(|card| memory::snapshot(&self.cells(card)[slot])).collect();
            if seen.iter().all(|cell| cell.is_empty()) || self.holder(slot) != SlotHolder::Nobody {
                continue;
            }
            for (card, seen) in seen.into_iter().enumerate() {
                memory::forget(&self.cells(card)[slot], seen);
            }
        }
    }
}
