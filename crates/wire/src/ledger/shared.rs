//! Memory that several processes of a pod use and one of them is charged for.
//!
//! A process that lets others have its memory (an exported handle, an IPC handle) publishes a key of it here; one that
//! gets memory from elsewhere looks here first, and is charged only where nobody of its pod is. A key is whatever
//! both sides can tell: the identity of a file, the bytes of a handle.
//!
//! An entry belongs to a slot. It says nothing about bytes, so sums never look at it, and a process that is killed
//! leaves nothing to repair: the agent frees its entries with its slot.

use super::Ledger;
use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most keys of a pod at the same time. What finds no place is charged by every process that uses it.
pub const SHARED: usize = 240;

/// One published key.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Shared {
    /// 0 while nobody owns the entry; written before its owner is, except by a new owner.
    key: AtomicU64,
    /// Slot of the process that is charged, plus 1; 0 for a free entry.
    owner: AtomicU32,
}

pub(super) const SHARED_LENGTH: usize = 16;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Shared>() == SHARED_LENGTH);

impl Shared {
    /// Frees the entry. The key goes first, so that no later owner is taken for the one of this key.
    fn free(&self) {
        self.key.store(0, Ordering::SeqCst);
        self.owner.store(0, Ordering::SeqCst);
    }
}

impl Ledger<'_> {
    /// The process in slot `index` is charged for the memory of `key` (not 0). Whether that could be written down.
    pub fn publish_shared(&self, index: u32, key: u64) -> bool {
        let free = |entry: &&Shared| {
            entry.owner.compare_exchange(0, index + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        let place = self.shared.iter().find(free);
        if let Some(entry) = place {
            entry.key.store(key, Ordering::SeqCst);
        }
        place.is_some()
    }

    /// Whether some process of the pod is charged for the memory of `key`.
    pub fn is_shared(&self, key: u64) -> bool {
        self.shared.iter().any(|entry| entry.key.load(Ordering::SeqCst) == key && key != 0)
    }

    /// The process in slot `index` is no longer charged for the memory of `key`.
    pub fn withdraw_shared(&self, index: u32, key: u64) {
        for entry in self.entries_of(index).filter(|entry| entry.key.load(Ordering::SeqCst) == key) {
            entry.free();
        }
    }

    /// Frees every entry of a slot.
    pub(super) fn clear_shared(&self, index: u32) {
        self.entries_of(index).for_each(Shared::free);
    }

    fn entries_of(&self, index: u32) -> impl Iterator<Item = &Shared> {
        self.shared.iter().filter(move |entry| entry.owner.load(Ordering::SeqCst) == index + 1)
    }
}
