//! The part `lint`: what can be said about the sources without running them.

use crate::dependencies;
use crate::step::{self, Steps};

/// Runs every check.
pub(super) fn run(steps: &mut Steps) {
    steps.part(super::Part::Lint);
    let mut cargo = |name: &str, arguments: &[&str]| {
        steps.run(name, || step::succeed(step::cargo(arguments)?.env("RUSTDOCFLAGS", "-D warnings")))
    };
    cargo("formatting", &["fmt", "--all", "--check"]);
    cargo(
        "clippy",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    );
    cargo(
        "clippy, the shim as it is loaded",
        &[
            "clippy",
            "--profile=preload",
            "--package=gpupool-shim",
            "--lib",
            "--features=preload,stop-points",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    );
    cargo("docs", &["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    cargo("floors", &["run", "--locked", "--quiet", "--package=gpupool-floors"]);
    steps.run("dependencies: licences, duplicates, advisories, unused", dependencies::check);
}
