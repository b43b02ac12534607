use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::atomic::AtomicU64;

const NEVER: fn(u32) -> bool = |_| false;

struct Private {
    header: LedgerHeader,
    slots: Vec<Slot>,
    shared: Vec<Shared>,
}

impl Private {
    fn new(slots: usize) -> Self {
        let private = Self {
            header: LedgerHeader::in_private_memory(slots),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            shared: (0..4).map(|_| Shared::default()).collect(),
        };
        for (index, _) in (0..).zip(&private.slots) {
            private.ledger().assign(index);
        }
        private
    }

    fn ledger(&self) -> Ledger<'_> {
        Ledger::new(&self.header, &self.slots, &self.shared)
    }
}

#[test]
fn memory_is_charged_from_reserve_to_release() {
    let private = Private::new(2);
    let ledger = private.ledger();
    let reservation = ledger.reserve(0, 60, 100, NEVER).unwrap();
    assert_eq!((ledger.charged(), ledger.committed()), (60, 0));
    reservation.commit(64);
    assert_eq!((ledger.charged(), ledger.committed()), (64, 64));
    ledger.slot(0).unwrap().release(64);
    assert_eq!(ledger.charged(), 0);
}

#[test]
fn the_limit_holds_to_the_byte_and_over_all_slots() {
    let private = Private::new(2);
    let ledger = private.ledger();
    ledger.reserve(0, 60, 100, NEVER).unwrap().commit(60);
    let refused = ledger.reserve(1, 41, 100, NEVER).unwrap_err();
    assert_eq!(refused, ReserveError::OutOfMemory { wanted: 41, held: 60, limit: 100 });
    ledger.reserve(1, 40, 100, NEVER).unwrap().commit(40);
    assert_eq!(ledger.charged(), 100);
    assert!(ledger.reserve(0, 1, 100, NEVER).is_err());
    ledger.reserve(0, 0, 100, NEVER).unwrap().cancel();
}

#[test]
fn an_absurd_size_is_out_of_memory_and_leaves_no_trace() {
    let private = Private::new(1);
    let ledger = private.ledger();
    ledger.reserve(0, 1, 100, NEVER).unwrap().commit(1);
    assert!(matches!(ledger.reserve(0, u64::MAX, 100, NEVER), Err(ReserveError::OutOfMemory { .. })));
    assert_eq!(ledger.charged(), 1);
}

#[test]
fn a_limit_lowered_below_what_is_held_refuses_and_keeps_what_is_held() {
    let private = Private::new(1);
    let ledger = private.ledger();
    ledger.reserve(0, 80, 100, NEVER).unwrap().commit(80);
    assert!(ledger.reserve(0, 1, 50, NEVER).is_err());
    ledger.slot(0).unwrap().release(80);
    assert_eq!(ledger.charged(), 0);
}

#[test]
fn somebody_elses_announcement_is_waited_for() {
    let private = Private::new(2);
    let ledger = private.ledger();
    let mut theirs = Some(ledger.reserve(1, 70, 100, NEVER).unwrap());
    assert_eq!(ledger.reserve(0, 60, 100, NEVER).unwrap_err(), ReserveError::Contended);
    let mine = ledger.reserve(0, 60, 100, |attempt| {
        if attempt == 1 {
            theirs.take().unwrap().cancel();
        }
        attempt < 3
    });
    mine.unwrap().commit(60);
    assert_eq!(ledger.charged(), 60);
}

#[test]
fn a_slot_outside_the_ledger_is_refused() {
    let private = Private::new(1);
    let ledger = private.ledger();
    assert_eq!(ledger.reserve(1, 1, 10, NEVER).unwrap_err(), ReserveError::NoSuchSlot(1));
    assert!(ledger.assign(1).is_none());
    assert!(ledger.reclaim(7).is_none());
}

#[test]
fn a_double_release_does_not_become_an_endless_charge() {
    let private = Private::new(1);
    let slot = private.ledger().slot(0).unwrap();
    slot.release(5);
    assert_eq!(slot.committed(), 0);
    slot.context_gone();
    assert_eq!(slot.contexts(), 0);
}

