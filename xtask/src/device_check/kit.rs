//! Everything that a run needs, in one folder that can be carried to a machine with a GPU: no Rust, no network and no
//! compiler are needed there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::step;

/// The script that starts a run from the folder that it lies in.
const SCRIPT: &str = "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\nexec \"$here/xtask\" device-check --from \"$here\" \"$@\"\n";

/// What is copied from the sources.
const SOURCES: [(&str, &str); 3] = [
    ("clients/lookups.tsv", "lookups.tsv"),
    ("xtask/device/pytorch.py", "pytorch.py"),
    ("xtask/device/cupy_arrays.py", "cupy_arrays.py"),
];

/// A laid-out folder.
#[derive(Debug)]
pub(super) struct Kit {
    folder: PathBuf,
}

/// Where the kit of this checkout lies.
pub(super) fn default_folder() -> PathBuf {
    step::root().join("target/device-check")
}

impl Kit {
    /// Compiles and copies everything into `folder`.
    pub(super) fn lay_out(dist: &Path, folder: &Path) -> anyhow::Result<Self> {
        for part in [
            "bin/gpupool",
            "lib/libgpupool.so",
            "simgpu/libcuda.so.1",
            "simgpu/libnvidia-ml.so.1",
            "simgpu/nvidia-smi",
        ] {
            place(&dist.join(part), &folder.join(part))?;
        }
        // This program itself, also when the tests have put a newer one in its place.
        place(Path::new("/proc/self/exe"), &folder.join("xtask"))?;
        for (source, name) in SOURCES {
            place(&step::root().join(source), &folder.join(name))?;
        }
        compile(&folder.join("probe"))?;
        for program in ["bin/gpupool", "xtask"] {
            // What is carried should be small; a machine without strip carries more.
            let _ = Command::new("strip").arg(folder.join(program)).status();
        }
        let script = folder.join("run");
        fs::write(&script, SCRIPT)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(Self { folder: std::path::absolute(folder)? })
    }

    /// Takes a folder that was laid out elsewhere.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        if !folder.join("probe").exists() {
            bail!(
                "{} is no kit: lay one out with cargo xtask device-check --prepare FOLDER",
                folder.display()
            );
        }
        Ok(Self { folder: std::path::absolute(folder)? })
    }

    /// The folder; `bin`, `lib` and `simgpu` in it are laid out as in `target/dist`.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Compiles the probe.
pub(super) fn compile(program: &Path) -> anyhow::Result<()> {
    let mut sources: Vec<PathBuf> = fs::read_dir(step::root().join("xtask/device"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).args(sources).arg("-ldl");
    step::succeed(&mut gcc)
}

fn place(from: &Path, to: &Path) -> anyhow::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    let new = to.with_extension("new");
    fs::copy(from, &new).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::rename(&new, to).with_context(|| format!("cannot put {} in its place", to.display()))
}
