//! What happens around a program must not break it: forks, kills of the agent, descriptors that are closed or reused.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;

use lab::agent::{Answer, Heard};
use lab::{Lab, Running, finish, shim};

/// Bytes that the program's code takes on the card, from its first launch on.
const MODULE: u64 = 64 << 10;

#[test]
fn a_child_of_a_fork_starts_from_nothing_under_its_own_number() {
    let lab = Lab::new("1xSim-4GB");
    let said = finish(lab.gpu("init count fork init retain alloc 1000"));
    assert_eq!(said.out, ["init=0", "count=0 1", "init=0", "retain=0", "alloc=0", "child=0"]);
    let pids: Vec<_> = lab
        .agent
        .heard()
        .iter()
        .filter_map(|heard| match heard {
            Heard::Hello { pid, resume: None, .. } => Some(*pid),
            _ => None,
        })
        .collect();
    assert_eq!(pids.len(), 2);
    assert_ne!(pids[0], pids[1]);
}

#[test]
fn parent_and_child_use_the_card_side_by_side() {
    let lab = Lab::new("1xSim-4GB");
    let said = finish(lab.gpu("twin init retain alloc 500000000 launch sync free release"));
    assert_eq!(said.out.iter().filter(|line| line.ends_with("=0")).count(), 14, "{:?}", said.out);
}

#[test]
fn a_child_of_a_program_that_holds_a_card_gets_the_drivers_own_answers() {
    let lab = Lab::new("1xSim-4GB");
    let words = "init retain alloc 4096 fork init alloc 512";
    let held = finish(lab.gpu(words));
    let bare = finish(lab.bare_gpu(words));
    assert_eq!(held.out, bare.out);
    let slot = lab.agent.ledger().slot(0).unwrap();
    assert_eq!(slot.committed(), 4096 + (64 << 20), "the child leaves its parent's slot alone");
}

#[test]
fn an_agent_that_dies_while_a_program_waits_is_waited_for() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Later);
    let mut running = Running::start(lab.gpu("init retain launch"));
    assert_eq!(running.line(), "init=0");
    lab.agent.wait_for(1, |heard| matches!(heard, Heard::Acquire { .. }));
    lab.agent.die();
    std::thread::sleep(std::time::Duration::from_millis(200));
    lab.agent.revive();
    lab.agent.wait_for(2, |heard| matches!(heard, Heard::Acquire { .. }));
    lab.agent.grant(0);
    let said = running.end();
    assert_eq!(said.out, ["retain=0", "launch=0"]);
    assert_eq!(said.err, "gpupool: the agent is away, waiting for it …\n");
}

