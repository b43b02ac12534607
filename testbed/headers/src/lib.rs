//! CUDA's and NVML's published headers: the names that they declare, which a test holds a table of names against, and
//! the headers themselves, which a test compiles a program against.
//!
//! The headers come from NVIDIA's wheels on `PyPI`, two releases of them, fetched once (a few seconds, 25 MB) into
//! `$XDG_CACHE_HOME/gpupool/headers` or below `~/.cache`. Names, versions and signatures are read there at test time;
//! nothing of the headers is kept in this repository.
//!
//! ```no_run
//! use gpupool_headers::{Headers, Release};
//!
//! let headers = Headers::fetch()?;
//! for function in headers.driver_functions(Release::Cuda13)? {
//!     println!("{} answers {} from {}", function.symbol, function.base, function.version);
//! }
//! let names = headers.nvml_functions(Release::Cuda13)?;
//! assert!(names.contains("nvmlInit_v2"));
//! # Ok::<(), gpupool_headers::Error>(())
//! ```
//!
//! This room knows no table: what the names are good for is the caller's affair.

mod fetch;

mod driver;
mod error;
mod nvml;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use driver::{Flavour, Function};
pub use error::Error;

/// A published release of the headers. The newer one declares all that the older one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// CUDA 12.9.
    Cuda12,
    /// CUDA 13.5.
    Cuda13,
}

/// The headers, unpacked.
#[derive(Debug, Clone)]
pub struct Headers {
    folder: PathBuf,
}

impl Headers {
    /// The headers in the cache, fetched now if they are not there. Fails where they can't be had.
    pub fn fetch() -> Result<Self, Error> {
        Ok(Self { folder: fetch::folder()? })
    }

    /// Every function that a Linux driver of this release exports for CUDA's driver API: old versions, the ones for
    /// graphics and the profiler, and those with the per-thread default stream among them. In the order of symbols.
    pub fn driver_functions(&self, release: Release) -> Result<Vec<Function>, Error> {
        let include = self.include(release);
        let mut text = String::new();
        for header in driver::HEADERS {
            text += &read(&include.join(header))?;
        }
        Ok(driver::functions(&text))
    }

    /// Every function that `nvml.h` of this release declares, old versions among them.
    pub fn nvml_functions(&self, release: Release) -> Result<BTreeSet<String>, Error> {
        Ok(nvml::functions(&read(&self.nvml_include(release).join("nvml.h"))?))
    }

    /// Where `cuda.h` lies: for programs that are compiled against it.
    pub fn include(&self, release: Release) -> PathBuf {
        self.folder.join(match release {
            Release::Cuda12 => "nvidia/cuda_runtime/include",
            Release::Cuda13 => "nvidia/cu13/include",
        })
    }

    /// Where `nvml.h` lies: for programs that are compiled against it.
    pub fn nvml_include(&self, release: Release) -> PathBuf {
        self.folder.join(match release {
            Release::Cuda12 => "nvidia/nvml_dev/include",
            Release::Cuda13 => "nvidia/cu13/include",
        })
    }
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}
