//! The bucket under loom: every order in which two launches can fall.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gpupool-wire --release --lib --target-dir target/loom`

use loom::sync::Arc;
use loom::thread;

use super::*;

const HALF: Rate = Rate { per_second: 500_000_000, burst: 0 };
const NOW: u64 = 1_000_000_000_000;

/// What two processes charge together is charged once each, and only one of two that come at once goes through.
#[test]
fn of_two_launches_at_once_the_second_waits_for_the_first() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::default());
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.take(NOW, 1_000, HALF));
        let mine = bucket.take(NOW, 1_000, HALF);
        let theirs = thread.join().unwrap();
        assert_ne!(mine.is_ok(), theirs.is_ok());
        assert_eq!(mine.err().or(theirs.err()), Some(2_000));
        assert_eq!(bucket.usage().charged, 1_000);
    });
}

/// A cost that is settled while somebody launches is lost in neither order.
#[test]
fn what_is_settled_beside_a_launch_is_owed_too() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::default());
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.settle(NOW, 500, HALF));
        let mine = bucket.take(NOW, 1_000, HALF);
        thread.join().unwrap();
        let owed = bucket.take(NOW, 0, HALF).unwrap_err();
        assert_eq!(owed, if mine.is_ok() { 3_000 } else { 1_000 });
    });
}
