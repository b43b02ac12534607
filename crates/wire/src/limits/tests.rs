//! The page as its two sides use it: published, found in shared memory, read while it changes.

use super::*;

fn limits(n: u32) -> Limits {
    Limits {
        core_percent: n,
        core_rate: Rate { per_second: u64::from(n), burst: u64::from(n) },
        memory_bytes: u64::from(n),
        context_reserve_bytes: u64::from(n),
        state: PodState::from_number(n % 3),
        position: n,
        card: n,
    }
}

/// A page-sized piece of memory, aligned as a mapping is.
#[repr(C, align(4096))]
struct Memory([u8; FILE_LENGTH]);

#[test]
fn what_was_published_is_read() {
    let page = LimitsPage::new(&limits(1));
    assert_eq!(page.read(), limits(1));
    page.publish(&limits(50));
    assert_eq!(page.read(), limits(50));
    assert_eq!((page.memory_bytes(), page.position()), (50, 50));
}

#[test]
fn a_page_is_made_in_shared_memory_and_recognised_there() {
    let mut memory = Memory([0; FILE_LENGTH]);
    let start = memory.0.as_mut_ptr().cast();
    // SAFETY: the memory outlives both views and is used through them only.
    let (strange, made, opened) = unsafe {
        let strange = LimitsPage::open(start, FILE_LENGTH).err();
        let made = LimitsPage::create(start, FILE_LENGTH, &limits(7)).unwrap();
        (strange, made, LimitsPage::open(start, FILE_LENGTH).unwrap())
    };
    assert_eq!(strange, Some(LimitsError::Foreign));
    made.publish(&limits(8));
    assert_eq!(opened.read(), limits(8));
}

#[test]
fn a_page_of_a_later_layout_is_read_and_one_of_an_earlier_is_not() {
    let page = LimitsPage::new(&limits(7));
    let start = core::ptr::from_ref(&page).cast();
    // SAFETY: the page outlives the views.
    let opened = || unsafe { LimitsPage::open(start, size_of::<LimitsPage>()) }.map(LimitsPage::read);
    page.version.store(VERSION + 1, Ordering::Relaxed);
    assert_eq!(opened(), Ok(limits(7)));
    page.version.store(VERSION - 1, Ordering::Relaxed);
    assert_eq!(opened(), Err(LimitsError::Foreign));
}

#[test]
fn memory_that_is_too_small_or_askew_is_refused() {
    let mut memory = Memory([0; FILE_LENGTH]);
    let start = memory.0.as_mut_ptr().cast();
    // SAFETY: nothing is read before the size and the place have been checked.
    unsafe {
        assert_eq!(LimitsPage::open(start, 63).err(), Some(LimitsError::Memory(63)));
        assert_eq!(LimitsPage::open(start.byte_add(1), 64).err(), Some(LimitsError::Memory(64)));
        assert_eq!(LimitsPage::create(start, 8, &limits(1)).err(), Some(LimitsError::Memory(8)));
    }
}

#[test]
fn a_reader_never_sees_half_of_a_change() {
    let page = LimitsPage::new(&limits(0));
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..20_000 {
                page.publish(&limits(n));
            }
            done.store(1, Ordering::Release);
        });
        while done.load(Ordering::Acquire) == 0 {
            if let Some(seen) = page.read_at_once() {
                assert_eq!(seen, limits(seen.position));
            }
        }
    });
}

#[test]
fn a_writer_that_died_half_way_does_not_hang_readers() {
    let page = LimitsPage::new(&limits(4));
    page.sequence.store(5, Ordering::Relaxed);
    assert_eq!(page.read_at_once(), None);
    assert_eq!(page.read(), limits(4));
    page.publish(&limits(6));
    assert_eq!(page.sequence.load(Ordering::Relaxed) % 2, 0);
}
