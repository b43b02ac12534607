//! `cargo xtask test`: every check of the project, on a clean checkout as well as on a warm one.
//!
//! Tests that need root are marked `#[ignore = "needs root"]`: root runs them, others are told which were not run.

use std::process::ExitCode;

use crate::step::{self, Steps};
use crate::{clients, device_check, dist, lab, setup};

/// The tests that need root are the only ones that are ignored. Of the whole workspace, so that nothing is built anew for
/// a part of it.
const FOR_ROOT: &[&str] = &["test", "--workspace", "--locked", "--tests"];

/// Runs all steps, then prints which passed; a step that fails does not hide the others.
pub(crate) fn run() -> ExitCode {
    let mut steps = Steps::default();
    steps.run("set-up", setup::prepare);
    steps.run("formatting", || step::succeed(&mut step::cargo(&["fmt", "--all", "--check"])));
    let mut built = None;
    steps.run("build", || {
        built = Some(dist::build()?);
        Ok(())
    });
    steps.run("lints", || {
        step::succeed(&mut step::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    });
    steps.run("docs", || {
        step::succeed(
            step::cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    if let Some(dist) = &built {
        steps.run("tests", || {
            step::succeed(
                step::cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]).env("GPUPOOL_DIST", dist),
            )
        });
        if is_root() {
            steps.run("tests that need root", || {
                let mut tests = step::cargo(FOR_ROOT);
                step::succeed(tests.args(["--no-fail-fast", "--", "--ignored"]).env("GPUPOOL_DIST", dist))
            });
        }
        steps.run("clients", || clients::check(dist));
        steps.run("device-check, rehearsed", || device_check::rehearse(dist));
        steps.run("lab", || lab::check(dist));
    }
    let passed = steps.summary();
    if !is_root() {
        name_tests_for_root();
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says which tests were not run because they need root, in the last lines.
fn name_tests_for_root() {
    let listed = step::cargo(FOR_ROOT).args(["--quiet", "--", "--list", "--ignored"]).output();
    let listed =
        listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    eprintln!("not run, as they need root: {} tests", names.len());
    for name in names {
        eprintln!("  {name}");
    }
}