#[test]
fn shared_memory_is_charged_once_until_its_last_holder_is_gone() {
    let private = Private::new(70);
    let ledger = private.ledger();
    let slot = ledger.slot(0).unwrap();
    ledger.reserve(0, 60, 100, NEVER).unwrap().commit(60);
    let place = ledger.share(0, 7, 60).unwrap();
    slot.release(60);
    assert_eq!(ledger.join_shared(1, 7, |_| true), Some((place, 60)));
    assert_eq!(ledger.join_shared(69, 7, |_| true), Some((place, 60)));
    assert_eq!((ledger.charged(), ledger.committed()), (60, 60));
    assert!(ledger.reserve(1, 41, 100, NEVER).is_err());
    ledger.leave_shared(0, place);
    ledger.reclaim(1);
    assert_eq!((ledger.charged(), ledger.join_shared(2, 8, |_| true)), (60, None));
    ledger.leave_shared(69, place);
    assert_eq!((ledger.charged(), ledger.join_shared(2, 7, |_| true)), (0, None));
}

#[test]
fn of_several_pieces_with_one_key_each_is_joined_once_before_any_is_twice() {
    let private = Private::new(2);
    let ledger = private.ledger();
    let places = [ledger.share(0, 7, 10).unwrap(), ledger.share(0, 7, 10).unwrap()];
    let join = |mine: &[usize]| ledger.join_shared(1, 7, |place| !mine.contains(&place)).unwrap().0;
    assert_eq!((join(&[]), join(&places[..1]), join(&places)), (places[0], places[1], places[0]));
}

#[test]
fn shared_memory_beyond_the_last_place_is_told_and_places_are_used_again() {
    let private = Private::new(1);
    let ledger = private.ledger();
    let places: Vec<_> = (1..=4).map(|key| ledger.share(0, key, 10).unwrap()).collect();
    assert_eq!(ledger.share(0, 5, 10), None);
    ledger.leave_shared(0, places[1]);
    assert_eq!(ledger.share(0, 5, 1), Some(places[1]));
    assert_eq!(ledger.charged(), 31);
    ledger.assign(0);
    assert_eq!(ledger.charged(), 0, "a slot that is given again holds nothing");
}

#[test]
fn work_is_seen_once() {
    let slot = Slot::default();
    assert!(!slot.take_submitted());
    slot.mark_submitted();
    slot.mark_submitted();
    assert!(slot.take_submitted());
    assert!(!slot.take_submitted());
}

