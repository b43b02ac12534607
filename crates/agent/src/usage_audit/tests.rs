//! The check's decisions, against a naive second version that keeps every look.

use gpupool_core::pool::PodId;
use proptest::prelude::*;

use super::*;

const MEBIBYTE: u64 = 1 << 20;

fn process(pid: u32, mebibytes: Option<u64>) -> GpuProcess {
    GpuProcess { pid, card: "GPU-0".into(), bytes: mebibytes.map(|count| count * MEBIBYTE) }
}

fn reading(held: &[Option<u64>], not_held: &[Option<u64>], counted: Option<u64>, limit: u64) -> Reading {
    let of = |first: u32, list: &[Option<u64>]| -> Vec<GpuProcess> {
        (first..).zip(list).map(|(pid, taken)| process(pid, *taken)).collect()
    };
    Reading {
        pod: "A".into(),
        held: of(100, held),
        not_held: of(200, not_held).into_iter().map(|it| (it, WhyNotHeld::PastTheShim)).collect(),
        counted: counted.map(|count| count * MEBIBYTE),
        lease: Some(("GPU-0".into(), limit * MEBIBYTE)),
    }
}

/// What is found in looks at one pod, look by look.
fn found(readings: &[Reading]) -> Vec<Vec<Finding>> {
    let mut accounts = Accounts::default();
    readings.iter().map(|reading| accounts.look(std::slice::from_ref(reading), &[])).collect()
}

fn bytes() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![9 => (0..400_u64).prop_map(Some), 1 => Just(None)]
}

fn readings() -> impl Strategy<Value = Vec<Reading>> {
    let processes = || proptest::collection::vec(bytes(), 0..3);
    let one = (processes(), processes(), bytes(), 0..400_u64)
        .prop_map(|(held, not_held, counted, limit)| reading(&held, &not_held, counted, limit));
    proptest::collection::vec(one, 1..40)
}

/// What the ledger does not count, in the last looks up to `now`: least seen over most counted.
fn lasting(looks: &[Reading]) -> Option<(u64, u64)> {
    let last = looks.get(looks.len().checked_sub(LOOKS)?..)?;
    let seen = last.iter().map(Reading::seen).collect::<Option<Vec<_>>>()?.into_iter().min()?;
    let counted = last.iter().map(|look| look.counted).collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some((seen, counted))
}

proptest! {
    #[test]
    fn an_excess_is_found_exactly_when_it_has_lasted_and_again_only_after_it_was_over(looks in readings()) {
        let mut said = false;
        for (number, findings) in found(&looks).into_iter().enumerate() {
            let past = &looks[..=number];
            let excess = lasting(past).is_some_and(|(seen, counted)| seen > counted + TOLERANCE);
            let began = findings.iter().any(|it| matches!(it, Finding::Unaccounted { .. }));
            prop_assert_eq!(began, excess && !said, "look {}", number);
            said = (said || began) && !findings.iter().any(|it| matches!(it, Finding::Accounted { .. }));
        }
    }

    #[test]
    fn a_pod_is_over_its_limit_exactly_when_nvml_has_shown_so_whatever_its_ledger_counts(looks in readings()) {
        for (number, findings) in found(&looks).into_iter().enumerate() {
            let last = &looks[(number + 1).saturating_sub(LOOKS)..=number];
            let is_over = |look: &Reading| {
                let limit = look.lease.as_ref().map_or(0, |(_, limit)| *limit);
                look.seen().is_some_and(|seen| seen > limit + TOLERANCE)
            };
            let expected = last.len() == LOOKS && last.iter().all(is_over);
            let over = findings.iter().any(|it| matches!(it, Finding::OverLimit { .. }));
            prop_assert_eq!(over, expected, "look {}", number);
        }
    }

    #[test]
    fn a_ledger_that_counts_all_but_the_tolerance_is_never_doubted(
        looks in proptest::collection::vec((1..5_usize, 0..1000_u64, 0..=64_u64), 1..40)
    ) {
        let looks: Vec<Reading> = looks
            .into_iter()
            .map(|(count, taken, slack)| {
                // Together they take a little more than they are charged.
                let mut held = vec![Some(taken); count];
                held[0] = Some(taken + slack);
                reading(&held, &[], Some(taken * count as u64), 10_000)
            })
            .collect();
        prop_assert!(found(&looks).concat().is_empty());
    }

    #[test]
    fn what_is_not_held_is_said_once_for_as_long_as_there_is_any(looks in readings()) {
        let mut said = false;
        for (number, findings) in found(&looks).into_iter().enumerate() {
            let last = looks[..=number].iter().rev().take(LOOKS);
            // Process ids are given in order, so who was there in all looks is told by the smallest number.
            let lasting = if number + 1 < LOOKS { 0 } else { last.map(|it| it.not_held.len()).min().unwrap_or(0) };
            said &= !looks[number].not_held.is_empty();
            let now = findings.iter().filter(|it| matches!(it, Finding::NotHeld { .. })).count();
            prop_assert_eq!(now, usize::from(lasting > 0 && !said), "look {}", number);
            said |= now > 0;
        }
    }
}

