//! Whatever a program calls before it holds a card, it gets the driver's own answer.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use gpupool_shim::table::unhooked::Reason;
use lab::every::{answers, every_name};
use lab::{Lab, Link, simulated};

fn compare(stage: &str, same: impl Fn(&str, Option<Reason>, &str, &str) -> bool) {
    let lab = Lab::new("1xSim-4GB");
    let names = every_name();
    let held = answers(lab.other("every", Link::Nothing), stage, &names);
    let mut bare = lab.other("every", Link::Nothing);
    simulated(&mut bare, lab.folder.path(), &lab.cards);
    let bare = answers(bare, stage, &names);
    assert_eq!(held.len(), names.len());
    let different: Vec<_> = names
        .iter()
        .filter(|(name, reason)| !same(name, *reason, &held[name], &bare[name]))
        .map(|(name, reason)| format!("{name} ({reason:?}): {} instead of {}", held[name], bare[name]))
        .collect();
    assert!(different.is_empty(), "{different:#?}");
}

/// The simulated driver does not carry the function; what a real one says is not known here.
const NOT_CARRIED: &str = "801";

/// Whether an answer is one of CUDA's errors.
fn is_error(answer: &str) -> bool {
    answer.parse::<u32>().is_ok_and(|code| code != 0)
}

#[test]
fn before_the_driver_is_initialised_every_function_answers_as_the_driver_does() {
    compare("untouched", |_, _, held, bare| held == bare || bare == NOT_CARRIED && is_error(held));
}

#[test]
fn before_the_first_grant_every_function_answers_as_an_initialised_driver_does() {
    compare("initialised", |name, reason, held, bare| match reason {
        _ if held == bare => true,
        // Refused by both: nobody can have an object, an address or a context yet.
        Some(Reason::NeedsObject | Reason::InContext) => held == "3" && is_error(bare),
        // Of these the simulated driver says only that it does not carry them.
        Some(_) => bare == NOT_CARRIED && is_error(held),
        // Which of several things that are wrong with a call is told first is the driver's affair.
        None => bare == NOT_CARRIED || held == "201" && is_error(bare) && !name.starts_with("nvml"),
    });
}
