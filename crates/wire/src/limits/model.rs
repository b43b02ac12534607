//! The limits page under loom: every order in which a change and a look at it can fall.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn limits(n: u32) -> Limits {
    Limits {
        core_percent: n,
        core_rate: Rate { per_second: u64::from(n), burst: u64::from(n) },
        memory_bytes: u64::from(n),
        context_reserve_bytes: u64::from(n),
        state: PodState::from_number(n),
        position: n,
        card: n,
    }
}

/// What is read at once is one of the two that were published, whole.
#[test]
fn a_reader_never_sees_half_of_a_change() {
    let mut model = loom::model::Builder::new();
    // Of the order of threads only; which of the stored values a read finds is never bounded.
    model.preemption_bound = Some(2);
    model.check(|| {
        let page = Arc::new(LimitsPage::new(&limits(1)));
        let writer = Arc::clone(&page);
        let thread = thread::spawn(move || writer.publish(&limits(2)));
        if let Some(seen) = page.read_at_once() {
            assert!(seen == limits(1) || seen == limits(2), "{seen:?}");
        }
        assert!(thread.join().is_ok());
        assert_eq!(page.read_at_once(), Some(limits(2)));
    });
}
