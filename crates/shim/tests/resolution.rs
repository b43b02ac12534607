//! However a program finds its functions, it finds what it would find without the shim, and the hooks where they belong.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use lab::{Lab, Link, finish, program, shim, simulated};

#[test]
fn every_resolver_answers_as_it_would_without_the_shim() {
    let lab = Lab::new("1xSim-4GB");
    let held = finish(lab.other("resolve", Link::Nothing));
    let mut bare = lab.other("resolve", Link::Nothing);
    simulated(&mut bare, lab.folder.path(), &lab.cards);
    let bare = finish(bare);
    assert_eq!(held.out, bare.out);
    assert!(held.out.iter().filter(|line| line.ends_with("as by name")).count() >= 15, "{:?}", held.out);
}

#[test]
fn a_process_without_an_agent_gets_the_drivers_own_functions() {
    let lab = Lab::new("1xSim-4GB");
    let mut command = lab.other("resolve", Link::Nothing);
    command.env_remove("GPUPOOL_SOCKET");
    let held = finish(command);
    let mut bare = lab.other("resolve", Link::Nothing);
    simulated(&mut bare, lab.folder.path(), &lab.cards);
    assert_eq!(held.out, finish(bare).out);
}

/// The GPU program, linked or not, with another preload before or after the shim.
fn beside_a_neighbour(linked: bool, before: bool) -> (Vec<String>, String) {
    let lab = Lab::new("1xSim-4GB");
    let words = "init retain alloc 1000 alloc 4000000000 free";
    let mut command = if linked { lab.linked_gpu(words) } else { lab.gpu(words) };
    let neighbour = program(lab.folder.path(), "neighbour", Link::Shared);
    let (ours, theirs) = (shim().display().to_string(), neighbour.display().to_string());
    let list = if before { format!("{theirs}:{ours}") } else { format!("{ours}:{theirs}") };
    command.env("LD_PRELOAD", list).env("NEIGHBOUR_REPORT", "1");
    let said = finish(command);
    (said.out, said.err)
}

#[test]
fn another_preload_that_goes_on_to_the_next_keeps_working() {
    for linked in [false, true] {
        for before in [false, true] {
            let (out, err) = beside_a_neighbour(linked, before);
            assert_eq!(out, ["init=0", "retain=0", "alloc=0", "alloc=2", "free=0"], "{linked} {before}");
            // Before the shim it sees what linked programs call; behind it, the shim goes straight to the driver.
            let seen = if linked && before { 2 } else { 0 };
            assert!(err.contains(&format!("neighbour: {seen} allocations")), "{linked} {before}: {err}");
        }
    }
}
