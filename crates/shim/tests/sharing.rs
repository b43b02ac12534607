//! Memory that processes share is charged once to their pod, for as long as any of them has it, however they end.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use lab::{Lab, Link, Running, finish, simulated};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 64 * MIB;
const SHARED: u64 = 100 * MIB;
const KINDS: [&str; 2] = ["physical", "ipc"];

/// What the driver itself says is used on the card, asked without the shim.
fn used_on_card(lab: &Lab) -> u64 {
    let mut command = lab.tools("init at 0 memory");
    simulated(&mut command, lab.folder.path(), &lab.cards);
    let said = finish(command);
    let words: Vec<_> = said.out[2].split(' ').collect();
    words[3].parse().unwrap()
}

/// Starts a process that makes the memory; `bare` leaves it out of the pod.
fn owner(lab: &Lab, kind: &str, bare: bool) -> Running {
    start(lab, "owner", kind, bare)
}

/// Starts a process that takes the memory from its owner.
fn taker(lab: &Lab, kind: &str, owner: &mut Running) -> Running {
    owner.tell("serve");
    let taker = start(lab, "taker", kind, false);
    assert_eq!(owner.line(), "served=0");
    taker
}

fn start(lab: &Lab, role: &str, kind: &str, bare: bool) -> Running {
    let mut command = lab.other("sharing", Link::Nothing);
    if bare {
        simulated(&mut command, lab.folder.path(), &lab.cards);
    }
    command.args([role, kind]).arg(lab.folder.path().join("meeting"));
    let mut running = Running::start(command);
    assert_eq!(running.line(), "ready=0", "{role} of {kind} memory");
    running
}

fn give(running: &mut Running) {
    running.tell("give");
    assert_eq!(running.line(), "gave=0");
}

/// The ledger and the card agree on this many bytes.
fn both_say(lab: &Lab, bytes: u64, when: &str) {
    assert_eq!((lab.agent.ledger().charged(), used_on_card(lab)), (bytes, bytes), "{when}");
}

#[test]
fn who_takes_memory_of_its_own_pod_is_not_charged_again() {
    for kind in KINDS {
        let lab = Lab::new("1xSim-4GB");
        let mut owner = owner(&lab, kind, false);
        let mut takers = [taker(&lab, kind, &mut owner), taker(&lab, kind, &mut owner)];
        both_say(&lab, 3 * CONTEXT + SHARED, kind);
        takers.iter_mut().for_each(give);
        both_say(&lab, 3 * CONTEXT + SHARED, kind);
        give(&mut owner);
        both_say(&lab, 3 * CONTEXT, kind);
    }
}

#[test]
fn memory_stays_charged_until_the_last_process_lets_go_of_it() {
    for kind in KINDS {
        let lab = Lab::new("1xSim-4GB");
        lab.agent.change(|limits| limits.memory_bytes = 2 * CONTEXT + SHARED + 50 * MIB);
        let mut owner = owner(&lab, kind, false);
        let mut taker = taker(&lab, kind, &mut owner);
        give(&mut owner);
        both_say(&lab, 2 * CONTEXT + SHARED, kind);
        owner.tell(&format!("take {}", 51 * MIB));
        assert_eq!(owner.line(), "took=2", "{kind}");
        give(&mut taker);
        owner.tell(&format!("take {}", 51 * MIB));
        assert_eq!(owner.line(), "took=0", "{kind}");
        both_say(&lab, 2 * CONTEXT + 51 * MIB, kind);
    }
}

#[test]
fn a_killed_owner_leaves_the_charge_to_who_still_has_the_memory() {
    for kind in KINDS {
        let lab = Lab::new("1xSim-4GB");
        let mut owner = owner(&lab, kind, false);
        let takers = [taker(&lab, kind, &mut owner), taker(&lab, kind, &mut owner)];
        lab.agent.bury(owner.kill());
        both_say(&lab, 2 * CONTEXT + SHARED, kind);
        let [first, second] = takers;
        lab.agent.bury(first.kill());
        both_say(&lab, CONTEXT + SHARED, kind);
        lab.agent.bury(second.kill());
        both_say(&lab, 0, kind);
    }
}

#[test]
fn physical_memory_from_outside_the_pod_is_charged_once_to_it() {
    let lab = Lab::new("1xSim-4GB");
    let mut owner = owner(&lab, "physical", true);
    let mut takers = [taker(&lab, "physical", &mut owner), taker(&lab, "physical", &mut owner)];
    assert_eq!(lab.agent.ledger().charged(), 2 * CONTEXT + SHARED);
    give(&mut takers[0]);
    assert_eq!(lab.agent.ledger().charged(), 2 * CONTEXT + SHARED);
    give(&mut takers[1]);
    assert_eq!(lab.agent.ledger().charged(), 2 * CONTEXT);
}
