//! The one binary of gpupool. Subcommands, their options and what they print; nothing is decided here.

mod cli;

mod commands;

mod stock_source;

mod agent_socket;
#[cfg(feature = "kubernetes")]
mod cluster_access;
mod installation;
mod log_writer;
mod option_values;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::Cli::read().run()
}
