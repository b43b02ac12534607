//! The core limit of a pod, by the account that its processes keep: what is charged, and who waits.
//!
//! Nothing here depends on how fast the machine is: a launch that must wait does so for at least the time that its
//! pod owes, and one that need not is not seen to have waited.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::process::Command;
use std::time::{Duration, Instant};

use gpupool_wire::bucket::{Rate, Usage};
use lab::{Lab, Link, Running, finish};
use rustix::time::{ClockId, clock_gettime};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// A part of the card, with no rights kept.
fn percent(percent: u64) -> Rate {
    Rate { per_second: percent * SECOND / 100, burst: 0 }
}

/// A machine whose kernels take a millisecond each, and whose pod has this rate.
fn lab(rate: Rate) -> Lab {
    let lab = Lab::new("1");
    lab.agent.change(|limits| limits.core_rate = rate);
    lab
}

fn launches(lab: &Lab, words: &str) -> Command {
    let mut command = lab.other("launches", Link::Nothing);
    command.env("SIMGPU_KERNEL_TIME", "1ms").args(words.split_whitespace());
    command
}

fn usage(lab: &Lab) -> Usage {
    lab.agent.ledger().bucket().usage()
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * SECOND + u64::try_from(now.tv_nsec).unwrap()
}

/// So much device time was charged; what events measure is exact where nobody else uses the card.
fn assert_charged(lab: &Lab, milliseconds: u64) {
    let charged = usage(lab).charged;
    let wanted = milliseconds * MILLISECOND;
    assert!(charged.abs_diff(wanted) <= wanted / 50, "{charged} ns were charged, not {wanted}");
}

