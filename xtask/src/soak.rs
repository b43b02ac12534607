//! `cargo xtask soak`: the fault run of the tests, for longer.

use std::process::ExitCode;

use crate::step;

/// How the run is to be.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long things are killed, stopped and broken, in seconds; the waits for every pod's turn come on top.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    seconds: u64,
    /// Repeats a run, as far as a seed can; every run prints its own.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

/// Builds, then runs it. Needs root.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("the fault run needs root: its nodes have namespaces and control groups of their own");
        return Ok(ExitCode::FAILURE);
    }
    let dist = gpupool_dist::given_or_built()?;
    let arguments =
        ["test", "--locked", "--package=gpupool", "--test=soak", "--", "--ignored", "--nocapture"];
    let mut test = step::cargo(&arguments)?;
    test.env("GPUPOOL_DIST", dist).env("GPUPOOL_SOAK_SECONDS", options.seconds.to_string());
    if let Some(seed) = options.seed {
        test.env("GPUPOOL_SOAK_SEED", seed.to_string());
    }
    Ok(step::exit_code(test.status()?))
}
