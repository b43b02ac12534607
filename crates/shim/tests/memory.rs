//! Memory is charged to the pod, to the byte, over all of its processes, and comes back.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use lab::agent::Heard;
use lab::{Lab, Running, finish, simulated};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 64 * MIB;

/// What the driver itself says is used on the first card, asked without the shim.
fn used_on_card(lab: &Lab) -> u64 {
    let mut command = lab.tools("init at 0 memory");
    simulated(&mut command, lab.folder.path(), &lab.cards);
    let said = finish(command);
    let words: Vec<_> = said.out[2].split(' ').collect();
    words[3].parse().unwrap()
}

/// A program that has done `words` and waits.
fn paused(lab: &Lab, words: &str) -> Running {
    let mut running = Running::start(lab.gpu(&format!("{words} pause")));
    running.until("paused");
    running
}

#[test]
fn one_process_can_fill_the_limit_to_the_last_byte() {
    let lab = Lab::new("1xSim-4GB");
    let limit = lab.agent.limits().memory_bytes;
    let rest = limit - CONTEXT;
    let said =
        finish(lab.gpu(&format!("init retain alloc {} alloc {rest} alloc 1 info free alloc 512", rest + 1)));
    let info = format!("info=0 0 {limit}");
    assert_eq!(said.out, ["init=0", "retain=0", "alloc=2", "alloc=0", "alloc=2", &info, "free=0", "alloc=0"]);
}

#[test]
fn an_absurd_size_is_out_of_memory_as_the_driver_says_it() {
    let lab = Lab::new("1xSim-4GB");
    let words = format!("init retain alloc {} alloc 0", u64::MAX);
    assert_eq!(finish(lab.gpu(&words)).out, finish(lab.bare_gpu(&words)).out);
}

#[test]
fn two_processes_share_one_limit() {
    let lab = Lab::new("1xSim-4GB");
    let limit = lab.agent.limits().memory_bytes;
    let first = paused(&lab, &format!("init retain alloc {}", 1024 * MIB));
    let rest = limit - 1024 * MIB - 2 * CONTEXT;
    let words = format!("init retain alloc {} alloc {rest} alloc 1 free", rest + 1);
    let second = finish(lab.gpu(&words));
    assert_eq!(second.out, ["init=0", "retain=0", "alloc=2", "alloc=0", "alloc=2", "free=0"]);
    assert_eq!(
        lab.agent.ledger().charged(),
        used_on_card(&lab) + CONTEXT,
        "the dead process is not buried yet"
    );
    first.end();
}

#[test]
fn processes_that_race_for_the_rest_get_exactly_what_there_is() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.change(|limits| limits.memory_bytes = 8 * CONTEXT + 1000 * MIB);
    let running: Vec<_> =
        (0..8).map(|_| Running::start(lab.gpu("init retain pause fill 1048576 pause"))).collect();
    let mut running: Vec<_> = running
        .into_iter()
        .map(|mut one| {
            one.until("paused");
            one
        })
        .collect();
    running.iter_mut().for_each(Running::go_on);
    let got: u64 = running.iter_mut().map(|one| one.until("paused")[0][5..].parse::<u64>().unwrap()).sum();
    assert_eq!(got, 1000);
    assert_eq!(lab.agent.ledger().charged(), 8 * CONTEXT + 1000 * MIB);
    assert_eq!(used_on_card(&lab), 8 * CONTEXT + 1000 * MIB);
    for one in running {
        one.end();
    }
}

#[test]
fn what_a_killed_process_held_is_there_for_the_next() {
    let lab = Lab::new("1xSim-4GB");
    let first = paused(&lab, "init retain alloc 1500000000");
    assert_eq!(finish(lab.gpu("init retain alloc 1500000000")).out[2], "alloc=2");
    let held = lab.agent.ledger().charged();
    let pid = first.kill();
    assert!(lab.agent.bury(pid) > 1_500_000_000);
    assert!(lab.agent.ledger().charged() < held - 1_500_000_000);
    assert_eq!(finish(lab.gpu("init retain alloc 1500000000")).out[2], "alloc=0");
}

