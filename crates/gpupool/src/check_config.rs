//! `gpupool check-config FILE`: whether the nodes of a dump advertise what their labels say.

mod facts;
mod report;

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use gpupool_core::checker::Rules;

use report::Report;

/// What the user typed.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// A dump of nodes, JSON or YAML, a List or one Node (`kubectl get nodes -o json`); `-` reads standard input
    file: PathBuf,
    /// How strictly nodes are judged
    #[arg(long, value_enum, default_value_t)]
    rules: RulesArg,
    /// How the verdict is printed
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The rules as an option.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum RulesArg {
    /// One nvidia.com/ resource a node, of exactly the kind that the label names
    #[default]
    Strict,
    /// What healthy nodes under the GPU Operator show: MIG, shared names, companion functions, several models
    Operator,
}

impl From<RulesArg> for Rules {
    fn from(rules: RulesArg) -> Self {
        match rules {
            RulesArg::Strict => Self::Strict,
            RulesArg::Operator => Self::Operator,
        }
    }
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    /// MISMATCH=… or OK=… lines
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// The dump could not be read, or the verdict could not be printed.
const UNREADABLE: u8 = 2;

/// Judges the dump: 0 for OK, 1 for mismatches, 2 for a dump that cannot be read.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut report = Report::new(args.rules.into());
    if let Err(error) = facts::judge_all(&args.file, &mut report) {
        // Nobody is left to tell when standard error is closed; the exit code stays.
        let _ = writeln!(io::stderr(), "gpupool: {} {error}", args.file.display());
        return ExitCode::from(UNREADABLE);
    }
    let _ = report.print_warnings(&mut BufWriter::new(io::stderr()));
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.output {
        Output::Text => report.print_text(&mut out),
        Output::Json => report.print_json(&mut out),
    };
    match printed.and_then(|()| out.flush()) {
        Ok(()) if report.is_ok() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "gpupool: cannot print the verdict: {error}");
            ExitCode::from(UNREADABLE)
        }
    }
}
