//! Device time is shared by all processes of the machine.

use simgpu_device::{Machine, now_ns, sleep_until};

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
    Scenario { name: "processes_have_equal_turns_however_short_their_kernels", env: MIXED, run: equal_turns },
    Scenario { name: "events_around_work_measure_it_and_not_the_wait_before_it", env: MIXED, run: true_time },
    Scenario { name: "time_by_grid_grows_with_the_blocks", env: BY_GRID, run: by_grid },
];

const TIMES: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "empty=5ms,minute=60s,second=1s")];
const MIXED: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "short=20us,middle=1ms,long=50ms")];
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

/// Keeps the card busy with a kernel until it is killed.
fn flood(name: &str) {
    let (kernel, event) = (kernel(name), get!(cuEventCreate(2)));
    for round in 0_u32.. {
        assert_eq!(launch(kernel, 0), SUCCESS);
        if round == 1 {
            say("busy");
        }
        if round % 256 == 255 {
            assert_eq!(cu!(cuEventRecord(event, 0)), SUCCESS);
            assert_eq!(cu!(cuEventSynchronize(event)), SUCCESS);
        }
    }
}

fn equal_turns() {
    let _context = start();
    if !role().is_empty() {
        flood(&role());
    }
    let mut peers: Vec<_> = ["short", "long", "short", "long"].map(|role| Peer::start(role, &[])).into();
    for peer in &mut peers {
        peer.expect("busy");
    }
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    // Three seconds of the card's time: a quarter for each, and more than half of that however the machine runs.
    let mut shares = [0_u32; 4];
    for _ in 0..6 {
        sleep_until(now_ns() + 500 * MS);
        let processes = card.processes_since(now_ns() - 500 * MS);
        for (share, peer) in shares.iter_mut().zip(&peers) {
            *share += processes.iter().find(|one| one.pid == Some(peer.pid())).unwrap().utilisation;
        }
    }
    let all: u32 = shares.iter().sum();
    assert!(shares.iter().all(|share| share * 8 > all), "{shares:?} of {all}");
}

fn true_time() {
    let _context = start();
    if role() == "long" {
        flood("long");
    }
    let middle = kernel("middle");
    let (first, second): (Handle, Handle) = (get!(cuEventCreate(0)), get!(cuEventCreate(0)));
    let measure = || {
        let mut time = 0.0_f32;
        assert_eq!(cu!(cuEventRecord(first, 0)), SUCCESS);
        assert_eq!(launch(middle, 0), SUCCESS);
        assert_eq!(cu!(cuEventRecord(second, 0)), SUCCESS);
        assert_eq!(cu!(cuEventSynchronize(second)), SUCCESS);
        assert_eq!(cu!(cuEventElapsedTime_v2(&raw mut time, first, second)), SUCCESS);
        assert!((time - 1.0).abs() < 1e-5, "{time} ms");
    };
    (0..3).for_each(|_| measure());
    // The other one's turns are not in it.
    let mut peer = Peer::start("long", &[]);
    peer.expect("busy");
    (0..3).for_each(|_| measure());
    // An event that nothing follows happens all the same.
    assert_eq!(cu!(cuEventRecord(first, 0)), SUCCESS);
    assert_eq!(cu!(cuEventSynchronize(first)), SUCCESS);
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
