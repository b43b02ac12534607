//! Dumps of Kubernetes objects: what `kubectl get … -o json` or `-o yaml` saved, read one object at a time.
//!
//! JSON is read through a window of bounded size, so that a dump of any length takes little memory: only what a
//! [`Shape`] asks for is kept, and only while its object is looked at. YAML is read whole. A dump that is not
//! exactly one List or one object is refused; nothing is guessed. What the objects mean is not known here.

mod document;
mod error;
pub(crate) mod fields;
mod window;
mod yaml;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

pub(crate) use error::DumpError;
use window::Window;

/// A kind of object, and the part of it that is read.
pub(crate) trait Shape: 'static {
    /// The part, borrowing from the window.
    type Item<'a>: Deserialize<'a>;

    /// The object's `kind`.
    const KIND: &'static str;

    /// The object's own `kind` and `apiVersion`, where it states them.
    fn header<'i>(item: &'i Self::Item<'_>) -> Header<'i>;
}

/// What an object says it is. Objects inside a typed list may leave it out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header<'a> {
    pub(crate) kind: Option<&'a str>,
    pub(crate) api_version: Option<&'a str>,
}

/// What is done with each object; an error text ends the reading.
type Each<'e, S> = dyn FnMut(<S as Shape>::Item<'_>) -> Result<(), String> + 'e;

/// Reads the objects of a file, or of standard input for `-`, in the order in which they stand there.
///
/// Nothing that `each` was given means anything until the whole dump has been read: a cut dump shows only then.
pub(crate) fn read<S: Shape>(path: &Path, each: &mut Each<'_, S>) -> Result<(), DumpError> {
    if path.as_os_str() == "-" {
        read_from::<S>(io::stdin().lock(), each)
    } else {
        read_from::<S>(File::open(path).map_err(DumpError::Open)?, each)
    }
}

/// Reads the objects of a dump.
pub(crate) fn read_from<S: Shape>(source: impl Read, each: &mut Each<'_, S>) -> Result<(), DumpError> {
    let mut window = Window::over(source)?;
    match window.peek()? {
        None => Err(DumpError::Empty),
        // YAML may begin with a brace too, but nobody's tools write that.
        Some(b'{') => document::read::<S>(&mut window, document::Origin::Json, each),
        Some(b'[') => Err(DumpError::BareArray(S::KIND)),
        Some(_) => {
            let json = yaml::to_json(&window.rest()?)?;
            document::read::<S>(&mut Window::over(json.as_bytes())?, document::Origin::Yaml, each)
        }
    }
}
