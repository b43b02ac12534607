//! `gpupool probe-cards`: a short-lived child of the agent that opens the CUDA driver and prints what it sees.
//!
//! It is a process of its own because `cuInit` leaves threads, descriptors and a claim on the driver behind,
//! which a long-running agent must not hold.

mod cuda_driver;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use gpupool_agent::cards::watch::driver_and_busy_cards;

/// Options of `gpupool probe-cards`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CUDA driver's library
    #[arg(long, value_name = "LIBRARY", default_value = "libcuda.so.1")]
    driver: PathBuf,
    /// NVML's library
    #[arg(long, value_name = "LIBRARY", default_value = "libnvidia-ml.so.1")]
    nvml: PathBuf,
    /// The driver's version, as NVML names it, with which --measured was measured
    #[arg(long, value_name = "VERSION", default_value = "")]
    measured_with: String,
    /// Cards of which it is known what a context takes, by UUID and with commas between them
    #[arg(long, value_name = "UUIDS", default_value = "")]
    measured: String,
}

/// Prints the card table as JSON on standard output.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let seen = driver_and_busy_cards(&args.nvml);
    let same_driver = seen.as_ref().is_some_and(|(driver, _)| *driver == args.measured_with);
    let known = |card: &str| same_driver && args.measured.split(',').any(|known| known == card);
    // Somebody who computes may have been promised all that is free there.
    let busy = |card: &str| seen.as_ref().is_none_or(|(_, busy)| busy.contains(card));
    let mut probe = cuda_driver::probe(&args.driver, &args.nvml, |card| !known(card) && !busy(card))?;
    probe.driver = seen.map(|(driver, _)| driver);
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&probe)?)?;
    Ok(ExitCode::SUCCESS)
}
