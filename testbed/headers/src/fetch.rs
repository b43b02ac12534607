//! Fetching the wheels once, and unpacking them into a cache outside the target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// What is unpacked. The two releases keep their files in folders of different names.
const WHEELS: [&str; 4] = [
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-nvml-dev==13.5.37",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-nvml-dev-cu12==12.9.79",
];
/// Changes with [`WHEELS`].
const NAME: &str = "13.5.37-12.9.79";

/// The folder with the unpacked wheels, made unless it is whole. Its last file says that it is; one that was
/// interrupted is made again.
pub(crate) fn folder() -> Result<PathBuf, Error> {
    let parent = cache()?;
    make(&parent)?;
    let folder = parent.join(NAME);
    // Two tests may want them at the same time.
    let lock = parent.join(format!("{NAME}.lock"));
    let lock_file = File::create(&lock).map_err(file("make", &lock))?;
    lock_file.lock().map_err(file("lock", &lock))?;
    let mark = folder.join("whole");
    if !mark.exists() {
        install(&parent, &folder)?;
        File::create(&mark).map_err(file("make", &mark))?;
    }
    Ok(folder)
}

/// The system's Python may be without an installer; one of its own always has it.
fn install(parent: &Path, folder: &Path) -> Result<(), Error> {
    let python = parent.join("python");
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&python))?;
    let installed = succeed(
        Command::new(python.join("bin/python"))
            .args(["-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"])
            .args(["install", "--no-deps", "--only-binary=:all:", "--upgrade", "--target"])
            .arg(folder)
            .args(WHEELS),
    );
    fs::remove_dir_all(&python).map_err(file("remove", &python))?;
    installed
}

fn succeed(command: &mut Command) -> Result<(), Error> {
    let line = format!("{command:?}");
    let failed = |complaint: String| Error::Command { command: line.clone(), complaint };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(failed(words.trim().lines().next_back().unwrap_or("not a word").to_owned()))
}

fn cache() -> Result<PathBuf, Error> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(base.ok_or(Error::NoCache)?.join("gpupool/headers"))
}

fn make(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(file("make", path))
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}
