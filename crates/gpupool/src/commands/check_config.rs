//! `gpupool check-config FILE`: whether the nodes of a dump advertise what their labels say.

mod verdict;

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use gpupool_dump::check_config::check;

use crate::option_values::RulesOption;

/// What the user typed.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// A dump of nodes, JSON or YAML, a List or one Node (`kubectl get nodes -o json`); `-` reads standard input
    file: PathBuf,
    /// How strictly nodes are judged
    #[arg(long, value_enum, default_value_t)]
    rules: RulesOption,
    /// How the verdict is printed
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OutputFormat {
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
    let report = match gpupool_dump::open(&args.file).and_then(|dump| check(dump, args.rules.into())) {
        Ok(report) => report,
        Err(error) => {
            // Nobody is left to tell when standard error is closed; the exit code stays.
            let _ = writeln!(io::stderr(), "gpupool: {} {error}", args.file.display());
            return ExitCode::from(UNREADABLE);
        }
    };
    let _ = verdict::print_warnings(&report, &mut BufWriter::new(io::stderr()));
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.output {
        OutputFormat::Text => verdict::print_text(&report, &mut out),
        OutputFormat::Json => verdict::print_json(&report, &mut out),
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
