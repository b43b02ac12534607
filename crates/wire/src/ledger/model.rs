//! The ledger under loom: every order in which two processes' steps can fall, and a kill after any of them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gpupool-wire --release --lib --target-dir target/loom`

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::atomic::AtomicU64;

const LIMIT: u64 = 10;

struct Private {
    header: LedgerHeader,
    slots: Vec<Slot>,
    shared: Vec<Shared>,
    /// What the driver holds for the whole pod.
    driver: AtomicU64,
}

impl Private {
    fn new() -> Arc<Self> {
        let private = Arc::new(Self {
            header: LedgerHeader::in_private_memory(2),
            slots: (0..2).map(|_| Slot::default()).collect(),
            shared: (0..2).map(|_| Shared::default()).collect(),
            driver: AtomicU64::new(0),
        });
        private.ledger().assign(0);
        private.ledger().assign(1);
        private
    }

    fn ledger(&self) -> Ledger<'_> {
        Ledger::new(&self.header, &self.slots, &self.shared)
    }

    /// The life of a process that allocates once and is killed after `steps` steps; what it holds then.
    fn live(&self, process: u32, bytes: u64, steps: u32) -> u64 {
        let ledger = self.ledger();
        let Ok(reservation) = ledger.reserve(process, bytes, LIMIT, |_| false) else { return 0 };
        if steps < 1 {
            return 0;
        }
        let now = self.driver.fetch_add(bytes, Ordering::SeqCst) + bytes;
        assert!(now <= LIMIT, "the driver holds {now} bytes");
        if steps < 2 {
            return bytes;
        }
        reservation.commit(bytes);
        if steps < 3 {
            return bytes;
        }
        self.driver.fetch_sub(bytes, Ordering::SeqCst);
        if steps >= 4
            && let Some(slot) = ledger.slot(process)
        {
            slot.release(bytes);
        }
        0
    }

    /// A process is gone: first the driver gives its memory back, then the agent reclaims its slot.
    fn bury(&self, process: u32, held: u64) {
        self.driver.fetch_sub(held, Ordering::SeqCst);
        self.ledger().reclaim(process);
    }
}

fn explore(first_steps: u32) {
    loom::model(move || {
        let private = Private::new();
        let other = Arc::clone(&private);
        let thread = thread::spawn(move || {
            let held = other.live(0, 6, first_steps);
            other.bury(0, held);
        });
        let held = private.live(1, 6, 2);
        assert!(thread.join().is_ok());
        assert_eq!(private.ledger().charged(), held);
        assert_eq!(private.driver.load(Ordering::SeqCst), held);
    });
}

#[test]
fn a_process_killed_before_the_drivers_call_leaves_the_right_sum() {
    explore(0);
}

#[test]
fn a_process_killed_between_call_and_commit_leaves_the_right_sum() {
    explore(1);
}

#[test]
fn a_process_killed_after_its_commit_leaves_the_right_sum() {
    explore(2);
}

#[test]
fn a_process_killed_between_free_and_release_leaves_the_right_sum() {
    explore(3);
}

#[test]
fn a_process_that_frees_in_good_order_leaves_the_right_sum() {
    explore(4);
}

/// A sum that is taken while the other commits counts what it commits, once or twice, never not at all.
#[test]
fn a_sum_never_misses_a_commit() {
    loom::model(|| {
        let private = Private::new();
        let other = Arc::clone(&private);
        let thread = thread::spawn(move || {
            if let Ok(reservation) = other.ledger().reserve(0, 6, LIMIT, |_| false) {
                reservation.commit(6);
            }
        });
        let first = private.ledger().charged();
        let second = private.ledger().charged();
        assert!(second >= 6 || first == 0, "{first} then {second}");
        assert!(thread.join().is_ok());
        assert_eq!(private.ledger().charged(), 6);
    });
}

/// Somebody joins while the only holder leaves, by itself or by a kill: who has joined is charged, and afterwards
/// nothing is.
#[test]
fn who_joins_while_the_last_one_leaves_is_charged() {
    for killed in [false, true] {
        loom::model(move || {
            let private = Private::new();
            let place = private.ledger().share(0, 5, 6);
            let other = Arc::clone(&private);
            let thread = thread::spawn(move || match place {
                Some(place) if !killed => other.ledger().leave_shared(0, place),
                _ => drop(other.ledger().reclaim(0)),
            });
            let joined = private.ledger().join_shared(1, 5, |_| true);
            assert!(thread.join().is_ok());
            assert_eq!(private.ledger().charged(), if joined.is_some() { 6 } else { 0 });
            if let Some((place, bytes)) = joined {
                assert_eq!(bytes, 6);
                private.ledger().leave_shared(1, place);
            }
            assert_eq!(private.ledger().charged(), 0);
            assert!(private.shared.iter().all(|entry| entry.is_free()));
        });
    }
}

/// Two take entries at the same time, one is killed: neither gets the other's, and a sum never misses memory that is
/// on its way from a slot to its entry.
#[test]
fn memory_on_its_way_into_an_entry_is_never_missed() {
    loom::model(|| {
        let private = Private::new();
        private.ledger().charge_anyway(0, 6);
        let other = Arc::clone(&private);
        let thread = thread::spawn(move || {
            if other.ledger().share(0, 5, 6).is_some()
                && let Some(slot) = other.ledger().slot(0)
            {
                slot.release(6);
            }
        });
        assert!(private.ledger().charged() >= 6);
        assert!(thread.join().is_ok());
        assert_eq!(private.ledger().charged(), 6);
        private.ledger().reclaim(0);
        assert_eq!(private.ledger().charged(), 0);
    });
}