#[test]
fn a_program_that_starts_while_the_agent_is_away_waits_for_it() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.die();
    let running = Running::start(lab.gpu("init retain"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    lab.agent.revive();
    let said = running.end();
    assert_eq!(said.out, ["init=0", "retain=0"]);
    assert_eq!(said.err, "gpupool: the agent is away, waiting for it …\n");
}

#[test]
fn a_running_program_goes_on_without_the_agent_and_comes_back_with_its_lease() {
    let lab = Lab::new("1xSim-4GB");
    let words = "init retain alloc 1000000 pause alloc 4000000000 alloc 2000000 launch pause alloc 512 pause alloc 512";
    let mut running = Running::start(lab.gpu(words));
    running.until("paused");
    lab.agent.die();
    running.go_on();
    assert_eq!(running.until("paused"), ["alloc=2", "alloc=0", "launch=0"]);
    lab.agent.revive();
    // It looks after its connection at most once a second.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    running.go_on();
    running.until("paused");
    let heard = lab.agent.wait_for(1, |heard| matches!(heard, Heard::Hello { resume: Some(_), .. }));
    assert!(
        heard
            .iter()
            .any(|heard| matches!(heard, Heard::Hello { resume: Some(1), with_descriptor: false, .. })),
        "an agent takes no descriptors: a packet that brings some does not reach it"
    );
    assert_eq!(lab.agent.ledger().charged(), (64 << 20) + MODULE + 1_000_448 + 2_000_384 + 512);
    let said = running.end();
    assert_eq!((said.out, said.err), (vec!["alloc=0".to_owned()], String::new()));
}

#[test]
fn a_lease_that_ended_while_the_agent_was_away_is_reported_later() {
    let lab = Lab::new("1xSim-4GB");
    let mut running = Running::start(lab.gpu("init retain pause release pause retain release"));
    running.until("paused");
    lab.agent.die();
    running.go_on();
    running.until("paused");
    lab.agent.revive();
    assert_eq!(running.end().out, ["retain=0", "release=0"]);
    lab.agent.wait_for(1, |heard| matches!(heard, Heard::Release { .. }));
}

#[test]
fn a_program_that_closes_every_descriptor_keeps_running_within_its_limit() {
    let lab = Lab::new("1xSim-4GB");
    let said = finish(
        lab.gpu("init retain alloc 1000 closeall sleep 1100 alloc 4000000000 alloc 1000 free launch release"),
    );
    assert_eq!(said.out[3..], ["closed", "alloc=2", "alloc=0", "free=0", "launch=0", "release=0"]);
}

#[test]
fn a_descriptor_that_the_program_reuses_is_never_touched() {
    let lab = Lab::new("1xSim-4GB");
    let words = "init retain reuse sleep 1100 alloc 1000 sleep 1100 alloc 1000 free free release mine";
    let said = finish(lab.gpu(words));
    assert_eq!(
        said.out[2..],
        ["reused", "alloc=0", "alloc=0", "free=0", "free=0", "release=0", "mine=4 mine"]
    );
}

#[test]
fn a_process_that_never_uses_the_card_has_nothing_to_show_for_it() {
    let lab = Lab::new("1xSim-4GB");
    let mut command = Command::new("/bin/true");
    command.env("LD_PRELOAD", shim()).env("GPUPOOL_SOCKET", lab.agent.socket());
    finish(command);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ls -l /proc/self/fd | wc -l; grep Threads /proc/self/status"]);
    let bare = finish({
        let mut bare = Command::new("/bin/sh");
        bare.args(["-c", "ls -l /proc/self/fd | wc -l; grep Threads /proc/self/status"]);
        bare
    });
    command.env("LD_PRELOAD", shim()).env("GPUPOOL_SOCKET", lab.agent.socket());
    let held = finish(command);
    assert_eq!((held.out, held.err), (bare.out, String::new()));
    assert!(lab.agent.heard().is_empty());
}

#[test]
fn a_gpu_program_has_no_more_threads_and_its_descriptors_are_high_and_closed_on_exec() {
    let lab = Lab::new("1xSim-4GB");
    let mut running = Running::start(lab.gpu("init retain pause"));
    running.until("paused");
    let process = format!("/proc/{}", running.child.id());
    assert_eq!(fs::read_dir(format!("{process}/task")).unwrap().count(), 1);
    let mut sockets = 0;
    for entry in fs::read_dir(format!("{process}/fd")).unwrap() {
        let path = entry.unwrap().path();
        let number: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let is_socket = fs::metadata(&path).is_ok_and(|file| file.file_type().is_socket());
        let is_ledger =
            fs::read_link(&path).is_ok_and(|name| name.to_string_lossy().contains("memfd:ledger"));
        if is_socket || is_ledger {
            sockets += 1;
            assert!(number >= 512, "{number}");
            let info = fs::read_to_string(format!("{process}/fdinfo/{number}")).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            let flags = u32::from_str_radix(flags, 8).unwrap();
            assert_ne!(flags & 0o2_000_000, 0, "not closed on exec");
        }
    }
    assert_eq!(sockets, 2, "the connection and the ledger");
    running.end();
}

#[test]
fn a_killed_program_disturbs_nobody() {
    let lab = Lab::new("1xSim-4GB");
    for round in 0..10 {
        let mut running = Running::start(lab.gpu("init retain alloc 1000000000 fill 1048576 launch"));
        for _ in 0..round % 5 {
            running.line();
        }
        let pid = running.kill();
        if lab.agent.heard().iter().any(|heard| matches!(heard, Heard::Hello { pid: one, .. } if *one == pid))
        {
            lab.agent.bury(pid);
        }
    }
    assert_eq!(lab.agent.ledger().charged(), 0);
    assert_eq!(finish(lab.gpu("init retain alloc 2000000000")).out[2], "alloc=0");
}

#[test]
fn an_older_driver_is_an_older_driver_under_the_shim_too() {
    let lab = Lab::new("1xSim-4GB");
    let run = |mut command: Command| {
        command.env("SIMGPU_FAULTS", "driver=11040").env("GPU_RESOLVE", "proc");
        finish(command).out
    };
    let words = "version init retain alloc 4096 launch free";
    assert_eq!(run(lab.gpu(words)), run(lab.bare_gpu(words)));
}

#[test]
fn errors_of_the_driver_reach_the_program_and_charge_nothing() {
    let lab = Lab::new("1xSim-4GB");
    let mut command = lab.gpu("init retain alloc 4096 alloc 4096 free launch info");
    command.env("SIMGPU_FAULTS", "cuMemAlloc_v2=2@1,cuMemFree_v2=700@1");
    let said = finish(command);
    // What could not be freed is still there, and still charged.
    let limit = lab.agent.limits().memory_bytes;
    let info = format!("info=0 {} {limit}", limit - (64 << 20) - MODULE - 4096);
    assert_eq!(said.out[2..], ["alloc=2", "alloc=0", "free=700", "launch=0", &info]);
    let mut command = lab.gpu("init retain retain release");
    command.env("SIMGPU_FAULTS", "cuDevicePrimaryCtxRetain=2@1");
    assert_eq!(finish(command).out[1..], ["retain=2", "retain=0", "release=0"]);
    let mut command = lab.gpu("init retain retain");
    command.env("SIMGPU_FAULTS", "cuInit=999@1");
    assert_eq!(finish(command).out, ["init=0", "retain=999", "retain=0"]);
}
