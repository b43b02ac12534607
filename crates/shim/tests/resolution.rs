//! However a program finds its functions, it finds what it would find without the shim, and the hooks where they belong.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::process::Command;

use gpupool_headers::{Headers, Release};
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

/// Every name that there is and some that there are not, each with the versions that brought a variant of it and some
/// others, with every way to ask for a default stream and one flag that there is not.
fn questions() -> String {
    let headers = Headers::fetch().unwrap();
    let known =
        [Release::Cuda12, Release::Cuda13].into_iter().flat_map(|r| headers.driver_functions(r).unwrap());
    let known = known.map(|function| (function.base, function.version));
    let strangers = ["cuNoSuchThing", "cuMemAlloc_v2", "cuMemAlloc_v9", "cu", "_v2", "nvmlInit_v2", "dlsym"];
    let strangers = strangers.map(|name| (name.to_owned(), 12_000));
    let pairs: BTreeSet<_> = known
        .chain(strangers)
        .flat_map(|(name, version)| {
            [0, version - 10, version, 11_040, 13_050, 99_000].map(|version| (name.clone(), version))
        })
        .collect();
    pairs.iter().fold(String::new(), |mut lines, (name, version)| {
        for flags in [0, 1, 2, 4] {
            writeln!(lines, "{name} {version} {flags}").unwrap();
        }
        lines
    })
}

/// What a resolver answers to all of that, on a driver with these faults, with the shim and without.
fn answers(resolver: &str, faults: &str) -> (Vec<String>, Vec<String>) {
    let lab = Lab::new("1xSim-4GB");
    let list = lab.folder.path().join("questions");
    std::fs::write(&list, questions()).unwrap();
    let ask = |mut command: Command| {
        command.arg(resolver).env("SIMGPU_FAULTS", faults).stdin(File::open(&list).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let mut bare = lab.other("ask", Link::Nothing);
    simulated(&mut bare, lab.folder.path(), &lab.cards);
    (ask(lab.other("ask", Link::Nothing)), ask(bare))
}

#[test]
fn cu_get_proc_address_finds_the_same_variant_of_every_name_for_every_version_and_flag() {
    for (resolver, faults) in [
        ("cuGetProcAddress_v2", ""),
        ("cuGetProcAddress_v2_ptsz", ""),
        ("cuGetProcAddress", ""),
        // Drivers that do not know every name that this library has a row for.
        ("cuGetProcAddress_v2", "driver=12000"),
        ("cuGetProcAddress", "driver=11040"),
    ] {
        let (held, bare) = answers(resolver, faults);
        let different: Vec<_> = held.iter().zip(&bare).filter(|(held, bare)| held != bare).take(20).collect();
        assert!(different.is_empty(), "{resolver} {faults}: {different:#?}");
        assert_eq!(held.len(), bare.len());
        let found =
            held.iter().filter(|line| !line.ends_with("nothing") && !line.ends_with("another")).count();
        assert!(held.len() == 1 || found > 1000, "{resolver} {faults}: {found} found, {:?}", held.first());
    }
}
