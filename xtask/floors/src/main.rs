//! `gpupool-floors [FOLDER …]`: checks the crates in these folders, or every crate of the workspace.
//!
//! Of the workspace it also checks that ARCHITECTURE.md shows each declaration as it is; `--write` puts them there.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use gpupool_floors::{Floors, check};
use serde::Deserialize;

mod page;

#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error(transparent)]
    Check(#[from] gpupool_floors::Error),
    #[error(transparent)]
    Floors(#[from] gpupool_floors::FloorsError),
    #[error(transparent)]
    Page(#[from] page::PageError),
    #[error("cannot run `cargo metadata`: {0}")]
    Cargo(std::io::Error),
    #[error("`cargo metadata` says what cannot be read: {0}")]
    Metadata(#[from] serde_json::Error),
    #[error("{}: no crate of this workspace lies there", .0.display())]
    NoCrate(PathBuf),
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Package {
    fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or_else(|| Path::new("."))
    }

    /// The root of its library, or where it has none of its program.
    fn root(&self) -> Option<&Path> {
        let is_program = |target: &&Target| target.kind.iter().any(|kind| kind == "bin");
        let is_library = |target: &&Target| target.kind.iter().any(|kind| kind.ends_with("lib"));
        let target = self.targets.iter().find(is_library).or_else(|| self.targets.iter().find(is_program));
        target.map(|target| target.src_path.as_path())
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let writes = arguments.iter().any(|argument| argument == "--write");
    arguments.retain(|argument| argument != "--write");
    match run(&arguments, writes) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(breaches) => {
            eprintln!("floors: {breaches} lines break a rule");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("floors: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints every breach; gives their number.
fn run(folders: &[String], writes: bool) -> Result<usize, MainError> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .map_err(MainError::Cargo)?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let mut wanted = Vec::new();
    for folder in folders {
        let folder = std::path::absolute(folder).map_err(MainError::Cargo)?;
        let package = metadata.packages.iter().find(|package| package.folder() == folder);
        wanted.push(package.ok_or(MainError::NoCrate(folder))?);
    }
    if folders.is_empty() {
        wanted.extend(&metadata.packages);
    }
    let mut breaches = 0;
    let mut declared = Vec::new();
    for package in wanted {
        let Some(root) = package.root() else { continue };
        let found = check(package.folder(), root)?;
        for breach in &found {
            let file = breach.file.strip_prefix(&metadata.workspace_root).unwrap_or(&breach.file);
            eprintln!("{}", gpupool_floors::Breach { file: file.to_owned(), ..breach.clone() });
        }
        breaches += found.len();
        let folder =
            package.folder().strip_prefix(&metadata.workspace_root).unwrap_or_else(|_| package.folder());
        declared.push((package.name.clone(), folder.to_owned(), Floors::read(package.folder())?));
    }
    if folders.is_empty() {
        breaches += page::check(&metadata.workspace_root.join("ARCHITECTURE.md"), &declared, writes)?;
    }
    Ok(breaches)
}
