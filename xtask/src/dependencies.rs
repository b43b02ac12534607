//! What is held about dependencies: licences, no package twice without need, no known vulnerability, none unused.
//!
//! The rules are in `deny.toml`, in the form of cargo-deny, and known vulnerabilities in `advisories.toml`. cargo-deny itself
//! would take longer to build than the rest of the lints, and fetches its advisories, where tests run offline.

mod licence;
mod rules;
mod unused;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::step;

/// The packages of this machine's platform, as `cargo metadata` has them.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<ResolvedPackage>,
}

#[derive(Debug, Deserialize)]
struct ResolvedPackage {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: semver::Version,
    license: Option<String>,
    /// `None` for the crates of this workspace.
    source: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

/// Something that cargo makes of a package.
#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    crate_types: Vec<String>,
}

impl Package {
    /// The name by which code calls its library.
    fn library(&self) -> String {
        let is_library =
            |target: &&Target| target.crate_types.iter().any(|it| it.ends_with("lib") || it == "proc-macro");
        let name = self.targets.iter().find(is_library).map_or(&self.name, |target| &target.name);
        name.replace('-', "_")
    }
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// The name that the crate gives it, if another.
    rename: Option<String>,
    /// `None` for what the library or program itself uses, else `dev` or `build`.
    kind: Option<String>,
}

/// Checks all of it; an error with a line per finding.
pub(crate) fn check() -> anyhow::Result<()> {
    let root = step::root();
    let metadata = metadata()?;
    let rules: rules::Rules = read_toml(&root.join("deny.toml"))?;
    let advisories: rules::Advisories = read_toml(&root.join("advisories.toml"))?;
    let (ours, foreign): (Vec<&Package>, Vec<&Package>) =
        metadata.packages.iter().partition(|package| package.source.is_none());
    let used = |package: &&Package| metadata.resolve.nodes.iter().any(|node| node.id == package.id);
    let foreign: Vec<&Package> = foreign.into_iter().filter(used).collect();
    let mut findings = rules.findings(&foreign);
    findings.extend(advisories.findings(&foreign));
    for package in ours {
        let library =
            |name: &str| metadata.packages.iter().find(|package| package.name == name).map(Package::library);
        findings.extend(unused::findings(package, library)?);
    }
    if findings.is_empty() { Ok(()) } else { bail!("\n    {}", findings.join("\n    ")) }
}

fn metadata() -> anyhow::Result<Metadata> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo =
        step::cargo(&["metadata", "--locked", "--format-version=1", "--filter-platform", &platform])?;
    let output = cargo.output().context("cannot start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata says what cannot be read")
}

fn read_toml<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot read {}", file.display()))
}

/// The packages by name, those of one name together.
fn by_name<'a>(packages: &[&'a Package]) -> BTreeMap<&'a str, Vec<&'a Package>> {
    let mut named: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in packages {
        named.entry(&package.name).or_default().push(package);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_keeps_its_rules() {
        check().unwrap();
    }
}
