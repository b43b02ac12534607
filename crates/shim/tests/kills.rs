//! A process may be killed at any step of taking memory and giving it back: the ledger never says less than the card,
//! and afterwards exactly what it says without that process.
//!
//! The library under test is built with points at which it stops itself; so a test knows where it is when it is killed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use lab::{Lab, Link, Running, Step, dist, finish, simulated};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 64 * MIB;

/// Families whose memory is announced before the driver takes it. What is measured afterwards is not among them.
const FAMILIES: [&str; 18] = [
    "plain",
    "pitched",
    "managed",
    "array",
    "array-3d",
    "mipmapped",
    "stream-ordered",
    "stream-ordered-ptsz",
    "pool",
    "physical",
    "mapped",
    "retained",
    "graph",
    "captured-graph",
    "context",
    "external",
    "sparse-array",
    "heap",
];

/// Steps of an allocation and of a release, as the library names them.
const POINTS: [&str; 7] =
    ["reserving", "reserved", "calling", "called", "committed", "releasing", "released"];

/// How often each point is passed before the process stops there.
const TIMES: u32 = 6;

/// What the driver itself says is used on the card, asked without the shim.
fn used_on_card(lab: &Lab) -> u64 {
    let mut command = lab.tools("init at 0 memory");
    simulated(&mut command, lab.folder.path(), &lab.cards);
    let said = finish(command);
    let words: Vec<_> = said.out[2].split(' ').collect();
    words[3].parse().unwrap()
}

/// Has a process take two pieces of a family, give them back and take one again; stops it at a point and kills it there. Whether it got so far.
fn kill_at(lab: &Lab, family: &str, point: &str, times: u32) -> bool {
    let what = format!("{family} at {point}, time {times}");
    let mut command = lab.other("families", Link::Nothing);
    command
        .args([family, &(10 * MIB).to_string(), "2"])
        .env("LD_PRELOAD", dist().join("tests/libgpupool.so"))
        .env("GPUPOOL_STOP", format!("{point}@{times}"));
    let mut running = Running::start(command);
    (0..4).for_each(|_| running.go_on());
    if running.next_step() == Step::Ended {
        let pid = running.child.id();
        assert!(running.end().out.ends_with(&["again=0".to_owned()]), "{what}");
        lab.agent.bury(pid);
        return false;
    }
    let (ledger, card) = (lab.agent.ledger().charged(), used_on_card(lab));
    assert!(ledger >= card, "{what}: {card} bytes are used and {ledger} charged");
    lab.agent.bury(running.kill());
    assert_eq!((lab.agent.ledger().charged(), used_on_card(lab)), (0, 0), "{what}");
    true
}

/// Kills processes of a family at every point; how many.
fn kill_everywhere(family: &str) -> usize {
    let lab = Lab::new("1xSim-4GB");
    let mut killed = 0;
    for point in POINTS {
        let times = (0..TIMES).take_while(|times| kill_at(&lab, family, point, *times)).count();
        killed += times;
    }
    // Nothing of them stands in the way of who comes next.
    let rest = lab.agent.limits().memory_bytes - CONTEXT;
    let said = finish(lab.gpu(&format!("init retain alloc {rest} free")));
    assert_eq!(said.out, ["init=0", "retain=0", "alloc=0", "free=0"], "{family}");
    killed
}

#[test]
fn a_process_killed_at_any_step_leaves_the_ledger_right() {
    for family in FAMILIES {
        let killed = kill_everywhere(family);
        assert!(killed >= 8, "{family}: only {killed} processes got to a point");
    }
}
