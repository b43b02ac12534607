//! Why a dump cannot be read.

use std::io;

/// Why a dump cannot be read, in words that the user can act on. The file's name is left to the caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DumpError {
    /// The file is not there or may not be read.
    #[error("cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// A directory, a broken disk, a closed pipe.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// Nothing but blanks.
    #[error("is empty; save a dump with `kubectl get nodes -o json`")]
    Empty,
    /// The items of a list without the list.
    #[error("is a bare array; wrap it as {{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[…]}} of {0}s")]
    BareArray(&'static str),
    /// Another encoding, such as that of a shell that writes UTF-16, or no text at all.
    #[error("line {line}: is not UTF-8 text; save the dump as UTF-8")]
    NotUtf8 {
        /// The line, counted from 1.
        line: usize,
    },
    /// The text ends in the middle.
    #[error("ends too early, at line {line} column {column}: the dump is incomplete; save it again")]
    Truncated {
        /// The line, counted from 1.
        line: usize,
        /// The column in bytes, counted from 1.
        column: usize,
    },
    /// No JSON, or not of the shape of the object.
    #[error("line {line} column {column}: {what}")]
    At {
        /// The line, counted from 1.
        line: usize,
        /// The column in bytes, counted from 1.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// No YAML.
    #[error("is neither JSON nor YAML: {0}")]
    Yaml(String),
    /// Well-formed, but not a list of what was asked for.
    #[error("{0}")]
    Content(String),
}
