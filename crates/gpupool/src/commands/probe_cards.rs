//! `gpupool probe-cards`: a short-lived child of the agent that opens the CUDA driver and prints what it sees.
//!
//! It is a process of its own because `cuInit` leaves threads, descriptors and a claim on the driver behind,
//! which a long-running agent must not hold.

mod cuda_driver;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `gpupool probe-cards`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CUDA driver's library
    #[arg(long, value_name = "LIBRARY", default_value = "libcuda.so.1")]
    driver: PathBuf,
    /// NVML's library
    #[arg(long, value_name = "LIBRARY", default_value = "libnvidia-ml.so.1")]
    nvml: PathBuf,
}

/// Prints the card table as JSON on standard output.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let probe = cuda_driver::probe(&args.driver, &args.nvml)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&probe)?)?;
    Ok(ExitCode::SUCCESS)
}
