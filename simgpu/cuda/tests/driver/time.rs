//! Device time is shared by all processes of the machine.

use simgpu_device::{Machine, now_ns};

use crate::{
    api::{Handle, NOT_READY, SUCCESS, cu, empty_kernel, get, launch, start},
    runner::{Peer, Scenario, pause, role, say},
};

const MS: u64 = 1_000_000;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "two_processes_need_the_sum_of_their_times", env: TIMES, run: sum },
    Scenario {
        name: "a_short_kernel_does_not_wait_for_the_end_of_another_processs_long_one",
        env: TIMES,
        run: turns,
    },
    Scenario { name: "a_killed_process_leaves_no_work_behind", env: TIMES, run: killed },
    Scenario { name: "time_by_grid_grows_with_the_blocks", env: BY_GRID, run: by_grid },
];

const TIMES: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "empty=5ms,minute=60s,second=1s")];
const BY_GRID: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "grid:1ms")];

fn kernel(name: &str) -> Handle {
    let text = format!(".version 8.0 .target sm_75 .address_size 64 .visible .entry {name}() {{ ret; }}\0");
    let module: Handle = get!(cuModuleLoadData(text.as_ptr().cast()));
    let name = std::ffi::CString::new(name).unwrap();
    get!(cuModuleGetFunction(module, name.as_ptr()))
}

fn sum() {
    let _context = start();
    let kernel = empty_kernel();
    let work = || {
        for _ in 0..20 {
            assert_eq!(launch(kernel, 0), SUCCESS);
        }
        assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    };
    if role() == "worker" {
        say("ready");
        pause();
        work();
        say("done");
        pause();
        return;
    }
    let mut peer = Peer::start("worker", &[]);
    peer.expect("ready");
    let begun = now_ns();
    peer.go_on();
    work();
    peer.expect("done");
    assert!(now_ns() >= begun + 200 * MS, "{} ns for 200 ms of work", now_ns() - begun);
}

fn turns() {
    let _context = start();
    if role() == "long" {
        assert_eq!(launch(kernel("minute"), 0), SUCCESS);
        say("launched");
        pause();
        return;
    }
    let mut peer = Peer::start("long", &[]);
    peer.expect("launched");
    let begun = now_ns();
    assert_eq!(launch(empty_kernel(), 0), SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    // Its minute is not over, by far.
    assert!(now_ns() < begun + 30_000 * MS);
    // It goes on working meanwhile.
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    let other = card.processes().into_iter().find(|one| one.pid == Some(peer.pid())).unwrap();
    assert!(other.contexts == 1 && card.busy_ns() > 0);
}

fn killed() {
    let _context = start();
    if role() == "long" {
        for _ in 0..100 {
            assert_eq!(launch(kernel("minute"), 0), SUCCESS);
        }
        say("launched");
        pause();
        return;
    }
    let peers: Vec<_> = (0..5).map(|_| Peer::start("long", &[])).collect();
    for mut peer in peers {
        peer.expect("launched");
        peer.kill();
    }
    let begun = now_ns();
    assert_eq!(launch(empty_kernel(), 0), SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    assert!(now_ns() < begun + 30_000 * MS);
}

fn by_grid() {
    let _context = start();
    let kernel = empty_kernel();
    let none = std::ptr::null_mut();
    let begun = now_ns();
    assert_eq!(cu!(cuLaunchKernel(kernel, 10, 3, 1, 1, 1, 1, 0, 0, none, none)), SUCCESS);
    let query = cu!(cuStreamQuery(0));
    assert!(query == NOT_READY || now_ns() > begun + 30 * MS);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    assert!(now_ns() >= begun + 30 * MS);
}
