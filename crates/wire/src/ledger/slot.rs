//! One process's slot: what it holds, what it is about to take, its contexts, and who it is.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// One process's account.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    pub(super) committed: AtomicU64,
    pub(super) pending: AtomicU64,
    pub(super) contexts: AtomicU32,
    pub(super) submitted: AtomicU32,
    pub(super) pid: AtomicU32,
    pub(super) agents_pid: AtomicU32,
}

impl Slot {
    /// Bytes that the process holds on the card.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    /// Bytes that the process is about to take.
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Contexts that the process has on the card.
    pub fn contexts(&self) -> u32 {
        self.contexts.load(Ordering::Relaxed)
    }

    /// One context more.
    pub fn context_made(&self) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
    }

    /// One context less; stays 0 at 0.
    pub fn context_gone(&self) {
        // Only the owning process counts here, and a lost race merely repeats the loop.
        let _ = self.contexts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    /// The flag behind [`Self::mark_submitted`], for code that sets it without a call: 1 stands for submitted work.
    pub const fn submitted_flag(&self) -> &AtomicU32 {
        &self.submitted
    }

    /// The process submits work. Costs a load when that is known already.
    #[inline]
    pub fn mark_submitted(&self) {
        if self.submitted.load(Ordering::Relaxed) == 0 {
            self.submitted.store(1, Ordering::Relaxed);
        }
    }

    /// Whether work was submitted since the last time somebody asked; the agent asks once a second.
    pub fn take_submitted(&self) -> bool {
        self.submitted.swap(0, Ordering::Relaxed) != 0
    }

    /// The process holds nothing, is about to take nothing, and has no context.
    pub fn is_empty(&self) -> bool {
        self.pending() == 0 && self.committed() == 0 && self.contexts() == 0
    }

    /// Takes back what a process held, `bytes` at a time, after the driver freed it. Never below zero: a slot that
    /// somebody falsified must not turn into an endless charge.
    pub fn release(&self, bytes: u64) {
        subtract(&self.committed, bytes);
    }

    pub(super) fn clear(&self) {
        self.pid.store(0, Ordering::Relaxed);
        self.agents_pid.store(0, Ordering::Relaxed);
        self.contexts.store(0, Ordering::Relaxed);
        self.submitted.store(0, Ordering::Relaxed);
        self.committed.store(0, Ordering::SeqCst);
        self.pending.store(0, Ordering::SeqCst);
    }

    /// What the slot counts, never less than what its owner holds at some moment of this call: `pending` first.
    pub(super) fn charge(&self) -> u64 {
        let pending = self.pending();
        self.committed().saturating_add(pending)
    }
}

pub(super) fn subtract(counter: &AtomicU64, bytes: u64) {
    let before = counter.fetch_sub(bytes, Ordering::SeqCst);
    if before < bytes {
        // Falsified from outside, or released twice: put back what went below zero.
        counter.fetch_add(bytes - before, Ordering::SeqCst);
    }
}
