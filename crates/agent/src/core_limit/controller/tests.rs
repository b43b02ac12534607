//! The controller on a modelled pod: it launches as fast as its rate allows, charges more or less than it uses, and
//! is late now and then; NVML says whole percents of the last second.

use proptest::prelude::*;

use super::*;

const STEP: Duration = Duration::from_millis(10);
const LOOK_EVERY: usize = 10;
/// Steps of a second.
const SECOND: usize = 100;

/// A pod, step by step.
struct Modelled {
    controller: Controller,
    share: f64,
    /// What it charges for a second of device time, in seconds.
    price: f64,
    /// Device time of every step so far, in seconds.
    used: Vec<f64>,
    charged: f64,
    waited: u64,
    /// Unused right, in seconds of ordinary time.
    saved: f64,
}

impl Modelled {
    fn new(share: f64, price: f64) -> Self {
        let controller = Controller::new();
        Self { controller, share, price, used: Vec::new(), charged: 0.0, waited: 0, saved: 0.0 }
    }

    /// One step in which it wants `wish` of the card, 0 to 1.
    fn step(&mut self, wish: f64) {
        let rate = self.controller.rate(self.share);
        let step = STEP.as_secs_f64();
        self.saved = (self.saved + step).min(rate.burst as f64 / 1e9 + step);
        let wanted = wish * step;
        let allowed = self.saved * rate.per_second as f64 / 1e9 / self.price;
        let used = wanted.min(allowed).min(step);
        self.saved -= used * self.price / (rate.per_second as f64 / 1e9);
        self.waited += u64::from(wanted > allowed);
        self.charged += used * self.price;
        self.used.push(used);
        if self.used.len().is_multiple_of(LOOK_EVERY) {
            let window = &self.used[self.used.len().saturating_sub(SECOND)..];
            let percent = (window.iter().sum::<f64>() * 100.0).round();
            let charged = (self.charged * 1e9) as u64;
            let seen = CoreReading {
                at: STEP * u32::try_from(self.used.len()).unwrap(),
                used: Some(percent / 100.0),
                usage: Usage { charged, waited: self.waited },
            };
            self.controller.look(seen, self.share);
        }
    }

    /// Its share in every second from the given one on.
    fn seconds(&self, from: usize) -> Vec<f64> {
        self.used.chunks_exact(SECOND).skip(from).map(|second| second.iter().sum()).collect()
    }

    fn mean(&self, from: usize) -> f64 {
        let seconds = self.seconds(from);
        seconds.iter().sum::<f64>() / seconds.len() as f64
    }
}

#[test]
fn a_pod_that_measures_right_has_its_share_from_the_first_second_on() {
    let mut pod = Modelled::new(0.5, 1.0);
    (0..30 * SECOND).for_each(|_| pod.step(1.0));
    assert!((pod.mean(0) - 0.5).abs() < 0.005, "{}", pod.mean(0));
    assert!(pod.seconds(0).iter().all(|share| (share - 0.5).abs() < 0.06), "{:?}", pod.seconds(0));
}

#[test]
fn a_pod_that_was_idle_has_missed_nothing() {
    let mut pod = Modelled::new(0.5, 1.0);
    for _ in 0..5 {
        (0..10 * SECOND).for_each(|_| pod.step(0.1));
        (0..2 * SECOND).for_each(|_| pod.step(1.0));
    }
    assert!(pod.seconds(0).iter().all(|share| *share < 0.57), "{:?}", pod.seconds(0));
}

#[test]
fn a_new_share_holds_within_a_second() {
    let mut pod = Modelled::new(0.8, 1.0);
    (0..10 * SECOND).for_each(|_| pod.step(1.0));
    pod.share = 0.2;
    (0..10 * SECOND).for_each(|_| pod.step(1.0));
    let after = pod.seconds(11);
    assert!(after.iter().all(|share| (share - 0.2).abs() < 0.1), "{after:?}");
    assert!((pod.mean(14) - 0.2).abs() < 0.02, "{after:?}");
}

#[test]
fn without_nvml_the_rate_is_the_share() {
    let mut controller = Controller::new();
    for look in 0..100_u32 {
        let usage = Usage { charged: u64::from(look) * 90_000_000, waited: u64::from(look) };
        controller.look(CoreReading { at: STEP * 10 * look, used: None, usage }, 0.3);
    }
    assert_eq!(controller.rate(0.3).per_second, 300_000_000);
}

proptest! {
    // Of 256 cases one in many runs found a price of 1.046 at a share of 73 %.
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever it charges for its kernels, and though it is late once in every second: two points in the mean, ten in
    /// any second.
    #[test]
    fn a_pod_that_measures_wrong_gets_its_share_all_the_same(
        percent in 3_u32..=95,
        price in 0.3_f64..4.0,
        late in prop::collection::vec((0_usize..90, 0_usize..7), 40),
    ) {
        let share = f64::from(percent) / 100.0;
        let mut pod = Modelled::new(share, price);
        for step in 0..40 * SECOND {
            let (start, length) = late[step / SECOND];
            let is_late = (start..start + length).contains(&(step % SECOND));
            pod.step(if is_late { 0.0 } else { 1.0 });
        }
        let mean = pod.mean(10);
        prop_assert!((mean - share).abs() <= 0.02, "mean {mean} of {share}");
        for second in pod.seconds(10) {
            prop_assert!((second - share).abs() <= 0.1, "{second} of {share}: {:?}", pod.seconds(0));
        }
    }

    /// Whatever a pod wrote into its bucket: the rate stays one that a pod of its share can have.
    #[test]
    fn falsified_charges_give_rates_within_bounds(
        looks in prop::collection::vec((any::<u64>(), any::<u64>(), 0.0_f64..=1.0), 1..100),
        percent in 1_u32..=99,
    ) {
        let share = f64::from(percent) / 100.0;
        let mut controller = Controller::new();
        for (number, (charged, waited, used)) in looks.into_iter().enumerate() {
            let at = STEP * 10 * u32::try_from(number).unwrap();
            let used = Some(used);
            controller.look(CoreReading { at, used, usage: Usage { charged, waited } }, share);
            let rate = controller.rate(share).per_second as f64 / 1e9;
            prop_assert!(rate >= share * LEAST_PART * PRICES.start() * 0.99, "{rate}");
            let most = share - DEBTS.start() / PAY_BACK;
            prop_assert!(rate <= most * PRICES.end() * 1.01, "{rate}");
        }
    }
}
