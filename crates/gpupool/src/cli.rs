//! The command line: which subcommands there are, and how their failures leave the program.
//!
//! Each subcommand has a module of its own with an `Args` and a `run`; this one only dispatches to them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

#[cfg(feature = "kubernetes")]
use crate::commands::control;
use crate::commands::{
    agent, check_config, demo, explain, inventory, names, operands, probe_agent, probe_cards, run, status,
    stop,
};
use crate::{agent_socket, log_writer};

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
    /// Serves this machine's cards, or simulated ones, until it is told to end.
    // Whoever installs the chart can add options and not take any away: the last one counts.
    #[command(args_override_self = true)]
    Agent(agent::Args),
    /// Runs a command whose programs share the cards.
    Run(run::Args),
    /// Shows cards, leases and the queue.
    Status(status::Args),
    /// Ends a pod's processes.
    Stop(stop::Args),
    /// Checks that the nodes of a dump advertise what their workload label says.
    CheckConfig(check_config::Args),
    /// Lists the software that each use of a node brings with it.
    Operands(operands::Args),
    /// Tells what resource names stand for, and what a card or vGPU type will be called.
    Names(names::Args),
    /// Shows the GPU stock per use and resource, and what lies idle beside a waiting queue.
    Inventory(inventory::Args),
    /// Explains why something is as it is.
    Explain(explain::Args),
    /// Shows four programs share two simulated cards; needs no GPU.
    Demo(demo::Args),
    /// A GPU program that ends when its standard input closes (the demo runs four of them).
    #[command(hide = true)]
    DemoProgram(demo::ProgramArgs),
    /// Keeps the cluster's nodes, their conditions and what they advertise in step with what they are for.
    #[cfg(feature = "kubernetes")]
    #[command(args_override_self = true)]
    Control(control::Args),
    /// Reads the cards from the CUDA driver and prints them as JSON (the agent calls this).
    #[command(hide = true)]
    ProbeCards(probe_cards::Args),
    /// Asks whether the agent answers; ends with 1 where it does not (liveness probes call this).
    #[command(hide = true)]
    ProbeAgent(probe_agent::Args),
}

/// What the program is called as a plugin of kubectl.
const PLUGIN: &str = "kubectl-gpupool";

impl Cli {
    /// Reads the command line. Called as kubectl calls its plugins, the usage says `kubectl gpupool`.
    pub(crate) fn read() -> Self {
        let called = std::env::args_os().next();
        let is_plugin = called.is_some_and(|path| Path::new(&path).file_name() == Some(OsStr::new(PLUGIN)));
        let command = Self::command();
        let command = if is_plugin { command.bin_name("kubectl gpupool") } else { command };
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// Runs the subcommand. A failure is printed on standard error; it ends with 69 where no agent
    /// was found, else with 1, unless the subcommand has a code of its own for it.
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Agent(args) => agent::run(args),
            Command::Run(args) => run::run(args),
            Command::Status(args) => status::run(&args),
            Command::Stop(args) => stop::run(&args),
            Command::CheckConfig(args) => Ok(check_config::run(&args)),
            Command::Operands(args) => operands::run(&args),
            Command::Names(args) => names::run(&args),
            Command::Inventory(args) => inventory::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::DemoProgram(args) => demo::run_program(&args),
            #[cfg(feature = "kubernetes")]
            Command::Control(args) => control::run(args),
            Command::ProbeCards(args) => probe_cards::run(&args),
            Command::ProbeAgent(args) => probe_agent::run(&args),
        };
        let code = outcome.unwrap_or_else(|failure| {
            log_writer::last_words(&format_args!("gpupool: {failure:#}"));
            agent_socket::exit_code(&failure)
        });
        log_writer::drain();
        code
    }
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, Command as ClapCommand};

    use super::*;

    /// A value that the option takes.
    fn value_of(argument: &clap::Arg) -> String {
        let possible = argument.get_possible_values();
        if let Some(first) = possible.first() {
            return first.get_name().to_owned();
        }
        let names: Vec<&str> =
            argument.get_value_names().into_iter().flatten().map(clap::builder::Str::as_str).collect();
        match names.first().copied().unwrap_or_default() {
            "[HOST:]PORT" | "HOST:PORT" | "PORT" => "127.0.0.1:9999",
            "1m|1s" => "1m",
            "true|false" => "true",
            "SERVICE" => "name",
            "CARDS" => "2",
            "KIND=NAME" => "nvidia.com/gpu=all",
            "MINUTES" | "SECONDS" | "NUMBER" | "COUNT" => "5",
            "DURATION" | "GRACE" | "TIME" => "5s",
            "USE" => "container",
            _ => "a-word",
        }
        .to_owned()
    }

    fn accepts(command: &ClapCommand, words: &[String]) -> Result<(), String> {
        command.clone().try_get_matches_from(words).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_of_a_daemon_may_be_given_twice() {
        let root = Cli::command();
        for name in ["agent", "control"] {
            let Some(command) = root.find_subcommand(name) else { continue };
            let mut tried = 0;
            for argument in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
                let flag = format!("--{}", argument.get_long().unwrap_or_default());
                if matches!(argument.get_action(), ArgAction::Help | ArgAction::Version) {
                    continue;
                }
                let word = if argument.get_action().takes_values() {
                    format!("{flag}={}", value_of(argument))
                } else {
                    flag.clone()
                };
                let once = [name.to_owned(), word.clone()];
                let twice = [name.to_owned(), word.clone(), word];
                // Some need another option beside them: the message must be the same either way.
                assert_eq!(accepts(command, &twice), accepts(command, &once));
                let refusal = accepts(command, &once).err().unwrap_or_default();
                assert!(refusal.is_empty() || refusal.contains("required"), "{name} {flag}: {refusal}");
                tried += 1;
            }
            assert!(tried > 15, "{name}: {tried}");
        }
    }

    #[test]
    fn of_an_option_that_is_given_twice_the_later_counts() {
        let words = ["gpupool", "agent", "--node-name=first", "--node-name=later"];
        let matches = Cli::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
        let (_, agent) = matches.subcommand().unwrap_or_else(|| panic!("a subcommand"));
        assert_eq!(agent.get_one::<String>("node_name").map(String::as_str), Some("later"));
    }
}
