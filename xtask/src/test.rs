//! `cargo xtask test`: every check of the project, or the named parts, on a clean checkout as well as on a warm one.
//!
//! All parts share two builds: what is laid out, and the tests of the whole workspace. Tests that need root are marked
//! `#[ignore = "needs root"]`: root runs them, others are told which were not run.

mod lint;
mod programs;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::step::{self, Steps};
use crate::{clients, device_check, lab, setup};
use programs::TestProgram;

/// A part of the tests, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Formatting, clippy, docs, floors of the modules, dependencies.
    Lint,
    /// Tests of every crate that need no cluster, tests in documentation, and the model check of the ledger.
    Unit,
    /// Tests of the library that is loaded into programs.
    Shim,
    /// Unmodified GPU clients with and without gpupool.
    Clients,
    /// Agent, shim and journal of the release before beside today's.
    Upgrade,
    /// Tests on real clusters; those on nodes with a kubelet need root.
    Kubernetes,
    /// The published lab "sandbox workloads", by hand and by gpupool.
    Lab,
    /// `device-check` on the simulated card.
    Device,
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| out.write_str(value.get_name()))
    }
}

/// Runs the parts, all when none is named, then prints which steps passed and how long they took; one that fails does not
/// hide the others.
pub(crate) fn run(named: &[Part]) -> ExitCode {
    let wanted = |part: &Part| named.is_empty() || named.contains(part);
    let mut steps = Steps::default();
    steps.part("build");
    steps.run("what the machine needs", setup::prepare);
    if wanted(&Part::Lint) {
        lint::run(&mut steps);
    }
    let built: Vec<Part> =
        Part::value_variants().iter().copied().filter(|part| *part != Part::Lint && wanted(part)).collect();
    let mut left_out = LeftOut::default();
    if !built.is_empty() {
        steps.part("build");
        let dist = steps.run("what is laid out", || Ok(gpupool_dist::given_or_built()?));
        let has_tests =
            |part: &Part| matches!(part, Part::Unit | Part::Shim | Part::Upgrade | Part::Kubernetes);
        let tests = built.iter().any(has_tests).then(|| steps.run("tests", programs::build)).flatten();
        if let Some(dist) = &dist {
            for part in built {
                steps.part(part);
                run_part(part, &mut steps, dist, tests.as_deref().unwrap_or_default(), &mut left_out);
            }
        }
    }
    let passed = steps.summary();
    for (why, names) in left_out {
        eprintln!("not run, as {why}: {} tests", names.len());
        for name in names {
            eprintln!("  {name}");
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Names of tests that were not run, by the reason.
type LeftOut = BTreeMap<String, Vec<String>>;

/// Runs a part; notes which of its tests were not run.
fn run_part(part: Part, steps: &mut Steps, dist: &Path, tests: &[TestProgram], left_out: &mut LeftOut) {
    match part {
        Part::Lint => (),
        Part::Unit => {
            run_programs(part, steps, dist, tests, left_out);
            steps.run("tests in documentation", || {
                let mut tests = step::cargo(&["test", "--workspace", "--locked", "--quiet", "--doc"])?;
                step::succeed(tests.env("GPUPOOL_DIST", dist))
            });
            steps.run("model of the ledger (loom)", model_of_the_ledger);
        }
        Part::Shim | Part::Kubernetes => run_programs(part, steps, dist, tests, left_out),
        Part::Upgrade => run_upgrade(steps, dist, tests, left_out),
        Part::Clients => drop(steps.run("unmodified clients", || clients::check(dist))),
        Part::Lab => drop(steps.run("both passes", || lab::check(dist))),
        Part::Device => drop(steps.run("device-check, rehearsed", || device_check::rehearse(dist))),
    }
}

/// Runs the tests beside the release before, where it can be had.
fn run_upgrade(steps: &mut Steps, dist: &Path, tests: &[TestProgram], left_out: &mut LeftOut) {
    let built = steps.run("the release before", || match gpupool_dist::previous_release(dist) {
        Err(error @ gpupool_dist::Error::NoCommit(_)) => Ok(Some(error.to_string())),
        other => Ok(other.map(|_| None)?),
    });
    match built {
        Some(None) => run_programs(Part::Upgrade, steps, dist, tests, left_out),
        Some(Some(why)) => {
            let of_this_part = tests.iter().filter(|test| test.part() == Part::Upgrade);
            let names = of_this_part.flat_map(|test| test.all().unwrap_or_default());
            left_out.entry(why).or_default().extend(names);
        }
        None => (),
    }
}

/// Runs the tests of a part; root also those that need root, after the others.
fn run_programs(part: Part, steps: &mut Steps, dist: &Path, tests: &[TestProgram], left_out: &mut LeftOut) {
    let tests: Vec<&TestProgram> = tests.iter().filter(|test| test.part() == part).collect();
    for test in &tests {
        steps.run(&test.to_string(), || test.run(dist, &[]));
    }
    for test in tests {
        let for_root = test.ignored().unwrap_or_default();
        if for_root.is_empty() {
            continue;
        }
        if rustix::process::geteuid().is_root() {
            steps.run(&format!("{test}, as root"), || test.run(dist, &["--ignored"]));
        } else {
            left_out.entry("they need root".to_owned()).or_default().extend(for_root);
        }
    }
}

/// Every order in which two processes' steps on the ledger may interleave. In a build folder of its own: the flag is for
/// every crate that is built.
fn model_of_the_ledger() -> anyhow::Result<()> {
    let folder = gpupool_dist::target_folder()?.join("loom");
    let mut cargo =
        step::cargo(&["test", "--release", "--locked", "--quiet", "--package=gpupool-wire", "--lib"])?;
    step::succeed(cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", folder))
}
