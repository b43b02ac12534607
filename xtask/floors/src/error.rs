//! Why a crate's floors cannot be checked at all.

use crate::floors::FloorsError;
use crate::tree::TreeError;

/// Why a crate's floors cannot be checked at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The declaration is missing or makes no sense.
    #[error(transparent)]
    Floors(#[from] FloorsError),
    /// A source file is missing or is no Rust.
    #[error(transparent)]
    Tree(#[from] TreeError),
}
