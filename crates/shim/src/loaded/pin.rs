//! A place for the symbols of a library that stays loaded, written once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use super::elf::Symbols;

/// Symbols, once somebody has looked for them.
pub(crate) struct Pin {
    state: AtomicU32,
    symbols: UnsafeCell<Symbols>,
}

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const WRITTEN: u32 = 2;

// SAFETY: written by the one thread that turned the state from EMPTY, read only once it is WRITTEN.
unsafe impl Sync for Pin {}

impl Pin {
    /// No symbols yet.
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(EMPTY), symbols: UnsafeCell::new(Symbols::none()) }
    }

    /// The symbols, if they are there.
    pub(crate) fn get(&self) -> Option<Symbols> {
        if self.state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        // SAFETY: nobody writes any more.
        Some(unsafe { *self.symbols.get() })
    }

    /// Writes the symbols; the first to do so wins.
    pub(crate) fn set(&self, symbols: Symbols) {
        if self.state.compare_exchange(EMPTY, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: this thread alone won the right to write.
            unsafe { *self.symbols.get() = symbols };
            self.state.store(WRITTEN, Ordering::Release);
        }
    }
}
