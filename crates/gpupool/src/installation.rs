//! Where the files are that were installed with this program: `bin/gpupool`, `lib/libgpupool.so`, `simgpu/`.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpupool_preload::{layout, name};
use rustix::fs::StatVfsMountFlags;

/// Names the directory of `libgpupool.so`, where it is not beside the program's own.
const LIBRARY_DIRECTORY: &str = "GPUPOOL_LIB_DIR";

/// The directory in which `lib` and `simgpu` lie.
#[derive(Debug)]
pub(crate) struct Installation {
    libraries: PathBuf,
}

impl Installation {
    /// Found from `GPUPOOL_LIB_DIR`, else from where this program is.
    pub(crate) fn find() -> anyhow::Result<Self> {
        if let Some(directory) = std::env::var_os(LIBRARY_DIRECTORY).filter(|directory| !directory.is_empty())
        {
            return Ok(Self { libraries: std::path::absolute(directory)? });
        }
        let program = std::env::current_exe().context("cannot find out where this program is")?;
        let root = program.parent().and_then(Path::parent).unwrap_or(&program);
        Ok(Self { libraries: root.join("lib") })
    }

    /// The library that is loaded into every GPU program.
    pub(crate) fn shim(&self) -> anyhow::Result<PathBuf> {
        present(self.libraries.join(layout::LIBRARY))
    }

    /// What a list of preloads names so that the library is loaded into every program; an error where it would not be,
    /// into any.
    pub(crate) fn preload(&self) -> anyhow::Result<PathBuf> {
        let library = self.shim()?;
        if let Err(why) = name::check(&self.libraries) {
            bail!(
                "no program could be held: gpupool's libraries are in {}, and {why}: install gpupool elsewhere, or set \
                 {LIBRARY_DIRECTORY} to a symbolic link to that directory",
                self.libraries.display()
            );
        }
        let open = File::open(&library);
        let open =
            open.with_context(|| format!("no program could be held: {} cannot be read", library.display()))?;
        if rustix::fs::fstatvfs(&open)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            bail!(
                "no program could be held: {} lies on a file system that is mounted noexec: install gpupool elsewhere",
                library.display()
            );
        }
        let by_platform = self.libraries.join(layout::FOLDER).is_dir();
        Ok(if by_platform { layout::preload_path(&self.libraries) } else { library })
    }

    /// The directory with the simulated driver.
    pub(crate) fn simulated_driver(&self) -> anyhow::Result<PathBuf> {
        let directory = self.libraries.with_file_name("simgpu");
        present(directory.join("libcuda.so.1"))?;
        Ok(directory)
    }
}

fn present(path: PathBuf) -> anyhow::Result<PathBuf> {
    let missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    if path.metadata().map_or_else(missing, |found| !found.is_file()) {
        bail!(
            "{} is missing: lay gpupool out with `cargo xtask dist` and use target/dist/bin/gpupool, or set {LIBRARY_DIRECTORY}",
            path.display()
        );
    }
    Ok(path)
}
