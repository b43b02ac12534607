//! What processes do to each other through the shared cards: fill them, die on them, lose them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::exit, clippy::print_stdout, reason = "a test program")]
#![allow(missing_debug_implementations, missing_docs, unreachable_pub, reason = "a test program")]

mod membership;
mod memory;
mod runner;
mod segments;
mod state_file;
mod time;

fn main() -> std::process::ExitCode {
    let suites = [
        memory::SCENARIOS,
        membership::SCENARIOS,
        state_file::SCENARIOS,
        time::SCENARIOS,
        segments::SCENARIOS,
    ];
    let scenarios: Vec<_> = suites.into_iter().flatten().copied().collect();
    runner::main(&scenarios)
}
