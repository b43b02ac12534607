//! The contexts of this process, told apart so that memory can die with its context.

use core::sync::atomic::{AtomicU64, Ordering};

use super::tables::Tables;
use super::tables::values::Owner;
use crate::lock::Turn;

/// Most contexts that are told apart. Memory allocated in any beyond is charged until it is freed one by one.
const MOST: usize = 64;

/// The contexts of this process.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// By place; 0 for a free place.
    handles: [AtomicU64; MOST],
    charges: [AtomicU64; MOST],
    /// Held while the primary context may begin or end.
    pub(crate) primary: Turn,
    /// Handle of the primary context while it is charged.
    pub(crate) primary_handle: AtomicU64,
}

impl Contexts {
    pub(crate) const fn new() -> Self {
        Self {
            handles: [const { AtomicU64::new(0) }; MOST],
            charges: [const { AtomicU64::new(0) }; MOST],
            primary: Turn::new(),
            primary_handle: AtomicU64::new(0),
        }
    }

    /// The place of a context that is remembered.
    pub(crate) fn place(&self, handle: u64) -> Option<usize> {
        self.handles.iter().position(|known| known.load(Ordering::Acquire) == handle)
    }

    /// Remembers a context and what it is charged.
    pub(crate) fn add(&self, handle: u64, charge: u64) {
        for (known, charged) in self.handles.iter().zip(&self.charges) {
            if known.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                charged.store(charge, Ordering::Release);
                return;
            }
        }
    }

    /// Forgets a context: what it and what `tables` has of it were charged, if it was known.
    pub(crate) fn remove(&self, handle: u64, tables: &Tables) -> Option<u64> {
        let place = self.place(handle)?;
        let charge = self.charges.get(place)?.swap(0, Ordering::AcqRel);
        let memory = tables.remove_owner(Owner::context(place));
        self.handles.get(place)?.store(0, Ordering::Release);
        Some(charge + memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_found_until_it_is_gone_and_its_place_is_used_again() {
        let contexts = Contexts::new();
        contexts.add(10, 256);
        contexts.add(20, 256);
        assert_eq!((contexts.place(10), contexts.place(20), contexts.place(30)), (Some(0), Some(1), None));
        assert_eq!(contexts.remove(10, &Tables::new()), Some(256));
        assert_eq!(contexts.remove(10, &Tables::new()), None);
        contexts.add(30, 256);
        assert_eq!(contexts.place(30), Some(0));
    }

    #[test]
    fn contexts_beyond_the_list_are_merely_not_told_apart() {
        let contexts = Contexts::new();
        for handle in 1..=100 {
            contexts.add(handle, 1);
        }
        assert_eq!((contexts.place(64), contexts.place(65)), (Some(63), None));
    }
}
