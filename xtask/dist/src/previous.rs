//! The release before this one: its program and its shim, beside today's simulated GPU, for tests of upgrades and
//! roll-backs.
//!
//! Its commit is named by `xtask/previous-release.txt`. It is built once, from what git has of it, and kept in a cache
//! outside the target folder. A folder there appears by a rename, so one that exists is complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::cargo::{cargo, command, succeed, target_folder};
use crate::layout::{self, Place};

/// What is kept of it, as `cargo` leaves it and as it is laid out.
const BUILT: &[Place] =
    &[("quick/gpupool", "bin/gpupool"), ("preload/libgpupool_shim.so", "lib/libgpupool.so")];

/// Today's: what a driver is does not change with gpupool.
const SIMULATED: &[&str] = &["simgpu/libcuda.so.1", "simgpu/libnvidia-ml.so.1", "simgpu/nvidia-smi"];

/// The commit of the release before.
pub fn previous_commit() -> &'static str {
    include_str!("../../previous-release.txt").trim()
}

/// The release before, laid out as [`crate::given_or_built`] lays out this one; built first where it is not there yet.
/// `current` is this one. A clone without that commit is [`Error::NoCommit`].
pub fn previous_release(current: &Path) -> Result<PathBuf, Error> {
    let kept = kept_or_built(previous_commit())?;
    let folder = target_folder()?.join("previous");
    let _lock = lock(&folder)?;
    for (_, file) in BUILT {
        layout::place(&kept.join(file), &folder.join(file))?;
    }
    for file in SIMULATED {
        layout::place(&current.join(file), &folder.join(file))?;
    }
    layout::lay_out_preload(&folder.join("lib"))?;
    Ok(folder)
}

/// Waits until nobody else makes this folder.
fn lock(folder: &Path) -> Result<File, Error> {
    let lock = folder.with_extension("lock");
    let parent = lock.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
    let locked = File::create(&lock).map_err(Error::file("create", &lock))?;
    locked.lock().map_err(Error::file("lock", &lock))?;
    Ok(locked)
}

/// The folder of the cache with what was built of a commit.
fn kept_or_built(commit: &str) -> Result<PathBuf, Error> {
    let folder = cache()?.join(format!("release-{commit}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    if !is_here(commit)? {
        return Err(Error::NoCommit(commit.to_owned()));
    }
    let _lock = lock(&folder)?;
    if !folder.is_dir() {
        layout::tell("==> building the release before this one (some minutes, once)");
        let work = folder.with_extension("work");
        remove(&work)?;
        build(commit, &work)?;
        let done = work.join("done");
        for (built, file) in BUILT {
            layout::place(&work.join("target").join(built), &done.join(file))?;
        }
        fs::rename(&done, &folder).map_err(Error::file("put in its place", &folder))?;
        remove(&work)?;
    }
    Ok(folder)
}

/// Whether git has the commit.
fn is_here(commit: &str) -> Result<bool, Error> {
    let mut git = command("git")?;
    git.args(["cat-file", "-e", &format!("{commit}^{{commit}}")]).stderr(Stdio::null());
    // A machine without git has no commits either.
    Ok(git.status().is_ok_and(|status| status.success()))
}

/// Builds the commit in `work`.
fn build(commit: &str, work: &Path) -> Result<(), Error> {
    let source = work.join("source");
    fs::create_dir_all(&source).map_err(Error::file("create", &source))?;
    let archive = work.join("source.tar");
    succeed(command("git")?.args(["archive", "--output"]).arg(&archive).arg(commit))?;
    succeed(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    let program =
        ["build", "--locked", "--quiet", "--profile=quick", "--package=gpupool", "--no-default-features"];
    let shim = ["rustc", "--locked", "--quiet", "--profile=preload", "--features=preload"];
    let library = ["--package=gpupool-shim", "--lib", "--crate-type=cdylib"];
    for arguments in [&program[..], &[&shim[..], &library].concat()] {
        let mut cargo = cargo(arguments)?;
        succeed(cargo.current_dir(&source).env("CARGO_TARGET_DIR", work.join("target")))?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// `$XDG_CACHE_HOME/gpupool`, or below `~/.cache`.
fn cache() -> Result<PathBuf, Error> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(base.ok_or(Error::NoCache)?.join("gpupool"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_before_is_named_by_a_whole_commit() {
        let commit = previous_commit();
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{commit:?}");
    }

    #[test]
    fn a_commit_that_the_clone_does_not_have_is_told_by_its_name() {
        let missing = "0123456789012345678901234567890123456789";
        let error = kept_or_built(missing).unwrap_err();
        assert!(matches!(&error, Error::NoCommit(commit) if commit == missing));
        assert!(error.to_string().contains("git fetch --unshallow"), "{error}");
    }
}
