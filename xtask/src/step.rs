//! Steps: a named piece of work whose outcome is printed, and the commands that it runs.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// The checkout's root, from wherever in it the task was typed.
pub(crate) fn root() -> PathBuf {
    gpupool_dist::root().unwrap_or_default()
}

/// The cargo that runs us, with its arguments.
pub(crate) fn cargo(arguments: &[&str]) -> anyhow::Result<Command> {
    Ok(gpupool_dist::cargo(arguments)?)
}

/// Runs a command; anything but success is an error that shows the command line.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    Ok(gpupool_dist::succeed(command)?)
}

/// A program's exit status as ours; death by a signal becomes 128 + its number, as in a shell.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What became of the steps so far, by the parts that they belong to.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    part: String,
    outcomes: Vec<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    part: String,
    step: String,
    took: Duration,
    failure: Option<String>,
}

impl Steps {
    /// The steps from here on belong to this part.
    pub(crate) fn part(&mut self, part: impl fmt::Display) {
        self.part = part.to_string();
    }

    /// Runs one step and says how it went; a failure is kept for the summary and does not stop the others.
    pub(crate) fn run<T>(&mut self, step: &str, work: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        eprintln!("==> {}: {step}", self.part);
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        let (done, failure) = match outcome {
            Ok(done) => (Some(done), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        if let Some(failure) = &failure {
            eprintln!("==> {}: {step}: FAILED after {:.1} s: {failure}", self.part, took.as_secs_f64());
        }
        self.outcomes.push(Outcome { part: self.part.clone(), step: step.to_owned(), took, failure });
        done
    }

    /// Prints a line per step, the time of each part and the counts; true when every step passed.
    pub(crate) fn summary(&self) -> bool {
        eprintln!();
        for of_part in self.outcomes.chunk_by(|one, next| one.part == next.part) {
            let total: Duration = of_part.iter().map(|it| it.took).sum();
            eprintln!("{:>16.1} s  {}", total.as_secs_f64(), of_part[0].part);
            for Outcome { step, took, failure, .. } in of_part {
                let verdict = if failure.is_none() { "ok" } else { "FAILED" };
                eprintln!("{verdict:>6} {:>9.1} s    {step}", took.as_secs_f64());
            }
        }
        let failed = self.outcomes.iter().filter(|it| it.failure.is_some()).count();
        let total: Duration = self.outcomes.iter().map(|it| it.took).sum();
        let passed = self.outcomes.len() - failed;
        eprintln!("steps: {passed} passed, {failed} failed, {:.1} s", total.as_secs_f64());
        failed == 0
    }
}
