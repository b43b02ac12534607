//! Dependencies that no source of their crate names.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Package;

/// The dependencies that a crate declares and whose name is in none of its sources of that kind. `library` knows by which
/// name code calls a package's library.
pub(super) fn findings(
    package: &Package,
    library: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Vec<String>> {
    let folder = package.manifest_path.parent().unwrap_or_else(|| Path::new("."));
    let (own, of_tests, of_build) = (
        sources(&["src"].map(|name| folder.join(name)))?,
        sources(&["src", "tests", "examples", "benches"].map(|name| folder.join(name)))?,
        fs::read_to_string(folder.join("build.rs")).unwrap_or_default(),
    );
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let renamed = dependency.rename.as_ref().map(|name| name.replace('-', "_"));
        // Packages of other platforms are not known; nobody here gives their libraries odd names.
        let name = renamed
            .or_else(|| library(&dependency.name))
            .unwrap_or_else(|| dependency.name.replace('-', "_"));
        let text = match dependency.kind.as_deref() {
            None => &own,
            Some("build") => &of_build,
            Some(_) => &of_tests,
        };
        if !names(text, &name) {
            findings.push(format!("{}: no source names its dependency {}", package.name, dependency.name));
        }
    }
    Ok(findings)
}

/// Whether code, comments aside, has a word.
fn names(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|letter| !is_part(letter))).any(|it| it == word)
}

/// The text of all sources in these folders, at any depth.
fn sources(folders: &[PathBuf]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = folders.iter().filter(|folder| folder.is_dir()).cloned().collect();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path)?;
                for elsewhere in modules_elsewhere(&source) {
                    text.push_str(&fs::read_to_string(folder.join(elsewhere))?);
                }
                text.push_str(&source);
            }
        }
    }
    Ok(text)
}

/// The files of modules that a source takes from another crate's folder: `#[path = "../…"]`.
fn modules_elsewhere(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_counts_in_code_and_as_a_whole() {
        let text = "use tar::Builder;\n// serde\nlet serde_json = 1;\n";
        assert!(names(text, "tar") && names(text, "serde_json"));
        assert!(!names(text, "serde") && !names(text, "ring"));
    }
}
