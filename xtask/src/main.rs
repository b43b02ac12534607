//! What a newcomer or a developer types: `cargo xtask demo`, `cargo xtask test` and the rest.
//!
//! This room starts other programs and reads what they print. It knows how the project is built, laid out and
//! measured; it takes no decision of the product and no other room knows it.

mod test;

mod bench;
mod clients;
mod cluster;
mod dependencies;
mod device_check;
mod fuzz;
mod lab;
mod soak;

mod machine;
mod setup;

mod step;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests, measures and shows gpupool.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds what it needs and runs `gpupool demo`: four programs share two simulated cards.
    Demo,
    /// Builds everything and runs every check, or the named parts: formatting, lints, docs, tests, clients.
    Test {
        /// What to run; everything when none is named.
        parts: Vec<test::Part>,
    },
    /// Builds everything as it is installed and lays it out in `target/dist`.
    Dist,
    /// Runs unmodified GPU clients with and without gpupool and compares.
    Clients {
        /// On the simulated driver alone, to work on that driver.
        #[arg(long)]
        bare: bool,
    },
    /// Records what a GPU's driver does and runs the shim on it; rehearsed on the simulated card.
    DeviceCheck(device_check::Options),
    /// Keeps a real Kubernetes control plane for people to try things on.
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Runs the published lab "sandbox workloads" on a real control plane.
    Lab(lab::Options),
    /// Measures the design's bars; prints both sides of each.
    Bench {
        /// What to measure; everything when none is named.
        groups: Vec<bench::Group>,
        #[command(flatten)]
        length: bench::Length,
    },
    /// Kills, stops and breaks what 20 pods on 4 cards depend on, for ten minutes, on real kubelets.
    Soak(soak::Options),
    /// Feeds broken input to every decoder and reports what is answered wrongly.
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    run(Arguments::parse().task).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(task: Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Demo => demo(),
        Task::Test { parts } => Ok(test::run(&parts)),
        Task::Clients { bare: false } => {
            clients::check(&gpupool_dist::given_or_built()?).map(|()| ExitCode::SUCCESS)
        }
        Task::Clients { bare: true } => {
            clients::check_bare(&gpupool_dist::given_or_built()?).map(|()| ExitCode::SUCCESS)
        }
        Task::DeviceCheck(options) => device_check::run(&options),
        Task::Cluster(action) => cluster::run(action),
        Task::Lab(options) => lab::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Bench { groups, length } => bench::run(&groups, &length).map(|()| ExitCode::SUCCESS),
        Task::Soak(options) => soak::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Dist => Ok(gpupool_dist::build().map(|_| ExitCode::SUCCESS)?),
    }
}

/// Builds what a demo needs and runs it; its exit code is ours.
fn demo() -> anyhow::Result<ExitCode> {
    let dist = gpupool_dist::build_for_demo()?;
    let status = gpupool_dist::command(dist.join("bin/gpupool"))?.arg("demo").status()?;
    Ok(step::exit_code(status))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_first_stage_says_of_every_task_what_is_said_here() {
        let tasks = Arguments::command();
        let line = |task: &clap::Command| {
            format!("{:<12}  {}", task.get_name(), task.get_about().unwrap_or_default())
        };
        let said: Vec<String> = tasks.get_subcommands().map(line).collect();
        assert_eq!(include_str!("../dist/tasks.txt").lines().collect::<Vec<_>>(), said);
    }
}
