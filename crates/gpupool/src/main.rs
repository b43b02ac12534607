//! The one binary of gpupool. Subcommands, their options and what they print; nothing is decided here.

mod agent;
mod ask;
mod check_config;
mod cli;
mod cluster_access;
mod control;
mod demo;
mod explain;
mod installation;
mod inventory;
mod names;
mod operands;
mod option_values;
mod probe_cards;
mod run;
mod status;
mod stock_source;
mod stop;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::Cli::read().run()
}
