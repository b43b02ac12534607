//! The bucket against the rule that it stands for: no span of time holds more use than its rate, its burst and one
//! launch; and nobody waits who owes nothing.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;

fn rate(percent: u64, burst: u64) -> Rate {
    Rate { per_second: percent * SECOND / 100, burst }
}

#[test]
fn a_kernel_longer_than_the_budget_runs_and_is_paid_for_afterwards() {
    let (bucket, half) = (Bucket::default(), rate(50, 100_000_000));
    assert_eq!(bucket.take(START, 3 * SECOND, half), Ok(()));
    // Six seconds of ordinary time, of which the burst had saved a tenth.
    assert_eq!(bucket.take(START, 1, half), Err(5_900_000_000));
    assert_eq!(bucket.take(START + 5_899_999_999, 1, half), Err(1));
    assert_eq!(bucket.take(START + 5_900_000_000, 1, half), Ok(()));
}

#[test]
fn a_pod_that_was_idle_has_its_burst_and_no_more() {
    let (bucket, tenth) = (Bucket::default(), rate(10, 100_000_000));
    for round in 1..=3 {
        let now = START + round * 3600 * SECOND;
        let launches = (0..1000).take_while(|_| bucket.take(now, 1_000_000, tenth).is_ok()).count();
        // 100 ms of rights are 10 ms of device time; the launch after them is let through while nothing is owed.
        assert_eq!(launches, 11);
    }
}

#[test]
fn a_new_rate_counts_from_the_next_launch_on() {
    let bucket = Bucket::default();
    assert_eq!(bucket.take(START, 10_000_000, rate(50, 0)), Ok(()));
    assert_eq!(bucket.take(START + 20_000_000, 10_000_000, rate(10, 0)), Ok(()));
    assert_eq!(bucket.take(START + 20_000_000, 10_000_000, rate(10, 0)), Err(100_000_000));
}

#[test]
fn every_process_draws_from_the_same_bucket() {
    let bucket = Bucket::default();
    let threads: usize = 8;
    let passed = std::thread::scope(|scope| {
        let one = || (0..1000).filter(|_| bucket.take(START, 1_000, rate(100, 1_000_000)).is_ok()).count();
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(passed, 1001);
    assert_eq!(bucket.usage().charged, 1_001_000);
}

#[test]
fn no_limit_is_told_from_the_highest_one() {
    assert!(!Rate::UNLIMITED.is_limited());
    assert!(rate(100, 0).is_limited() && rate(250, 0).is_limited());
}

proptest! {
    #[test]
    fn no_span_holds_more_than_rate_and_burst_and_one_launch(
        percent in 1_u64..=300,
        burst in 0_u64..SECOND,
        launches in prop::collection::vec((0_u64..50_000_000, 0_u64..100_000_000), 1..200),
    ) {
        let (bucket, rate) = (Bucket::default(), rate(percent, burst));
        let (mut now, mut used, mut longest) = (START, 0_u64, 0);
        for (pause, cost) in launches {
            now += pause;
            if bucket.take(now, cost, rate).is_ok() {
                used += cost;
                longest = longest.max(cost);
            }
            let allowed = (now - START + burst) * percent / 100 + longest;
            prop_assert!(used <= allowed + used / 1000 + 1, "{used} of {allowed}");
        }
        prop_assert_eq!(bucket.usage().charged, used);
    }

    #[test]
    fn whoever_waits_as_long_as_it_was_told_gets_through(
        percent in 1_u64..=300,
        burst in 0_u64..SECOND,
        costs in prop::collection::vec(0_u64..10 * SECOND, 1..50),
    ) {
        let (bucket, rate) = (Bucket::default(), rate(percent, burst));
        let mut now = START;
        for cost in costs {
            if let Err(wait) = bucket.take(now, cost, rate) {
                now += wait;
                prop_assert_eq!(bucket.take(now, cost, rate), Ok(()));
            }
        }
    }

    /// What another process of the pod wrote over the words: never a panic, never a wait beyond the bound.
    #[test]
    fn falsified_words_bound_the_wait(
        stored: u64,
        charged: u64,
        now: u64,
        cost: u64,
        per_second in 0..u64::MAX,
        burst: u64,
    ) {
        let bucket = Bucket::default();
        bucket.paid_until.store(stored, Ordering::Relaxed);
        bucket.charged.store(charged, Ordering::Relaxed);
        let rate = Rate { per_second, burst };
        if let Err(wait) = bucket.take(now, cost, rate) {
            prop_assert!(wait <= LONGEST_DEBT_NS);
            let later = now.saturating_add(wait);
            prop_assert!(bucket.take(later, cost, rate).is_ok() || later == u64::MAX);
        }
        bucket.settle(now, cost, rate);
        bucket.note_wait(u64::MAX);
        if let Err(wait) = bucket.take(now, 0, rate) {
            prop_assert!(wait <= LONGEST_DEBT_NS);
        }
    }
}