/// Waits until somebody waits for the limit.
fn wait_for_a_waiter(lab: &Lab) {
    let (start, before) = (Instant::now(), usage(lab).waited);
    while usage(lab).waited == before {
        assert!(start.elapsed() < Duration::from_mins(1), "nobody waits for the limit");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn with_the_whole_card_nothing_is_charged_and_nobody_waits() {
    let lab = lab(Rate::UNLIMITED);
    let said = finish(launches(&lab, "kernel 100 capture 10 graph 5 cooperative 5 ex 5 sync"));
    assert!(said.out.iter().all(|line| line.ends_with("=0")), "{:?}", said.out);
    assert_eq!(usage(&lab), Usage::default());
}

#[test]
fn every_way_to_launch_is_charged_what_it_takes() {
    for way in ["kernel", "cooperative", "ex", "kernel_ptsz", "cooperative_ptsz", "ex_ptsz"] {
        let lab = lab(percent(90));
        let said = finish(launches(&lab, &format!("{way} 40 sync {way} 1")));
        assert_eq!(said.out, [format!("{way}=0"), "sync=0".to_owned(), format!("{way}=0")], "{way}");
        assert_charged(&lab, 41);
    }
}

#[test]
fn a_pod_waits_for_its_share_and_no_longer_than_it_owes() {
    let lab = lab(percent(20));
    let start = Instant::now();
    finish(launches(&lab, "kernel 60 sync"));
    // The last launch begins when all before it are paid for, at five times their own time.
    assert!(start.elapsed() >= Duration::from_millis(59 * 5 - 5), "{:?}", start.elapsed());
    assert_charged(&lab, 60);
}

#[test]
fn a_graph_is_charged_for_all_of_its_kernels() {
    for way in ["graph", "graph_ptsz"] {
        let lab = lab(percent(90));
        let said = finish(launches(&lab, &format!("capture 10 {way} 6 sync {way} 1")));
        assert_eq!(
            said.out,
            ["capture=0".to_owned(), format!("{way}=0"), "sync=0".to_owned(), format!("{way}=0")]
        );
        // The card may pause between two kernels of a graph, when the machine is busy: more is right too.
        let charged = usage(&lab).charged;
        assert!((70 * MILLISECOND..7000 * MILLISECOND).contains(&charged), "{charged}");
    }
}

#[test]
fn nothing_in_a_capture_waits_or_is_charged_however_much_is_owed() {
    let lab = lab(percent(50));
    lab.agent.ledger().bucket().settle(now(), 60 * SECOND, percent(50));
    let before = usage(&lab);
    let said = finish(launches(&lab, "capture 200 mode"));
    assert_eq!(said.out, ["capture=0", "mode=0"]);
    assert_eq!(usage(&lab), before);
}

#[test]
fn a_capture_in_one_thread_is_not_spoilt_by_measurements_in_another() {
    let lab = lab(percent(90));
    assert_eq!(finish(launches(&lab, "beside 30 mode")).out, ["beside=0", "mode=0"]);
    assert!(usage(&lab).charged >= 20 * MILLISECOND, "{:?}", usage(&lab));
}

#[test]
fn all_processes_of_a_pod_pay_into_one_account() {
    let lab = lab(percent(40));
    let start = Instant::now();
    let both = [(); 2].map(|()| Running::start(launches(&lab, "kernel 50 sync")));
    for mut process in both {
        process.until("sync=0");
        process.child.wait().unwrap();
    }
    // Each process has one kernel that it does not know the cost of before it has run.
    assert!(start.elapsed() >= Duration::from_millis(98 * 5 / 2 - 5), "{:?}", start.elapsed());
    assert!(usage(&lab).charged >= 99 * MILLISECOND);
}

#[test]
fn a_limit_that_comes_while_a_program_runs_holds_from_then_on() {
    let lab = lab(Rate::UNLIMITED);
    let mut program = Running::start(launches(&lab, "kernel 20 pause kernel 20 pause kernel 20 sync"));
    program.until("paused");
    assert_eq!(usage(&lab).charged, 0);
    lab.agent.change(|limits| limits.core_rate = percent(50));
    // What the agent does once a second.
    assert!(lab.agent.ledger().slot(0).unwrap().take_submitted());
    program.go_on();
    program.until("paused");
    let limited = usage(&lab);
    assert!(limited.charged >= 18 * MILLISECOND && limited.waited > 0, "{limited:?}");
    lab.agent.change(|limits| limits.core_rate = Rate::UNLIMITED);
    program.go_on();
    program.until("sync=0");
    program.child.wait().unwrap();
    assert_eq!(usage(&lab), limited);
}

#[test]
fn a_waiting_program_hears_of_a_new_rate() {
    let lab = lab(percent(1));
    lab.agent.ledger().bucket().settle(now(), 5 * SECOND, percent(1));
    let mut program = Running::start(launches(&lab, "kernel 1"));
    wait_for_a_waiter(&lab);
    let start = Instant::now();
    lab.agent.change(|limits| limits.core_rate = Rate::UNLIMITED);
    program.until("kernel=0");
    assert!(start.elapsed() < Duration::from_mins(2), "it went on waiting for the old rate's debt");
    program.child.wait().unwrap();
}

#[test]
fn the_last_rate_holds_while_the_agent_is_away() {
    let lab = lab(percent(20));
    let mut program = Running::start(launches(&lab, "kernel 1 sync pause kernel 40 sync"));
    program.until("paused");
    lab.agent.die();
    let start = Instant::now();
    program.go_on();
    program.until("sync=0");
    program.child.wait().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(39 * 5 - 5), "{:?}", start.elapsed());
    assert_charged(&lab, 41);
}

#[test]
fn a_process_killed_while_it_waits_leaves_the_pod_in_order() {
    let lab = lab(percent(10));
    lab.agent.ledger().bucket().settle(now(), 6 * SECOND, percent(10));
    let mut victim = Running::start(launches(&lab, "kernel 1"));
    wait_for_a_waiter(&lab);
    victim.child.kill().unwrap();
    victim.child.wait().unwrap();
    let left = usage(&lab);
    // The debt is the pod's, so the next process waits for it, and goes through when there is none any more.
    let mut next = Running::start(launches(&lab, "kernel 3 sync"));
    wait_for_a_waiter(&lab);
    lab.agent.change(|limits| limits.core_rate = Rate { per_second: SECOND, burst: u64::MAX });
    assert_eq!(lab.agent.ledger().bucket().usage().charged, left.charged);
    lab.agent.change(|limits| limits.core_rate = Rate::UNLIMITED);
    next.until("sync=0");
    next.child.wait().unwrap();
}

#[test]
fn where_the_driver_refuses_events_launches_count_as_an_estimate() {
    for fault in ["cuEventCreate=999", "cuEventRecord=400", "cuEventQuery=999", "cuEventElapsedTime=999"] {
        let lab = lab(percent(90));
        let mut command = launches(&lab, "kernel 50 sync kernel 1");
        command.env("SIMGPU_FAULTS", fault);
        assert_eq!(finish(command).out, ["kernel=0", "sync=0", "kernel=0"], "{fault}");
        let charged = usage(&lab).charged;
        // 100 µs each; those whose measurement was still under way when the program ended are not charged.
        assert!((4 * MILLISECOND..6 * MILLISECOND).contains(&charged), "{fault}: {charged}");
    }
}

#[test]
fn launches_that_cannot_be_are_refused_as_without_the_shim() {
    let bare = {
        let lab = lab(Rate::UNLIMITED);
        let mut command = launches(&lab, "wrong");
        command.env_remove("LD_PRELOAD");
        finish(command).out
    };
    let lab = lab(percent(50));
    assert_eq!(finish(launches(&lab, "wrong kernel 3 wrong")).out, [&bare[0], "kernel=0", &bare[0]]);
}

#[test]
fn contexts_come_and_go_with_measurements_under_way() {
    let lab = lab(percent(90));
    let words = "context kernel 5 leave context kernel 5 leave context kernel 5 sync leave";
    let said = finish(launches(&lab, words));
    assert!(said.out.iter().all(|line| line.ends_with("=0")), "{:?}", said.out);
}
