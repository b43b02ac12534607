//! A lock of one word that needs no libc and is open when all its bytes are zero, as a forked child finds it.
//!
//! It guards the slow path (talking to the agent) and the shards of the tables. Launches never meet it.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

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
        // Not `then_some`: a guard that is made and not wanted opens the lock of whoever has it.
        taken.is_ok().then(|| Guard { lock: self })
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

/// One thread at a time, which may come by again: the driver calls others back (a profiler) in the middle of a call, and
/// they call the driver.
#[derive(Debug)]
pub(crate) struct Turn {
    lock: Lock<()>,
    /// Who has it, by [`sys::this_thread`].
    holder: AtomicUsize,
}

/// A thread's turn, until it is dropped; of a thread that had its turn already, nothing.
pub(crate) struct TurnGuard<'a>(Option<&'a Turn>);

impl Turn {
    /// Nobody's turn.
    pub(crate) const fn new() -> Self {
        Self { lock: Lock::new(()), holder: AtomicUsize::new(0) }
    }

    /// Waits for this thread's turn, unless it has it already.
    #[inline(never)]
    pub(crate) fn take(&self) -> TurnGuard<'_> {
        let me = sys::this_thread();
        if self.holder.load(Ordering::Relaxed) == me {
            return TurnGuard(None);
        }
        core::mem::forget(self.lock.lock());
        self.holder.store(me, Ordering::Relaxed);
        TurnGuard(Some(self))
    }

    /// This thread's turn, if nobody has it at this moment.
    pub(crate) fn try_take(&self) -> Option<TurnGuard<'_>> {
        core::mem::forget(self.lock.try_lock()?);
        self.holder.store(sys::this_thread(), Ordering::Relaxed);
        Some(TurnGuard(Some(self)))
    }
}

impl Drop for TurnGuard<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        if let Some(turn) = self.0 {
            turn.holder.store(0, Ordering::Relaxed);
            // The one that `take` or `try_take` left.
            drop(Guard { lock: &turn.lock });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lock, Turn};

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
        for _ in 0..2 {
            assert!(lock.try_lock().is_none(), "who is refused does not open it");
        }
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_thread_that_has_its_turn_passes_again_and_others_wait() {
        let (turn, inside) = (Turn::new(), std::sync::atomic::AtomicBool::new(true));
        let own = turn.take();
        drop(turn.take());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(turn.try_take().is_none());
                let _taken = turn.take();
                assert!(!inside.load(std::sync::atomic::Ordering::SeqCst));
            });
            while turn.lock.word.load(super::Ordering::SeqCst) != super::AWAITED {
                std::thread::yield_now();
            }
            inside.store(false, std::sync::atomic::Ordering::SeqCst);
            drop(own);
            other.join().expect("it ended well");
        });
        assert!(turn.try_take().is_some());
    }
}
