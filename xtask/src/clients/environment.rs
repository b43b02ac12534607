//! Python environments: pinned to the last package, made once, kept in a cache outside the target folder.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use super::scripts;
use crate::step;

/// How long the making of an environment usually takes, and how much it leaves on the disk, for those that are large.
const LARGE: &[(&str, &str)] = &[
    ("numba-cu12", "about a minute, 810 MB"),
    ("numba-cu13", "about a minute, 830 MB"),
    ("triton", "half a minute, 1 GB"),
];

/// One environment, made or not.
pub(crate) struct Environment {
    name: &'static str,
    requirements: PathBuf,
    folder: PathBuf,
}

impl Environment {
    /// The environment of a name: its folder's name holds a hash of all that it depends on, so a changed pin or
    /// another Python gives another folder.
    pub(super) fn of(name: &'static str) -> anyhow::Result<Self> {
        let requirements = scripts().join("environments").join(name).with_extension("txt");
        let mut hash = DefaultHasher::new();
        (read(&requirements)?, read(&constraints())?, python_version()?).hash(&mut hash);
        let folder = cache()?.join(format!("{name}-{:016x}", hash.finish()));
        Ok(Self { name, requirements, folder })
    }

    /// The interpreter.
    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// Makes the environment unless it is whole. Its last file says that it is; one that was interrupted is made again.
    pub(super) fn prepare(&self) -> anyhow::Result<()> {
        let parent = self.folder.parent().context("the cache is a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        // Two checkouts may want the same environment at the same time.
        let lock = File::create(self.folder.with_extension("lock"))?;
        lock.lock()?;
        let mark = self.folder.join("whole");
        if mark.exists() {
            return Ok(());
        }
        let usual =
            LARGE.iter().find(|(name, _)| *name == self.name).map_or("a few seconds", |(_, usual)| usual);
        eprintln!("    making the Python environment {} in {} ({usual})", self.name, self.folder.display());
        let start = Instant::now();
        step::succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&self.folder))?;
        self.install().with_context(|| {
            format!("cannot install {}; is PyPI, or a mirror of it, in reach?", self.requirements.display())
        })?;
        File::create(&mark)?.sync_all()?;
        eprintln!("    made in {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    fn install(&self) -> anyhow::Result<()> {
        let pip = |arguments: &[&str], file: Option<&Path>| {
            let mut pip = Command::new(self.python());
            pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]).args(arguments);
            // The second name is that of newer versions of pip, the first one older versions'.
            pip.env("PIP_CONSTRAINT", constraints()).env("PIP_BUILD_CONSTRAINT", constraints());
            step::succeed(pip.args(file))
        };
        pip(&["install", "--no-deps", "--requirement"], Some(&self.requirements))?;
        // The pins are the whole environment: nothing may be missing and no two may disagree.
        pip(&["check"], None)
    }
}

/// What packages that are published as source are built with, pinned as well.
fn constraints() -> PathBuf {
    scripts().join("environments/build-constraints.txt")
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// What `python3 --version` says.
fn python_version() -> anyhow::Result<String> {
    let output = Command::new("python3").arg("--version").output().context("cannot start python3")?;
    if !output.status.success() {
        bail!("python3 --version ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where environments are kept.
fn cache() -> anyhow::Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(cache.join("gpupool/envs"))
}
