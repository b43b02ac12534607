//! A lock of one word that needs no libc and is open when all its bytes are zero, as a forked child finds it.
//!
//! It guards the slow path (talking to the agent) and the shards of the tables. Launches never meet it.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const OPEN: u32 = 0;
const TAKEN: u32 = 1;
const AWAITED: u32 = 2;

/// How often a taker looks before it sleeps: most holders are done in tens of nanoseconds.
const LOOKS: u32 = 60;

/// A value that one thread at a time may use.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

impl<T> core::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lock")
    }
}

// SAFETY: the value is reached through a guard only, and there is at most one guard.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value until it is dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// An open lock.
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(OPEN), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.word.compare_exchange(OPEN, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Guard { lock: self }
    }

    /// The value if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let taken = self.word.compare_exchange(OPEN, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Guard { lock: self })
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            if self.word.load(Ordering::Relaxed) == OPEN
                && self.word.compare_exchange(OPEN, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(AWAITED, Ordering::Acquire) != OPEN {
            sys::futex_wait(&self.word, AWAITED);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word.swap(OPEN, Ordering::Release) == AWAITED {
            sys::futex_wake(&self.lock.word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn a_taken_lock_is_refused_to_those_who_will_not_wait() {
        let lock = Lock::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