#[test]
fn a_slot_is_empty_only_without_bytes_and_contexts() {
    let private = Private::new(1);
    let ledger = private.ledger();
    let slot = ledger.slot(0).unwrap();
    slot.context_made();
    assert!(!slot.is_empty());
    slot.context_gone();
    let reservation = ledger.reserve(0, 1, 1, NEVER).unwrap();
    assert!(!slot.is_empty());
    reservation.cancel();
    assert!(slot.is_empty());
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

#[test]
fn a_ledger_is_made_in_shared_memory_and_recognised_there() {
    let mut memory = vec![Page([0; 4096]); FILE_LENGTH / 4096];
    let start = memory.as_mut_ptr().cast();
    // SAFETY: the memory outlives the views and is used through them only.
    unsafe {
        assert_eq!(Ledger::open(start, FILE_LENGTH).err(), Some(LedgerError::Foreign));
        assert_eq!(Ledger::open(start, 64).err(), Some(LedgerError::Memory(64)));
        assert_eq!(
            Ledger::open(start.byte_add(8), FILE_LENGTH).err(),
            Some(LedgerError::Memory(FILE_LENGTH))
        );
        let made = Ledger::create(start, FILE_LENGTH).unwrap();
        made.assign(1023).unwrap();
        assert!(made.assign(1024).is_none());
        let opened = Ledger::open(start, FILE_LENGTH).unwrap();
        opened.reserve(1023, 5, 10, NEVER).unwrap().commit(5);
        assert_eq!(made.charged(), 5);
    }
}

#[test]
fn a_ledger_of_a_later_layout_is_shared_and_stays_one_whoever_makes_it_again() {
    let mut memory = vec![Page([0; 4096]); FILE_LENGTH / 4096 + 1];
    let (start, length) = (memory.as_mut_ptr().cast(), FILE_LENGTH + 4096);
    // SAFETY: the memory outlives the views and is used through them only.
    unsafe {
        let newer = Ledger::create(start, length).unwrap();
        newer.header.version.store(VERSION + 1, Ordering::SeqCst);
        newer.assign(3).unwrap();
        Ledger::open(start, length).unwrap().charge_anyway(3, 7);
        // An agent that was rolled back takes it over.
        Ledger::create(start, FILE_LENGTH).unwrap();
        assert_eq!(newer.header.version.load(Ordering::SeqCst), VERSION + 1, "a newer shim still knows it");
        assert_eq!(newer.charged(), 7);
        newer.header.version.store(VERSION - 1, Ordering::SeqCst);
        assert_eq!(Ledger::open(start, length).err(), Some(LedgerError::Foreign));
    }
}

#[test]
fn rubbish_in_the_header_never_leads_outside_the_slots() {
    let private = Private::new(4);
    private.header.high_water.store(u32::MAX, Ordering::SeqCst);
    private.slots[3].committed.store(u64::MAX, Ordering::SeqCst);
    private.slots[2].pending.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(private.ledger().charged(), u64::MAX);
    assert_eq!(private.ledger().reclaim(3), Some(u64::MAX));
}

/// What a process does between two instructions of the ledger; a kill may fall between any two of them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve { process: u32, bytes: u64 },
    Commit { process: u32 },
    Cancel { process: u32 },
    Release { process: u32 },
    Kill { process: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = 0..4_u32;
    let step = prop_oneof![
        4 => (process.clone(), 0..70_u64).prop_map(|(process, bytes)| Step::Reserve { process, bytes }),
        3 => process.clone().prop_map(|process| Step::Commit { process }),
        1 => process.clone().prop_map(|process| Step::Cancel { process }),
        2 => process.clone().prop_map(|process| Step::Release { process }),
        1 => process.prop_map(|process| Step::Kill { process }),
    ];
    proptest::collection::vec(step, 0..60)
}

/// What the driver would say: bytes held and bytes on their way, by process.
#[derive(Default)]
struct Truth {
    held: BTreeMap<u32, u64>,
    coming: BTreeMap<u32, u64>,
}

impl Truth {
    fn total(&self) -> u64 {
        self.held.values().chain(self.coming.values()).sum()
    }
}

proptest! {
    #[test]
    fn a_kill_between_any_two_steps_leaves_the_right_sum_after_the_reclaim(steps in steps()) {
        const LIMIT: u64 = 100;
        let private = Private::new(4);
        let ledger = private.ledger();
        let mut truth = Truth::default();
        let mut open: BTreeMap<u32, Reservation<'_>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Reserve { process, bytes } => {
                    if open.contains_key(&process) {
                        continue;
                    }
                    let fits = truth.total() + bytes <= LIMIT;
                    let reserved = ledger.reserve(process, bytes, LIMIT, NEVER);
                    prop_assert_eq!(reserved.is_ok(), fits);
                    if let Ok(reservation) = reserved {
                        truth.coming.insert(process, bytes);
                        open.insert(process, reservation);
                    }
                }
                Step::Commit { process } => if let Some(reservation) = open.remove(&process) {
                    let bytes = reservation.bytes();
                    reservation.commit(bytes);
                    truth.coming.remove(&process);
                    *truth.held.entry(process).or_default() += bytes;
                },
                Step::Cancel { process } => if let Some(reservation) = open.remove(&process) {
                    reservation.cancel();
                    truth.coming.remove(&process);
                },
                Step::Release { process } => if let Some(bytes) = truth.held.remove(&process) {
                    ledger.slot(process).unwrap().release(bytes);
                },
                Step::Kill { process } => {
                    open.remove(&process);
                    let lost = truth.held.remove(&process).unwrap_or(0) + truth.coming.remove(&process).unwrap_or(0);
                    prop_assert_eq!(ledger.reclaim(process), Some(lost));
                }
            }
            prop_assert_eq!(ledger.charged(), truth.total());
        }
    }
}