#[test]
fn every_family_is_charged_what_the_driver_takes_and_given_back() {
    for words in [
        "alloc 1000",
        "alloc 512 alloc 513",
        "managed 3000000",
        "pitch 1000 700",
        "alloc 4096 free alloc 12345678",
        "async 5000000 sync",
        "async 1000 async 40000000 sync",
    ] {
        let lab = Lab::new("1xSim-4GB");
        let mut running = paused(&lab, &format!("init retain {words} pause reset"));
        assert_eq!(lab.agent.ledger().charged(), used_on_card(&lab), "{words}");
        assert!(lab.agent.ledger().charged() > CONTEXT, "{words}");
        running.go_on();
        running.until("paused");
        running.end();
    }
}

#[test]
fn every_family_stops_at_the_limit() {
    for words in ["alloc 2200000000", "managed 2200000000", "pitch 1000000 2200", "async 2200000000"] {
        let lab = Lab::new("1xSim-4GB");
        let said = finish(lab.gpu(&format!("init retain {words} sync info")));
        assert!(said.out[2].contains("=2"), "{words}: {:?}", said.out);
        let free = lab.agent.limits().memory_bytes - CONTEXT;
        assert_eq!(said.out[4], format!("info=0 {free} {}", lab.agent.limits().memory_bytes), "{words}");
    }
}

#[test]
fn pool_memory_may_be_freed_by_either_call_and_plain_memory_as_the_driver_allows() {
    let lab = Lab::new("1xSim-4GB");
    let words = "init retain async 1000000 free alloc 1000000 freeasync sync trim";
    let said = finish(lab.gpu(&format!("{words} info")));
    assert_eq!(said.out[..8], finish(lab.bare_gpu(words)).out);
    let refused = said.out[5] != "freeasync=0";
    let still = if refused { 1_000_448 } else { 0 };
    let limit = lab.agent.limits().memory_bytes;
    assert_eq!(said.out[8], format!("info=0 {} {limit}", limit - CONTEXT - still), "{:?}", said.out);
}

#[test]
fn an_address_that_nobody_allocated_gets_the_drivers_own_answer() {
    let lab = Lab::new("1xSim-4GB");
    let words = "init retain alloc 4096 freewrong free";
    assert_eq!(finish(lab.gpu(words)).out, finish(lab.bare_gpu(words)).out);
}

#[test]
fn a_context_takes_its_memory_with_it() {
    let lab = Lab::new("1xSim-4GB");
    let limit = lab.agent.limits().memory_bytes;
    let said = finish(lab.gpu("init retain create alloc 500000000 alloc 600000000 destroy info"));
    assert_eq!(said.out.last().unwrap(), &format!("info=0 {} {limit}", limit - CONTEXT), "{:?}", said.out);
}

#[test]
fn contexts_are_charged_and_refused_like_any_memory() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.change(|limits| limits.memory_bytes = 3 * CONTEXT);
    let said = finish(lab.gpu("init retain retain create create create destroy create release release"));
    let expected = [
        "init=0",
        "retain=0",
        "retain=0",
        "create=0",
        "create=0",
        "create=2",
        "destroy=0",
        "create=0",
        "release=0",
        "release=0",
    ];
    assert_eq!(said.out, expected);
}

#[test]
fn a_limit_lowered_below_what_is_held_leaves_nothing_free_and_breaks_nothing() {
    let lab = Lab::new("1xSim-4GB");
    let mut running =
        Running::start(lab.gpu("init retain alloc 1000000000 pause info alloc 512 free info alloc 512"));
    running.until("paused");
    lab.agent.change(|limits| limits.memory_bytes = 500_000_000);
    running.go_on();
    let free = 500_000_000 - CONTEXT;
    let said = running.end();
    let info = format!("info=0 {free} 500000000");
    assert_eq!(said.out, ["info=0 0 500000000", "alloc=2", "free=0", &info, "alloc=0"]);
}

