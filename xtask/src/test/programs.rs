//! The programs that cargo makes of tests, and which part each belongs to.
//!
//! They are built once, as the tests of the whole workspace, and started here: asked to run a part, cargo would build
//! what they depend on anew with fewer features.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::Deserialize;

use super::Part;
use crate::step;

/// Tests that start a cluster or need its programs: folder of the crate, name of the test.
const ON_CLUSTERS: &[(&str, &str)] = &[
    ("crates/agent", "kubelet"),
    ("crates/control", "cluster"),
    ("crates/gpupool", "chart"),
    ("crates/gpupool", "cluster"),
    ("crates/gpupool", "control_load"),
    ("crates/gpupool", "sharing"),
    ("crates/gpupool", "soak"),
    ("testbed/cluster", "cluster"),
    ("testbed/cluster", "nodes"),
    ("xtask", "cluster"),
];

/// Tests that need the release before.
const ON_THE_RELEASE_BEFORE: (&str, &str) = ("crates/gpupool", "upgrade");

/// A built test program.
#[derive(Debug)]
pub(super) struct TestProgram {
    /// The crate's folder, from the root of the checkout.
    folder: PathBuf,
    name: String,
    executable: PathBuf,
}

/// A line of what cargo says, as far as it is of interest.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the tests of the whole workspace, in the order in which they are to run.
pub(super) fn build() -> anyhow::Result<Vec<TestProgram>> {
    let mut cargo =
        step::cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet", "--message-format=json"])?;
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        // What the compiler said is in the messages: said again, readably.
        step::succeed(&mut step::cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet"])?)?;
    }
    let root = step::root();
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Message = serde_json::from_str(line).context("cargo says what cannot be read")?;
        programs.extend(message.test_program(&root));
    }
    programs.sort_by(|one, other| (&one.folder, &one.name).cmp(&(&other.folder, &other.name)));
    Ok(programs)
}

impl Message {
    fn test_program(self, root: &Path) -> Option<TestProgram> {
        let executable = self.executable.filter(|_| self.profile.is_some_and(|profile| profile.test))?;
        let folder = self.manifest_path?.parent()?.strip_prefix(root).ok()?.to_owned();
        Some(TestProgram { folder, name: self.target?.name, executable })
    }
}

impl TestProgram {
    /// Where it belongs.
    pub(super) fn part(&self) -> Part {
        let is = |(folder, name): &(&str, &str)| self.folder == Path::new(folder) && self.name == *name;
        match self.folder.to_str() {
            Some("crates/shim") => Part::Shim,
            _ if is(&ON_THE_RELEASE_BEFORE) => Part::Upgrade,
            _ if ON_CLUSTERS.iter().any(is) => Part::Kubernetes,
            _ => Part::Unit,
        }
    }

    /// Runs its tests; those that are ignored only when the arguments say so.
    pub(super) fn run(&self, dist: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        step::succeed(self.command().args(arguments).env("GPUPOOL_DIST", dist))
    }

    /// The names of the tests that it ignores.
    pub(super) fn ignored(&self) -> anyhow::Result<Vec<String>> {
        self.listed(&["--list", "--ignored"])
    }

    /// The names of all its tests.
    pub(super) fn all(&self) -> anyhow::Result<Vec<String>> {
        self.listed(&["--list"])
    }

    fn listed(&self, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        let listed = self.command().args(arguments).output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Starts in the crate's folder, as cargo would have it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(step::root().join(&self.folder));
        command
    }
}

impl fmt::Display for TestProgram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.folder.display(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tests_that_start_clusters_are_those_of_the_list() {
        let root = step::root();
        for (folder, name) in ON_CLUSTERS {
            let tests = root.join(folder).join("tests");
            let found =
                tests.join(format!("{name}.rs")).exists() || tests.join(name).join("main.rs").exists();
            assert!(found, "{folder} has no test {name}");
        }
        for folder in
            ["crates/agent", "crates/control", "crates/gpupool", "crates/core", "crates/wire", "xtask"]
        {
            for test in fs::read_dir(root.join(folder).join("tests")).into_iter().flatten() {
                let path = test.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let files: Vec<PathBuf> = match fs::read_dir(&path) {
                    Ok(files) => files.map(|file| file.unwrap().path()).collect(),
                    Err(_) => vec![path.clone()],
                };
                let uses = files.iter().filter_map(|file| fs::read_to_string(file).ok());
                let on_cluster = uses.into_iter().any(|text| text.contains("gpupool_testbed::"));
                assert_eq!(on_cluster, ON_CLUSTERS.contains(&(folder, &name)), "{folder} {name}");
            }
        }
    }
}
