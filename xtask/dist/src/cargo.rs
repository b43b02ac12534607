//! Where the checkout is, and how cargo is started in it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// What cargo tells a program that it starts about that program's own package. Build scripts may watch these (that of
/// `ring` watches `CARGO_MANIFEST_DIR`): passed on, they would have things built anew that a cargo in a shell has built.
const OF_THE_CALLER: &[&str] =
    &["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];

/// The checkout's root: the nearest folder, from the current directory upwards, whose `Cargo.toml` is a workspace's.
pub fn root() -> Result<PathBuf, Error> {
    let here = std::env::current_dir().map_err(Error::file("find", "."))?;
    root_above(&here).map(Path::to_owned).ok_or(Error::NoCheckout)
}

fn root_above(folder: &Path) -> Option<&Path> {
    let is_workspace = |folder: &&Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml"));
        manifest.is_ok_and(|manifest| manifest.lines().any(|line| line.trim() == "[workspace]"))
    };
    folder.ancestors().find(is_workspace)
}

/// A command that starts in the checkout's root.
pub fn command(program: impl AsRef<OsStr>) -> Result<Command, Error> {
    let mut command = Command::new(program);
    command.current_dir(root()?);
    Ok(command)
}

/// The cargo that runs us, or the one on the path, in the checkout's root, in the environment of whoever typed the
/// command.
pub fn cargo(arguments: &[&str]) -> Result<Command, Error> {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))?;
    for (name, _) in std::env::vars_os() {
        if OF_THE_CALLER.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(&name);
        }
    }
    if std::env::var_os("CARGO_TARGET_DIR").is_some() {
        cargo.env("CARGO_TARGET_DIR", target_folder()?);
    }
    cargo.args(arguments);
    Ok(cargo)
}

/// Cargo's target folder, as the environment sets it.
pub fn target_folder() -> Result<PathBuf, Error> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => std::path::absolute(&folder).map_err(Error::file("find", folder)),
        None => Ok(root()?.join("target")),
    }
}

/// Runs a command; anything but success is an error that shows the command line.
pub fn succeed(command: &mut Command) -> Result<(), Error> {
    let status =
        command.status().map_err(|source| Error::Start { command: format!("{command:?}"), source })?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command: format!("{command:?}"), status }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_that_of_the_nearest_workspace() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("copy");
        let crate_of_inner = inner.join("crates/a/src");
        fs::create_dir_all(&crate_of_inner).unwrap();
        assert_eq!(root_above(&crate_of_inner), None);
        fs::write(outer.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        assert_eq!(root_above(&crate_of_inner), Some(outer.path()));
        fs::write(inner.join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
        fs::write(inner.join("crates/a/Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
        assert_eq!(root_above(&crate_of_inner), Some(inner.as_path()));
    }

    #[test]
    fn cargo_hears_nothing_of_the_package_that_starts_it() {
        // The tests themselves are started by cargo, which says a lot about this package.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo(&["env"]).unwrap();
        let removed: Vec<_> = cargo.get_envs().filter(|(_, value)| value.is_none()).map(|it| it.0).collect();
        assert!(
            removed.contains(&OsStr::new("CARGO_MANIFEST_DIR"))
                && removed.contains(&OsStr::new("CARGO_PKG_NAME"))
        );
        for kept in ["CARGO_HOME", "RUSTFLAGS", "PATH"] {
            assert!(!removed.contains(&OsStr::new(kept)), "{kept}");
        }
    }
}
