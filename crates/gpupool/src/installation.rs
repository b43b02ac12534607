//! Where the files are that were installed with this program: `bin/gpupool`, `lib/libgpupool.so`, `simgpu/`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

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
        present(self.libraries.join("libgpupool.so"))
    }

    /// The directory with the simulated driver.
    pub(crate) fn simulated_driver(&self) -> anyhow::Result<PathBuf> {
        let directory = self.libraries.with_file_name("simgpu");
        present(directory.join("libcuda.so.1"))?;
        Ok(directory)
    }
}

fn present(path: PathBuf) -> anyhow::Result<PathBuf> {
    if !path.is_file() {
        bail!(
            "{} is missing: lay gpupool out with `cargo xtask dist` and use target/dist/bin/gpupool, or set {LIBRARY_DIRECTORY}",
            path.display()
        );
    }
    Ok(path)
}
