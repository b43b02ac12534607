//! Many seeds, and for one that fails the shortest life that still shows it.

use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;

use super::invariants::Violation;
use super::{Met, World};

/// Steps of a life before it calms down.
const STEPS: u32 = 300;

/// Seeds of every run of the tests; `GPUPOOL_WORLD_SEEDS` says others: a number of them, or `from..to`.
const SEEDS: Range<u64> = 0..300;

struct Life {
    outcome: Result<Met, (Violation, Option<u32>)>,
    trace: String,
}

/// Lives the steps of a seed, and the calm after them. A failure says after which step.
fn live(seed: u64, steps: &[u32], is_traced: bool) -> Life {
    let mut world = World::new(seed, is_traced);
    let mut lived = || {
        for step in steps {
            let mut random = Rng::with_seed(seed.wrapping_mul(1 << 20) ^ u64::from(*step));
            world.step(&mut random).map_err(|violation| (violation, Some(*step)))?;
        }
        world.calm_down(&mut Rng::with_seed(seed)).map_err(|violation| (violation, None))?;
        Ok(world.met)
    };
    let outcome = lived();
    crate::log::take();
    Life { outcome, trace: world.trace.text() }
}

/// What a failure is about, whichever processes and figures it names.
fn kind_of(violation: &str) -> String {
    let line = violation.lines().next().unwrap_or_default();
    line.chars().filter(|character| !character.is_ascii_digit()).take(60).collect()
}

/// Leaves out whatever is not needed for the failure, in ever smaller pieces.
fn shortest(seed: u64, mut steps: Vec<u32>, violation: &str) -> Vec<u32> {
    let kind = kind_of(violation);
    let fails =
        |steps: &[u32]| live(seed, steps, false).outcome.is_err_and(|(other, _)| kind_of(&other) == kind);
    let mut piece = steps.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() {
            let without: Vec<u32> = steps
                .iter()
                .enumerate()
                .filter(|(place, _)| !(at..at + piece).contains(place))
                .map(|(_, step)| *step)
                .collect();
            if fails(&without) {
                steps = without;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    steps
}

/// What a person reads of a seed that fails.
fn report(seed: u64, violation: &str, last: Option<u32>) -> String {
    let all: Vec<u32> = (0..last.map_or(STEPS, |last| last + 1)).collect();
    let short = shortest(seed, all, violation);
    let life = live(seed, &short, true);
    let Err((violation, _)) = life.outcome else { return "it does not fail again".to_owned() };
    format!("seed {seed}, steps {short:?}:\n{}\n{violation}", life.trace)
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("GPUPOOL_WORLD_SEEDS") else { return SEEDS };
    let number = |text: &str| text.parse().expect("GPUPOOL_WORLD_SEEDS is a number of seeds, or from..to");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}

/// All lives of these seeds, on every processor, until one fails: what they met, or the seed and how it failed.
fn live_all(seeds: &Range<u64>) -> Result<Met, (u64, Violation, Option<u32>)> {
    let all: Vec<u32> = (0..STEPS).collect();
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let live_some = || {
        let mut met = Met::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.load(Ordering::Relaxed) {
                return Ok(met);
            }
            match live(seed, &all, false).outcome {
                Ok(one) => met.add(&one),
                Err((violation, last)) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err((seed, violation, last));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(live_some)).collect();
        let mut met = Met::default();
        for thread in threads {
            met.add(&thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(met)
    })
}

#[test]
fn whatever_happens_nobody_is_let_in_beside_others_and_the_queue_moves() {
    let seeds = seeds();
    if seeds.end - seeds.start == 1 {
        let life = live(seeds.start, &(0..STEPS).collect::<Vec<_>>(), true);
        assert!(life.outcome.is_ok(), "{}\n{:?}", life.trace, life.outcome);
        return eprintln!("{}", life.trace);
    }
    let began = Instant::now();
    match live_all(&seeds) {
        Ok(met) => {
            eprintln!("{} lives in {:.1?}: {met:?}", seeds.end - seeds.start, began.elapsed());
            assert!(met.is_all(), "{met:?}");
        }
        Err((seed, violation, last)) => {
            panic!("seed {seed} fails: {violation}\n{}", report(seed, &violation, last))
        }
    }
}
