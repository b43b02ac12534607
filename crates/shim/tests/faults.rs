//! A driver that refuses any call, or whose card is gone, is the same driver under the shim: the program gets its codes,
//! and the ledger says what is so.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::collections::BTreeMap;
use std::process::Command;

use gpupool_shim::table::Entry;
use gpupool_shim::table::unhooked::Reason;
use lab::every::{answers, every_name};
use lab::{Lab, Link, Running, finish, simulated};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 64 * MIB;
/// `CUDA_ERROR_LAUNCH_FAILED`: no call of these tests fails so by itself.
const FAILED: &str = "719";

/// What every function of the driver answers in a program that holds a card, when it is given zeros: under the shim
/// and without it. `prepare` orders faults.
fn both(stage: &str, prepare: impl Fn(&mut Command)) -> Vec<(String, String, String)> {
    let lab = Lab::new("1xSim-4GB");
    // Every call is made by a process of its own, and they are all buried at the end.
    lab.agent.change(|limits| limits.memory_bytes = 1 << 40);
    let names: Vec<(String, Option<Reason>)> =
        every_name().into_iter().filter(|(name, _)| name.starts_with("cu")).collect();
    let mut command = lab.other("every", Link::Nothing);
    prepare(&mut command);
    let held = answers(command, stage, &names);
    let mut command = lab.other("every", Link::Nothing);
    simulated(&mut command, lab.folder.path(), &lab.cards);
    command.env("SIMGPU_STATE", lab.folder.path().join("bare"));
    prepare(&mut command);
    let bare: BTreeMap<_, _> = answers(command, stage, &names);
    lab.agent.bury_all();
    assert_eq!(lab.agent.ledger().charged(), 0);
    assert_eq!(held.len(), names.len());
    names.into_iter().map(|(name, _)| (name.clone(), held[&name].clone(), bare[&name].clone())).collect()
}

fn same(answers: Vec<(String, String, String)>) {
    let different: Vec<_> = answers.into_iter().filter(|(_, held, bare)| held != bare).collect();
    assert!(different.is_empty(), "name, under the shim, without it: {different:#?}");
}

#[test]
fn null_pointers_and_zeros_get_the_drivers_own_codes() {
    same(both("current", |_| {}));
}

#[test]
fn a_lost_card_is_lost_to_every_call() {
    same(both("lost", |command| {
        command.env("SIMGPU_FAULTS", "cuCtxSynchronize=lose@1");
    }));
}

#[test]
fn a_driver_that_refuses_every_call_is_heard_at_every_entry_point() {
    let mut faults = Vec::new();
    for entry in Entry::all().filter(|entry| entry.name().to_bytes().starts_with(b"cu")) {
        let name = entry.name().to_str().unwrap();
        faults.push(match name {
            "cuInit" => continue,
            // The program's own first calls go well.
            "cuDevicePrimaryCtxRetain" | "cuCtxSetCurrent" | "cuMemAlloc_v2" => format!("{name}={FAILED}@2"),
            _ => format!("{name}={FAILED}"),
        });
    }
    same(both("current", |command| {
        command.env("SIMGPU_FAULTS", faults.join(","));
    }));
}

/// By family: what takes its memory, and what gives it back.
const FAMILIES: [(&str, &str, &str); 15] = [
    ("plain", "cuMemAlloc_v2", "cuMemFree_v2"),
    ("pitched", "cuMemAllocPitch_v2", "cuMemFree_v2"),
    ("managed", "cuMemAllocManaged", "cuMemFree_v2"),
    ("array", "cuArrayCreate_v2", "cuArrayDestroy"),
    ("mipmapped", "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy"),
    ("stream-ordered", "cuMemAllocAsync", "cuMemFreeAsync"),
    ("stream-ordered-ptsz", "cuMemAllocAsync_ptsz", "cuMemFreeAsync"),
    ("pool", "cuMemAllocFromPoolAsync", "cuMemFreeAsync"),
    ("physical", "cuMemCreate", "cuMemRelease"),
    ("mapped", "cuMemCreate", "cuMemUnmap"),
    ("graph", "cuGraphInstantiateWithFlags", "cuMemFree_v2"),
    ("captured-graph", "cuGraphLaunch", "cuMemFree_v2"),
    ("context", "cuCtxCreate_v2", "cuCtxDestroy_v2"),
    ("module", "cuModuleLoadData", "cuModuleUnload"),
    ("retained", "cuMemCreate", "cuMemRelease"),
];

fn used_on_card(lab: &Lab) -> u64 {
    let mut command = lab.tools("init at 0 memory");
    simulated(&mut command, lab.folder.path(), &lab.cards);
    let said = finish(command);
    let words: Vec<_> = said.out[2].split(' ').collect();
    words[3].parse().unwrap()
}

/// Has a process take three pieces of a family, with these faults, and gives what it says at each step and what ledger
/// and card say then.
fn lives(family: &str, faults: &str) -> Vec<(String, u64, u64)> {
    let lab = Lab::new("1xSim-4GB");
    let mut command = lab.other("families", Link::Nothing);
    command.args([family, &(10 * MIB).to_string(), "3"]).env("SIMGPU_FAULTS", faults);
    let mut running = Running::start(command);
    assert_eq!(running.line(), "ready=0", "{family}");
    let mut steps = Vec::new();
    for _ in 0..2 {
        running.go_on();
        steps.push((running.line(), lab.agent.ledger().charged(), used_on_card(&lab)));
    }
    steps
}

#[test]
fn memory_that_the_driver_refuses_is_not_charged() {
    for (family, takes, _) in FAMILIES {
        // The first mipmapped array is the one that is only asked what it would take.
        let call = if family == "mipmapped" { 2 } else { 1 };
        let steps = lives(family, &format!("{takes}={FAILED}@{call}"));
        assert_eq!(steps[0].0, format!("took=0 code={FAILED}"), "{family}");
        assert_eq!((steps[0].1, steps[1].1), (steps[0].2, steps[1].2), "{family}: {steps:?}");
        assert!(family.contains("graph") || steps[0].1 == CONTEXT, "{family}: {steps:?}");
    }
}

#[test]
fn memory_that_the_driver_does_not_take_back_stays_charged() {
    for (family, _, gives) in FAMILIES {
        // The second of three, after what the shim asked of an array of each size and what the program let go of before.
        let call = if ["array", "mipmapped", "retained"].contains(&family) { 5 } else { 2 };
        let steps = lives(family, &format!("{gives}={FAILED}@{call}"));
        assert_eq!(steps[1].0, format!("gave={FAILED}"), "{family}: {steps:?}");
        assert!(steps[1].1 > CONTEXT, "{family}: {steps:?}");
        assert_eq!((steps[0].1, steps[1].1), (steps[0].2, steps[1].2), "{family}: {steps:?}");
    }
}