/// Threads play processes, each with its own slot, and the "driver" is a counter that must never pass the limit.
#[test]
fn processes_that_race_never_exceed_the_limit() {
    const LIMIT: u64 = 1000;
    const PROCESSES: u32 = 4;
    let private = Private::new(PROCESSES as usize);
    let ledger = private.ledger();
    let driver = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let (driver, taken) = (&driver, &taken);
            scope.spawn(move || {
                let mut random = fastrand_like(process);
                for _ in 0..20_000 {
                    let bytes = random() % 600;
                    let Ok(reservation) = ledger.reserve(process, bytes, LIMIT, |n| n < 3) else { continue };
                    let now = driver.fetch_add(bytes, Ordering::SeqCst) + bytes;
                    assert!(now <= LIMIT, "{now} bytes held");
                    reservation.commit(bytes);
                    driver.fetch_sub(bytes, Ordering::SeqCst);
                    ledger.slot(process).unwrap().release(bytes);
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(ledger.charged(), 0);
    assert!(taken.load(Ordering::Relaxed) > 0);
}

/// Threads of one process share a slot.
#[test]
fn threads_of_one_process_share_its_slot() {
    const LIMIT: u64 = 1000;
    let private = Private::new(1);
    let ledger = private.ledger();
    let driver = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let driver = &driver;
            scope.spawn(move || {
                let mut random = fastrand_like(thread);
                for _ in 0..20_000 {
                    let bytes = random() % 700;
                    let Ok(reservation) = ledger.reserve(0, bytes, LIMIT, |n| n < 3) else { continue };
                    assert!(driver.fetch_add(bytes, Ordering::SeqCst) + bytes <= LIMIT);
                    reservation.commit(bytes);
                    driver.fetch_sub(bytes, Ordering::SeqCst);
                    ledger.slot(0).unwrap().release(bytes);
                }
            });
        }
    });
    assert!(ledger.slot(0).unwrap().is_empty());
}

/// A small generator, so that a failure repeats with the same numbers.
fn fastrand_like(seed: u32) -> impl FnMut() -> u64 {
    let mut state = u64::from(seed) + 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

#[test]
fn the_owners_are_those_who_hold_something_and_add_up_to_what_is_held() {
    let private = Private::new(4);
    let ledger = private.ledger();
    for (index, slot) in (0..).zip(&private.slots) {
        slot.set_pid(10 + index);
        slot.set_agents_pid(1000 + index);
    }
    assert_eq!(ledger.owners().count(), 0);
    ledger.reserve(1, 60, 1000, NEVER).unwrap().commit(64);
    ledger.slot(3).unwrap().context_made();
    let place = ledger.share(2, 7, 100).unwrap();
    assert_eq!(ledger.join_shared(1, 7, |_| true), Some((place, 100)));
    let owner = |index: u32, bytes| Owner { pid: 10 + index, agents_pid: 1000 + index, bytes };
    assert_eq!(ledger.owners().collect::<Vec<_>>(), [owner(1, 164), owner(3, 0)]);
    ledger.leave_shared(1, place);
    assert_eq!(ledger.owners().collect::<Vec<_>>(), [owner(1, 64), owner(2, 100), owner(3, 0)]);
    assert_eq!(ledger.owners().map(|owner| owner.bytes).sum::<u64>(), ledger.committed());
    ledger.reclaim(1);
    ledger.assign(1).unwrap().context_made();
    assert_eq!(ledger.owners().next(), Some(Owner { pid: 0, agents_pid: 0, bytes: 0 }));
}
