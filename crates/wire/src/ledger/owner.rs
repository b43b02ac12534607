//! Which processes a ledger counts: their ids, and what each of them holds.
//!
//! For whoever shows a pod its processes. A program can write what it likes here, so nothing is decided by it.

use super::Ledger;
use super::slot::Slot;
use crate::atomic::Ordering::Relaxed;

/// A process that holds memory or contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its id in its own pid namespace, as it said itself; 0 if it did not.
    pub pid: u32,
    /// Its id where the agent runs, as the kernel told the agent; 0 if nobody wrote it down.
    pub agents_pid: u32,
    /// Bytes that it holds. What several processes hold counts for the one in the lowest slot.
    pub bytes: u64,
}

impl Slot {
    /// The process says who it is.
    pub fn set_pid(&self, pid: u32) {
        self.pid.store(pid, Relaxed);
    }

    /// Who it is by what the agent said; 0 where it did not.
    pub fn agents_pid(&self) -> u32 {
        self.agents_pid.load(Relaxed)
    }

    /// The agent says who it is.
    pub fn set_agents_pid(&self, pid: u32) {
        self.agents_pid.store(pid, Relaxed);
    }
}

impl<'a> Ledger<'a> {
    /// The processes that hold something, in the order of their slots. Their bytes add up to [`Ledger::committed`].
    pub fn owners(&self) -> impl Iterator<Item = Owner> + use<'a> {
        let ledger = *self;
        (0..).zip(self.used_slots()).filter_map(move |(index, slot)| {
            let bytes = slot.committed().saturating_add(ledger.shared_bytes_of(index));
            (bytes > 0 || slot.contexts() > 0).then(|| Owner {
                pid: slot.pid.load(Relaxed),
                agents_pid: slot.agents_pid.load(Relaxed),
                bytes,
            })
        })
    }
}
