//! `deny.toml` and `advisories.toml`: what they hold, and which packages break it.

use semver::VersionReq;
use serde::Deserialize;

use super::{Package, by_name, licence};

/// `deny.toml`, as far as it is held here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    licenses: Licences,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Denied,
    skip: Vec<Skip>,
}

/// The only way to treat several versions of a package.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Denied {
    Deny,
}

/// A version that may stand beside a newer one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    #[serde(rename = "crate")]
    package: String,
    #[serde(rename = "reason")]
    _reason: String,
}

/// `advisories.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Advisories {
    advisory: Vec<Advisory>,
}

/// A known vulnerability of a package; a version that matches nothing here has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    package: String,
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

impl Rules {
    /// Licences that are not allowed, packages that are there twice, and versions that need not be named any more.
    pub(super) fn findings(&self, packages: &[&Package]) -> Vec<String> {
        let mut findings = Vec::new();
        for package in packages {
            let expression = package.license.as_deref().unwrap_or_default();
            if !licence::is_met(expression, &self.licenses.allow) {
                findings.push(format!("{}: its licence is {expression:?}", full_name(package)));
            }
        }
        let mut skipped: Vec<&str> = self.bans.skip.iter().map(|skip| skip.package.as_str()).collect();
        for (name, versions) in by_name(packages).into_iter().filter(|(_, versions)| versions.len() > 1) {
            let names: Vec<String> = versions.iter().map(|package| full_name(package)).collect();
            let unnamed = names.iter().filter(|name| !skipped.contains(&name.as_str())).count();
            if unnamed > 1 {
                findings.push(format!("{name} is there more than once: {}", names.join(", ")));
            }
            skipped.retain(|skip| !names.iter().any(|name| name == skip));
        }
        findings
            .extend(skipped.iter().map(|skip| format!("deny.toml names {skip}, which is not there twice")));
        findings
    }
}

impl Advisories {
    /// Packages with a known vulnerability.
    pub(super) fn findings(&self, packages: &[&Package]) -> Vec<String> {
        let has = |advisory: &Advisory, package: &Package| {
            let mut harmless = advisory.patched.iter().chain(&advisory.unaffected);
            advisory.package == package.name && !harmless.any(|versions| versions.matches(&package.version))
        };
        let of = |package: &Package| -> Vec<String> {
            let hits = self.advisory.iter().filter(|advisory| has(advisory, package));
            hits.map(|hit| format!("{} has the vulnerability {}", full_name(package), hit.id)).collect()
        };
        packages.iter().flat_map(|package| of(package)).collect()
    }
}

fn full_name(package: &Package) -> String {
    format!("{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        let metadata = serde_json::json!({
            "id": name, "name": name, "version": version, "license": "MIT", "source": "registry",
            "manifest_path": "/Cargo.toml", "dependencies": [], "targets": [],
        });
        serde_json::from_value(metadata).unwrap()
    }

    fn rules() -> Rules {
        let text = r#"
            [licenses]
            allow = ["MIT"]
            [bans]
            multiple-versions = "deny"
            skip = [{ crate = "a@1.0.0", reason = "b" }]
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn two_versions_are_a_finding_unless_the_older_one_is_named() {
        let (one, two, three) = (package("a", "1.0.0"), package("a", "2.0.0"), package("a", "3.0.0"));
        assert_eq!(rules().findings(&[&one, &two]), [""; 0]);
        assert_eq!(
            rules().findings(&[&one, &two, &three]),
            ["a is there more than once: a@1.0.0, a@2.0.0, a@3.0.0"]
        );
        assert_eq!(rules().findings(&[&two]), ["deny.toml names a@1.0.0, which is not there twice"]);
    }

    #[test]
    fn a_vulnerable_version_is_a_finding_and_a_patched_one_is_not() {
        let text = r#"
            [[advisory]]
            id = "RUSTSEC-0000-0001"
            package = "a"
            patched = ["^1.2.3", ">= 2.1"]
            unaffected = ["< 1.0"]
        "#;
        let advisories: Advisories = toml::from_str(text).unwrap();
        for (version, vulnerable) in
            [("0.9.0", false), ("1.0.0", true), ("1.3.0", false), ("2.0.0", true), ("2.1.0", false)]
        {
            assert_eq!(!advisories.findings(&[&package("a", version)]).is_empty(), vulnerable, "{version}");
        }
    }
}
