//! The readers of code, for fuzz targets. Nothing of the driver's: programs find only the driver API's names.

use crate::error::CuError;
use crate::image::{Image, cubin as cubins, fatbin as fatbins, ptx as texts};

/// What a piece of code declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// 10 × major + minor.
    pub architecture: u32,
    /// In the order of the code.
    pub entries: Vec<Entry>,
    /// Names and bytes.
    pub variables: Vec<(String, u64)>,
}

/// An entry point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Offsets and bytes; none where the code does not say.
    pub parameters: Vec<(usize, usize)>,
    /// Most threads of a block.
    pub max_threads: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

impl From<Image> for Declared {
    fn from(image: Image) -> Self {
        let entry = |kernel: crate::image::Kernel| Entry {
            name: kernel.name.to_string_lossy().into_owned(),
            parameters: kernel.parameters.unwrap_or_default(),
            max_threads: kernel.max_threads,
            shared: kernel.shared,
        };
        let variable = |one: crate::image::Variable| (one.name.to_string_lossy().into_owned(), one.size);
        Self {
            architecture: image.architecture,
            entries: image.kernels.into_iter().map(entry).collect(),
            variables: image.variables.into_iter().map(variable).collect(),
        }
    }
}

/// Reads PTX; fails with a `CUresult`, as all of these do.
pub fn ptx(text: &str) -> Result<Declared, i32> {
    texts::parse(text).map(Declared::from).map_err(|error: CuError| error.0)
}

/// Reads a cubin.
pub fn cubin(bytes: &[u8]) -> Result<Declared, i32> {
    cubins::parse(bytes).map(Declared::from).map_err(|error| error.0)
}

/// Reads a fat binary for a card of this architecture.
pub fn fatbin(bytes: &[u8], card: u32) -> Result<Declared, i32> {
    fatbins::parse(bytes, card).map(Declared::from).map_err(|error| error.0)
}

/// How long the cubin says that it is; nothing for bytes without a whole header.
pub fn cubin_length(bytes: &[u8]) -> Option<Result<usize, i32>> {
    let header = bytes.first_chunk::<64>()?;
    // SAFETY: only the header is read, and it is there.
    Some(unsafe { cubins::length(header.as_ptr()) }.map_err(|error| error.0))
}

/// How long the fat binary says that it is; nothing for bytes without a whole header.
pub fn fatbin_length(bytes: &[u8]) -> Option<Result<usize, i32>> {
    let header = bytes.first_chunk::<16>()?;
    // SAFETY: only the header is read, and it is there.
    Some(unsafe { fatbins::length(header.as_ptr()) }.map_err(|error| error.0))
}
