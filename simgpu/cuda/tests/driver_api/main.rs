//! The driver API as programs use it, through its C interface. Each scenario is a process of its own: the library reads
//! the environment once, and some scenarios fork, lose their card or fill it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::exit, clippy::print_stdout, reason = "a test program")]
#![allow(missing_debug_implementations, missing_docs, unreachable_pub, reason = "a test program")]

mod addresses;
mod api;
mod arrays;
mod calls;
mod contexts;
mod every_call;
mod faults;
mod graphs;
mod identity;
mod images;
mod ipc;
mod memory;
mod model;
mod other_calls;
mod pools;
#[path = "../../../device/tests/processes/runner.rs"]
mod runner;
mod streams;
mod time;

fn main() -> std::process::ExitCode {
    let suites = [
        identity::SCENARIOS,
        contexts::SCENARIOS,
        memory::SCENARIOS,
        pools::SCENARIOS,
        arrays::SCENARIOS,
        addresses::SCENARIOS,
        ipc::SCENARIOS,
        graphs::SCENARIOS,
        other_calls::SCENARIOS,
        every_call::SCENARIOS,
        model::SCENARIOS,
        streams::SCENARIOS,
        images::SCENARIOS,
        time::SCENARIOS,
        faults::SCENARIOS,
    ];
    let scenarios: Vec<_> = suites.into_iter().flatten().copied().collect();
    runner::main(&scenarios)
}
