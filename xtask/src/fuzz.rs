//! `cargo xtask fuzz`: every decoder against the engine's inputs, for a minute each or as long as somebody likes.
//!
//! The targets and what they hold a decoder to are the crate `fuzz`'s. Here they are built with the engine, for which
//! the project's own toolchain is enough: the flags are those that `cargo fuzz` gives the compiler.

#![allow(clippy::print_stdout, reason = "what was tried and found is this task's output")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};

use crate::step;

/// What may be asked of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Which targets; all of them when none is named
    targets: Vec<String>,
    /// How long each is run, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// What the compiler puts into the code for the engine: counters of what ran, and what was compared.
const COVERAGE: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Longest input in bytes, as in the corpus.
const LONGEST_INPUT: usize = 4096;
/// After this many seconds a decoder hangs.
const PATIENCE: u64 = 20;

/// Builds the targets and runs one after the other; 1 when something was found.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let all = targets()?;
    for name in &options.targets {
        ensure!(all.contains(name), "there is no target {name}: choose from {}", all.join(", "));
    }
    let chosen = if options.targets.is_empty() { &all } else { &options.targets };
    let binaries = build(chosen)?;
    let mut found = 0;
    for name in chosen {
        let run = hunt(&binaries.join(name), name, options.seconds)?;
        let per_minute = run.executions * 60 / options.seconds.max(1);
        let verdict = if run.sound { "nothing found" } else { "FOUND, see above" };
        println!("{name:>12}: {:>9} inputs, {per_minute:>9} a minute, {verdict}", run.executions);
        found += usize::from(!run.sound);
    }
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The names of all targets: of the programs of the crate `fuzz`.
fn targets() -> anyhow::Result<Vec<String>> {
    let folder = step::root().join("fuzz/src/bin");
    let files = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        names.extend(file?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Where everything of this task lies.
fn place() -> PathBuf {
    step::root().join("target/fuzz")
}

/// Builds targets with the engine and all checks of arithmetic; the answer is their folder.
fn build(targets: &[String]) -> anyhow::Result<PathBuf> {
    // Named, so that programs of the build itself (macros, build scripts) are made without counters.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["build", "--package", "gpupool-fuzz", "--features", "libfuzzer", "--target", &platform];
    let mut cargo = step::cargo(&arguments)?;
    cargo.env("RUSTFLAGS", COVERAGE);
    cargo.args(["--config", "profile.dev.opt-level=1", "--target-dir"]).arg(place());
    for name in targets {
        cargo.args(["--bin", name]);
    }
    step::succeed(&mut cargo)?;
    Ok(place().join(platform).join("debug"))
}

/// How a target did.
#[derive(Debug)]
struct Run {
    executions: u64,
    sound: bool,
}

/// Runs a target. What it finds interesting it keeps in `target/fuzz/corpus`, what it finds wrong in
/// `target/fuzz/findings`.
fn hunt(binary: &Path, name: &str, seconds: u64) -> anyhow::Result<Run> {
    let (kept, findings) = (place().join("corpus").join(name), place().join("findings"));
    fs::create_dir_all(&kept)?;
    fs::create_dir_all(&findings)?;
    let log = place().join(format!("{name}.log"));
    let status = Command::new(binary)
        .arg(&kept)
        .arg(step::root().join("fuzz/corpus").join(name))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LONGEST_INPUT}"))
        .arg(format!("-timeout={PATIENCE}"))
        .arg(format!("-artifact_prefix={}/{name}-", findings.display()))
        .arg("-print_final_stats=1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .status()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if !status.success() {
        println!("{}", explained(&text));
    }
    match executions(&text) {
        Some(executions) => Ok(Run { executions, sound: status.success() }),
        None if status.success() => bail!("{name} does not say how many inputs it tried: {}", log.display()),
        None => Ok(Run { executions: 0, sound: false }),
    }
}

/// How many inputs were tried, in the engine's last lines.
fn executions(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
}

/// What of the engine's lines tells a reader what was found: what panicked, and the file with the input.
fn explained(log: &str) -> String {
    let telling = |line: &&str| {
        line.contains("panicked at")
            || line.contains("ERROR: libFuzzer")
            || line.contains("Test unit written to")
    };
    let lines: Vec<&str> = log.lines().collect();
    let wanted = (0..lines.len()).filter(|place| {
        telling(&lines[*place])
            || place.checked_sub(1).is_some_and(|before| lines[before].contains("panicked at"))
    });
    wanted.map(|place| lines[place].chars().take(600).collect::<String>()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{executions, explained};

    const LOG: &str = "#2\tINITED cov: 3\nthread '<unnamed>' panicked at fuzz/src/code.rs:3:5:\n\
        assertion failed: 1\nstack\n==7== ERROR: libFuzzer: deadly signal\nNOTE: x\n\
        Test unit written to /a/crash-1\nstat::number_of_executed_units: 42\n";

    #[test]
    fn the_engines_lines_are_understood() {
        assert_eq!(executions(LOG), Some(42));
        assert_eq!(executions("nothing"), None);
        assert_eq!(
            explained(LOG),
            "thread '<unnamed>' panicked at fuzz/src/code.rs:3:5:\nassertion failed: 1\n\
             ==7== ERROR: libFuzzer: deadly signal\nTest unit written to /a/crash-1"
        );
    }
}
