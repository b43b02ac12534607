//! Every family of calls that takes device memory is held to the limit by the byte, from one process, two and eight,
//! and after kills: what the driver itself says is used is never more than the limit, and is what the ledger says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]
#![allow(clippy::print_stdout, reason = "the table is for people")]

mod lab;

use std::fmt;

use lab::{Lab, Link, Running, finish, simulated};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 64 * MIB;
const OUT_OF_MEMORY: &str = "2";

/// A family, and how much of the limit may stay unused beside a piece: its granule, or what its pool grows by. What is
/// refused is refused for want of room, not of anything else.
struct Family {
    name: &'static str,
    /// Bytes of a piece.
    piece: u64,
    /// Bytes that a piece takes at most beyond that.
    more: u64,
}

const fn family(name: &'static str, piece: u64, more: u64) -> Family {
    Family { name, piece, more }
}

const FAMILIES: [Family; 20] = [
    family("plain", 7 * MIB + 100, 512),
    family("pitched", 8 * MIB, 512),
    family("managed", 8 * MIB, 512),
    family("array", 6 * MIB, 64 << 10),
    family("array-3d", 9 * MIB, MIB),
    family("mipmapped", 12 * MIB, 5 * MIB),
    family("stream-ordered", 5 * MIB, 32 * MIB),
    family("stream-ordered-ptsz", 5 * MIB, 32 * MIB),
    family("pool", 12 * MIB, 32 * MIB),
    family("physical", 8 * MIB, 0),
    family("mapped", 10 * MIB, 0),
    family("retained", 6 * MIB, 0),
    family("graph", 12 * MIB, 32 * MIB),
    family("captured-graph", 12 * MIB, 32 * MIB),
    family("context", CONTEXT, 0),
    family("external", 11 * MIB, 512),
    family("sparse-array", 6 * MIB, 0),
    family("green-context", CONTEXT, 0),
    family("heap", 10 * MIB, 0),
    family("module", 16 * MIB, MIB),
];

/// One line of the table that the test prints.
struct Outcome {
    family: &'static str,
    processes: usize,
    limit: u64,
    took: u64,
    card: u64,
    ledger: u64,
    survivors: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = self.card.saturating_sub(self.limit);
        write!(
            f,
            "{:<20} {:>9} {:>12} {:>6} {:>12} {:>12} {:>10} {:>12}",
            self.family, self.processes, self.limit, self.took, self.card, self.ledger, over, self.survivors
        )
    }
}

/// What the driver itself says is used on the card, asked without the shim.
fn used_on_card(lab: &Lab) -> u64 {
    let mut command = lab.tools("init at 0 memory");
    simulated(&mut command, lab.folder.path(), &lab.cards);
    let said = finish(command);
    let words: Vec<_> = said.out[2].split(' ').collect();
    words[3].parse().unwrap()
}

fn start(lab: &Lab, family: &Family) -> Running {
    let mut command = lab.other("families", Link::Nothing);
    command.args([family.name, &family.piece.to_string(), "4096"]);
    Running::start(command)
}

/// The program's next line, which must begin so; what comes after it.
fn said(running: &mut Running, what: &str) -> String {
    let line = running.line();
    line.strip_prefix(what).unwrap_or_else(|| panic!("{line:?} instead of {what:?}")).to_owned()
}

/// Lets `processes` programs take all they can at the same time, kills every second one, and lets the others go on.
fn hold(family: &Family, processes: usize) -> Outcome {
    let lab = Lab::new("1xSim-4GB");
    // Not a multiple of anything.
    let limit = processes as u64 * CONTEXT + 333 * MIB + 12_345;
    lab.agent.change(|limits| limits.memory_bytes = limit);
    let mut all: Vec<_> = (0..processes).map(|_| start(&lab, family)).collect();
    for one in &mut all {
        assert_eq!(said(one, "ready="), "0", "{}", family.name);
    }
    all.iter_mut().for_each(Running::go_on);
    let mut took = 0;
    for one in &mut all {
        let line = said(one, "took=");
        let (count, code) = line.split_once(" code=").unwrap();
        assert_eq!(code, OUT_OF_MEMORY, "{}: {line}", family.name);
        took += count.parse::<u64>().unwrap();
    }
    let (card, ledger) = (used_on_card(&lab), lab.agent.ledger().charged());
    // What several processes load at the same time is measured, and each other's loads falsify that.
    let measured = ["green-context", "module"].contains(&family.name);
    let exact = !measured || processes == 1;
    let room = (family.piece + family.more) * processes as u64;
    let most = if exact { limit } else { limit + room };
    assert!(card <= most, "{}: {card} bytes are used of {limit}", family.name);
    assert!(!exact || ledger == card, "{}: {took} pieces, {ledger} in the ledger, {card} used", family.name);
    assert!(!exact || limit - card < room, "{}: {} stay unused", family.name, limit - card);

    // Every second one is killed; what it held is there for the others. A single one goes on.
    let mut alive = Vec::new();
    for (place, one) in all.into_iter().enumerate() {
        if place % 2 == 1 {
            let pid = one.kill();
            lab.agent.bury(pid);
        } else {
            alive.push(one);
        }
    }
    let survivors = used_on_card(&lab);
    let charged = lab.agent.ledger().charged();
    assert!(!exact || charged == survivors, "{}: after the kills {charged} for {survivors}", family.name);
    for one in &mut alive {
        one.go_on();
        assert_eq!(said(one, "gave="), "0", "{}", family.name);
    }
    let contexts = alive.len() as u64 * CONTEXT;
    assert_eq!(used_on_card(&lab), contexts, "{}: given back", family.name);
    assert_eq!(lab.agent.ledger().charged(), contexts, "{}: given back", family.name);
    for one in &mut alive {
        one.go_on();
        assert_eq!(said(one, "again="), "0", "{}", family.name);
    }
    assert_eq!(lab.agent.ledger().charged(), used_on_card(&lab), "{}: again", family.name);
    for one in alive {
        one.end();
    }
    Outcome { family: family.name, processes, limit, took, card, ledger, survivors }
}

fn table(processes: usize) {
    let head = ["family", "processes", "limit", "took", "card", "ledger", "over", "after kills"];
    println!(
        "{:<20} {:>9} {:>12} {:>6} {:>12} {:>12} {:>10} {:>12}",
        head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]
    );
    for family in &FAMILIES {
        println!("{}", hold(family, processes));
    }
}

#[test]
fn one_process_stops_at_the_limit_in_every_family() {
    table(1);
}

#[test]
fn two_processes_stop_at_the_limit_together_in_every_family() {
    table(2);
}

#[test]
fn eight_processes_stop_at_the_limit_together_in_every_family() {
    table(8);
}
