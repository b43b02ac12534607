//! Steps: a named piece of work whose outcome is printed, and the commands that it runs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::{Context, bail};

/// The repository's root: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// A command that starts in the repository's root.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs us, with its arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments);
    cargo
}

/// Runs a command; anything but success is an error that shows the command line.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// A program's exit status as ours; death by a signal becomes 128 + its number, as in a shell.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What became of the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    outcomes: Vec<(String, f64, Result<(), String>)>,
}

impl Steps {
    /// Runs one step and says how it went; a failure is kept for the summary and does not stop the others.
    pub(crate) fn run(&mut self, name: &str, work: impl FnOnce() -> anyhow::Result<()>) {
        eprintln!("==> {name}");
        let start = Instant::now();
        let outcome = work().map_err(|error| format!("{error:#}"));
        let seconds = start.elapsed().as_secs_f64();
        if let Err(error) = &outcome {
            eprintln!("==> {name}: FAILED after {seconds:.1} s: {error}");
        }
        self.outcomes.push((name.to_owned(), seconds, outcome));
    }

    /// Prints a line per step and the counts; true when every step passed.
    pub(crate) fn summary(&self) -> bool {
        eprintln!();
        for (name, seconds, outcome) in &self.outcomes {
            let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
            eprintln!("{verdict:>6}  {seconds:>7.1} s  {name}");
        }
        let failed = self.outcomes.iter().filter(|(_, _, outcome)| outcome.is_err()).count();
        eprintln!("steps: {} passed, {failed} failed", self.outcomes.len() - failed);
        failed == 0
    }
}
