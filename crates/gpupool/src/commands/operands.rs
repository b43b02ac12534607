//! `gpupool operands`: which software each use of a node brings with it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use gpupool_core::node_use::NodeUse;
use gpupool_core::node_use::operands::{self, DEPLOY_PREFIX, Mode};

/// What the user typed.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// List every deploy label that the GPU Operator sets, instead of the operands that matter
    #[arg(long)]
    full: bool,
    /// The runtime of the virtual machines (sandboxWorkloads.mode)
    #[arg(long, value_enum, default_value_t, requires = "full")]
    mode: SandboxModeOption,
    /// List what a node with MIG-capable cards gets
    #[arg(long, requires = "full")]
    mig_capable: bool,
}

/// The mode as an option.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SandboxModeOption {
    /// The operator's default
    #[default]
    Kubevirt,
    /// Kata containers
    Kata,
}

/// Prints a line per use, the use of an unlabelled node, and the flag without which no label is read.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mode = match args.mode {
        SandboxModeOption::Kubevirt => Mode::Kubevirt,
        SandboxModeOption::Kata => Mode::Kata,
    };
    let lines = operands::lines(|node_use| {
        if args.full {
            let labels = operands::deploy_labels(node_use, mode, args.mig_capable);
            labels.iter().map(|label| format!("{DEPLOY_PREFIX}{label}")).collect()
        } else {
            operands::short(node_use).iter().map(|&operand| operand.to_owned()).collect()
        }
    });
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}").context("cannot print the operands")?;
    }
    if args.full {
        note_what_never_runs(mode)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A label alone brings no pod: the operator starts some components in one mode only, and says nothing.
fn note_what_never_runs(mode: Mode) -> anyhow::Result<()> {
    for node_use in NodeUse::ALL {
        let labels = operands::deploy_labels(node_use, mode, false);
        let idle: Vec<_> = labels.into_iter().filter(|label| !operands::is_deployed(label, mode)).collect();
        if !idle.is_empty() {
            writeln!(
                io::stderr(),
                "note: {node_use}: labelled but not deployed in this mode: {}",
                idle.join(", ")
            )?;
        }
        if idle.contains(&"sandbox-device-plugin") {
            writeln!(
                io::stderr(),
                "warning: {node_use}: no plugin runs in this mode, so nothing is advertised"
            )?;
        }
    }
    Ok(())
}
