//! The one binary of gpupool. Subcommands, their options and what they print; nothing is decided here.

mod cli;
mod probe_cards;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
