//! The delays of a back-off.

use std::time::Duration;

use gpupool_k8s::Backoff;

#[test]
fn delays_double_up_to_the_longest() {
    let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
    let cases = [(0, 0), (1, 250), (2, 500), (3, 1000), (5, 4000), (6, 5000), (40, 5000), (u32::MAX, 5000)];
    for (failures, millis) in cases {
        assert_eq!(backoff.delay(failures), Duration::from_millis(millis), "after {failures}");
    }
}