#[test]
fn an_excess_that_comes_and_goes_with_the_allocations_is_none() {
    // NVML saw a block that was freed before the ledger was read, every other time.
    let looks: Vec<Reading> =
        (0..40).map(|n| reading(&[Some(if n % 2 == 0 { 900 } else { 300 })], &[], Some(300), 900)).collect();
    assert_eq!(found(&looks).concat(), []);
}

#[test]
fn a_look_without_figures_starts_the_count_again() {
    let over = || reading(&[Some(900)], &[], Some(300), 400);
    let blind = || reading(&[None], &[], Some(300), 400);
    let kinds: Vec<usize> =
        found(&[over(), over(), blind(), over(), over(), over()]).iter().map(Vec::len).collect();
    assert_eq!(kinds, [0, 0, 0, 0, 0, 2], "unaccounted and over the limit, once it has lasted");
}

#[test]
fn many_small_processes_are_no_excuse_for_a_large_one() {
    let mut held = vec![Some(50); 20];
    held.push(Some(900));
    let looks = vec![reading(&held, &[], Some(1900), 1000); LOOKS];
    let over = Finding::OverLimit {
        pod: "A".into(),
        taken: Taken { seen: 1900 * MEBIBYTE, limit: 1000 * MEBIBYTE },
    };
    assert_eq!(found(&looks).concat(), [over]);
}

#[test]
fn memory_of_another_card_than_the_leased_one_is_over_the_limit() {
    let mut elsewhere = reading(&[Some(100), Some(100)], &[], Some(200), 1000);
    elsewhere.held[1].card = "GPU-1".into();
    let over = Finding::OverLimit { pod: "A".into(), taken: Taken { seen: 100 * MEBIBYTE, limit: 0 } };
    assert_eq!(found(&vec![elsewhere; LOOKS]).concat(), [over]);
}

#[test]
fn a_stranger_is_said_once_and_belongs_to_no_pod() {
    let mut accounts = Accounts::default();
    let stranger = process(7, Some(512));
    let findings: Vec<Finding> =
        (0..10).flat_map(|_| accounts.look(&[], std::slice::from_ref(&stranger))).collect();
    assert_eq!(findings, [Finding::Stranger(stranger.clone())]);
    assert_eq!(findings[0].to_string(), "process 7 of no pod uses card GPU-0 and takes 512 MiB there");
    accounts.look(&[], &[]);
    let again: Vec<Finding> =
        (0..LOOKS).flat_map(|_| accounts.look(&[], std::slice::from_ref(&stranger))).collect();
    assert_eq!(again, [Finding::Stranger(stranger)], "it went and came back");
}

#[test]
fn a_pod_that_was_dealt_with_is_looked_at_afresh() {
    let mut accounts = Accounts::default();
    let over = reading(&[], &[Some(900)], Some(0), 0);
    let look = |accounts: &mut Accounts| accounts.look(std::slice::from_ref(&over), &[]).len();
    assert_eq!([look(&mut accounts), look(&mut accounts), look(&mut accounts)], [0, 0, 3]);
    accounts.forget(&PodId::from("A"));
    assert_eq!([look(&mut accounts), look(&mut accounts), look(&mut accounts)], [0, 0, 3]);
}

#[test]
fn the_sentences_say_who_and_how_much() {
    let over = Finding::OverLimit { pod: "A".into(), taken: Taken { seen: 900 * MEBIBYTE, limit: 0 } };
    assert_eq!(over.to_string(), "A takes 900 MiB of a card and holds no lease");
    let not_held =
        Finding::NotHeld { pod: "A".into(), process: process(7, None), why: WhyNotHeld::StaticProgram };
    assert_eq!(
        not_held.to_string(),
        "process 7 of A uses a card and is not held: it is a static program, into which nothing can be preloaded"
    );
}
