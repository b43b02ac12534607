//! Profilers: a library that the driver loads inside `cuInit`, and that calls the driver from there. It finds what it finds
//! without the shim, and its program goes on.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::process::Command;

use lab::agent::{Answer, Heard};
use lab::{Lab, Link, Running, Said, finish};

/// The program with the library in it, which calls from a thread of its own where `thread` is set.
fn injected(lab: &Lab, mut command: Command, thread: bool) -> Command {
    command.env("CUDA_INJECTION64_PATH", lab::program(lab.folder.path(), "injection", Link::Shared));
    if thread {
        command.env("INJECTION_THREAD", "1");
    }
    command
}

/// What the library said, and what the program said.
fn apart(said: Said) -> (Vec<String>, Vec<String>) {
    said.out.into_iter().partition(|line| !line.contains('='))
}

#[test]
fn a_library_that_the_driver_loads_may_call_it_from_there() {
    for thread in [false, true] {
        for words in ["init retain alloc 1048576 info launch sync", "init table retain info", "init threads"]
        {
            let lab = Lab::new("1xSim-4GB");
            let (library, program) = apart(finish(injected(&lab, lab.gpu(words), thread)));
            let (bare, _) = apart(finish(injected(&lab, lab.bare_gpu(words), thread)));
            assert_eq!(bare.first().map(String::as_str), Some("injected"), "{bare:?}");
            assert_eq!(bare.last().map(String::as_str), Some("went on"), "{bare:?}");
            assert_eq!(library, bare, "{words}");
            let plain = Lab::new("1xSim-4GB");
            assert_eq!(program, finish(plain.gpu(words)).out, "{words}");
        }
    }
}

#[test]
fn what_such_a_library_takes_and_gives_back_is_off_the_account() {
    let lab = Lab::new("1xSim-4GB");
    let mut running = Running::start(injected(&lab, lab.gpu("init retain pause"), false));
    running.until("went on");
    assert_eq!(running.line(), "retain=0");
    let (plain, with) = (Lab::new("1xSim-4GB"), lab.agent.ledger().charged());
    let mut other = Running::start(plain.gpu("init retain pause"));
    other.until("retain=0");
    assert_eq!(with, plain.agent.ledger().charged());
    running.end();
    other.end();
}

#[test]
fn other_threads_wait_for_the_start_and_one_asks() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Later);
    let mut running = Running::start(injected(&lab, lab.gpu("init threads"), false));
    assert_eq!(running.line(), "init=0");
    lab.agent.grant(0);
    running.until("threads=0");
    let acquires = lab.agent.heard().iter().filter(|heard| matches!(heard, Heard::Acquire { .. })).count();
    assert_eq!(acquires, 1);
    running.end();
}
