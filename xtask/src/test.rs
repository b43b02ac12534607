//! `cargo xtask test`: every check of the project, on a clean checkout as well as on a warm one.

use std::process::ExitCode;

use crate::step::{self, Steps};
use crate::{clients, dist, lab, setup};

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
        steps.run("clients", || clients::check(dist));
        steps.run("lab", || lab::check(dist));
    }
    if steps.summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