#[test]
fn the_lease_ends_with_the_last_context_and_the_next_asks_for_the_same_card() {
    let lab = Lab::new("2xSim-4GB");
    let said = finish(lab.gpu("init retain alloc 1000 free release create table destroy retain release"));
    assert!(said.out.iter().all(|line| line.ends_with("=0") || line.starts_with("table")), "{:?}", said.out);
    let all = lab.agent.wait_for(3, |heard| matches!(heard, Heard::Release { .. }));
    let heard: Vec<_> = all.into_iter().filter(|heard| !matches!(heard, Heard::Hello { .. })).collect();
    let pids: Vec<_> = heard
        .iter()
        .map(|heard| match heard {
            Heard::Acquire { pid, .. } | Heard::Release { pid } | Heard::Hello { pid, .. } => *pid,
        })
        .collect();
    let pid = pids[0];
    let round = |only| [Heard::Acquire { pid, only }, Heard::Release { pid }];
    assert_eq!(heard, [round(false), round(true), round(true)].concat());
}

#[test]
fn the_lease_stays_while_memory_is_held() {
    let lab = Lab::new("1xSim-4GB");
    finish(lab.gpu("init create create alloc 1000 destroy"));
    assert!(!lab.agent.heard().iter().any(|heard| matches!(heard, Heard::Release { .. })));
}

#[test]
fn tools_in_the_pod_see_what_the_pod_uses() {
    let lab = Lab::new("1xSim-4GB");
    let running = paused(&lab, "init retain alloc 1048576");
    let (limit, used) = (lab.agent.limits().memory_bytes, CONTEXT + MIB);
    let said = finish(lab.tools("init at 0 memory memory2"));
    let free = limit - used;
    assert_eq!(
        said.out[2..],
        [format!("memory=0 {limit} {free} {used}"), format!("memory2=0 {limit} 0 {free} {used}"),]
    );
    running.end();
}

#[test]
fn launches_leave_their_mark_for_the_agent() {
    let lab = Lab::new("1xSim-4GB");
    let mut running = Running::start(lab.gpu("init retain pause launch pause launch launch pause"));
    running.until("paused");
    let ledger = lab.agent.ledger();
    let slot = ledger.slot(0).unwrap();
    assert!(!slot.take_submitted());
    for _ in 0..2 {
        running.go_on();
        running.until("paused");
        assert!(slot.take_submitted());
        assert!(!slot.take_submitted());
    }
    assert_eq!(slot.contexts(), 1);
    running.end();
}

#[test]
fn errno_is_left_alone() {
    let lab = Lab::new("1xSim-4GB");
    let said = finish(lab.gpu("init retain errno 4096 errno 9000000000"));
    assert_eq!(said.out[2..], ["errno=0 77", "errno=2 77"]);
}

#[test]
fn threads_and_processes_that_allocate_at_once_leave_an_exact_ledger() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.change(|limits| limits.memory_bytes = 1000 * MIB);
    let mut running: Vec<_> =
        (0..3).map(|_| Running::start(lab.gpu("init storm retain alloc 700 pause"))).collect();
    for one in &mut running {
        assert_eq!(one.until("paused"), ["init=0", "storm=0", "retain=0", "alloc=0"]);
    }
    assert_eq!(lab.agent.ledger().charged(), 3 * (CONTEXT + 1024));
    assert_eq!(used_on_card(&lab), 3 * (CONTEXT + 1024));
    for one in running {
        one.end();
    }
}

#[test]
fn contexts_that_come_and_go_in_many_threads_never_lose_the_lease() {
    let lab = Lab::new("1xSim-4GB");
    let said = finish(lab.gpu("init contexts"));
    assert_eq!(said.out, ["init=0", "contexts=0"]);
    assert_eq!(lab.agent.ledger().charged(), 0);
    let count = |heard: &[Heard], which: fn(&Heard) -> bool| heard.iter().filter(|one| which(one)).count();
    lab.agent.wait_until(|heard| {
        let acquired = count(heard, |one| matches!(one, Heard::Acquire { .. }));
        acquired >= 1 && acquired == count(heard, |one| matches!(one, Heard::Release { .. }))
    });
}
