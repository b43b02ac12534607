//! The command line: which subcommands there are, and how their failures leave the program.
//!
//! Each subcommand has a module of its own with an `Args` and a `run`; this room only sends to them.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::probe_cards;

/// What the user typed.
#[derive(Debug, Parser)]
#[command(name = "gpupool", version, about = "Lets programs share GPUs, in turn and side by side")]
#[command(disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads the cards from the CUDA driver and prints them as JSON (the agent calls this).
    #[command(hide = true)]
    ProbeCards(probe_cards::Args),
}

impl Cli {
    /// Runs the subcommand. A failure that has no exit code of its own is printed on standard error and ends with 1.
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::ProbeCards(args) => probe_cards::run(&args),
        };
        outcome.unwrap_or_else(|failure| {
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(std::io::stderr(), "gpupool: {failure:#}");
            ExitCode::FAILURE
        })
    }
}
