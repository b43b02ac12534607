//! The declaration: which module stands on which floor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the file beside a crate's manifest.
pub const FLOORS: &str = "FLOORS";

/// Why a declaration cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FloorsError {
    /// The file is missing or unreadable.
    #[error("cannot read {}: {source}: declare the crate's floors there, top floor first", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A module is named more than once.
    #[error("{}:{line}: `{module}` stands on a floor already", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The line of the second place, from 1.
        line: usize,
        /// The module.
        module: String,
    },
}

/// A crate's floors, the top one first.
#[derive(Debug, Clone)]
pub struct Floors {
    path: PathBuf,
    places: BTreeMap<String, usize>,
    text: String,
}

impl Floors {
    /// Reads the declaration of the crate in `folder`.
    pub fn read(folder: &Path) -> Result<Self, FloorsError> {
        let path = folder.join(FLOORS);
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(path, text),
            Err(source) => Err(FloorsError::Unreadable { path, source }),
        }
    }

    fn parse(path: PathBuf, text: String) -> Result<Self, FloorsError> {
        let mut places = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let modules = line.split('#').next().unwrap_or_default();
            for module in modules.split_whitespace() {
                if places.insert(module.to_owned(), index).is_some() {
                    let module = module.to_owned();
                    return Err(FloorsError::Twice { path, line: index + 1, module });
                }
            }
        }
        Ok(Self { path, places, text })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The declaration as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The floor of a module, counted from the top; nothing for one that is not declared.
    pub(crate) fn of(&self, module: &str) -> Option<usize> {
        self.places.get(module).copied()
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }
}
