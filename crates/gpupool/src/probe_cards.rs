//! `gpupool probe-cards`: a short-lived child of the agent that opens the CUDA driver and prints what it sees.
//!
//! It is a process of its own because `cuInit` leaves threads, descriptors and a claim on the driver behind,
//! which a long-running agent must not hold.

use std::process::ExitCode;

/// Options of `gpupool probe-cards`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Prints the card table as JSON on standard output.
pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
