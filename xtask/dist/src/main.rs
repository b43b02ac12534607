//! `cargo xtask`, first stage: what a newcomer types first, and the way to everything else.
//!
//! `demo` and `dist` are done here, with nothing compiled but what they need. Every other task is that of the program
//! `xtask`, which is built when somebody asks for it. This program has a build folder of its own (profile `launcher`), so
//! that it never waits behind another cargo without a word.

use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode};

use gpupool_dist::{Error, build, build_for_demo, cargo, command, succeed, target_folder};

/// Every task in a line; `xtask`'s own help says the same and its tests hold this to it.
const TASKS: &str = include_str!("../tasks.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] | ["-h" | "--help"] => {
            eprint!("Usage: cargo xtask <TASK>; cargo xtask <TASK> --help says more\n\n{TASKS}");
            return if words.is_empty() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
        ["demo"] => demo(),
        ["dist"] => build().map(|_| ExitCode::SUCCESS),
        _ => hand_over(&words),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

/// Builds, then runs the demo, whose exit code is ours.
fn demo() -> Result<ExitCode, Error> {
    let mut demo = command(build_for_demo()?.join("bin/gpupool"))?;
    let status =
        demo.arg("demo").status().map_err(|source| Error::Start { command: format!("{demo:?}"), source })?;
    // Death by a signal becomes 128 + its number, as in a shell.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Builds `xtask` and becomes it.
fn hand_over(words: &[&str]) -> Result<ExitCode, Error> {
    let folder = target_folder()?.join("debug");
    let program = folder.join("xtask");
    let busy = is_locked(&folder.join(".cargo-lock"));
    // Looking at a cluster or ending it must not wait for somebody else's build.
    let as_it_is = busy && program.exists() && matches!(words, ["cluster", "down" | "status" | "env"]);
    if as_it_is {
        eprintln!("another cargo is building in {}: using xtask as it was built last", folder.display());
    } else {
        if busy {
            eprintln!("waiting for another cargo that is building in {}", folder.display());
        } else if !program.exists() {
            eprintln!("==> building xtask (a minute the first time)");
        }
        succeed(&mut cargo(&["build", "--locked", "--quiet", "--package=xtask"])?)?;
    }
    let mut xtask = Command::new(program);
    let source = xtask.args(words).exec();
    Err(Error::Start { command: format!("{xtask:?}"), source })
}

/// Whether a cargo holds the lock of its build folder.
fn is_locked(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|lock| matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
}
