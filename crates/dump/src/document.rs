//! Dumps of Kubernetes objects: what `kubectl get … -o json` or `-o yaml` saved, read one object at a time.
//!
//! JSON is read through a window of bounded size, so that a dump of any length takes little memory: only what a
//! [`ObjectPart`] asks for is kept, and only while its object is looked at. YAML is read whole. A dump that is not
//! exactly one List or one object is refused; nothing is guessed. What the objects mean is not known here.

mod list;
mod yaml;

mod window;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

use window::Window;

use crate::error::{DumpError, ObjectError};

/// A kind of object, and the part of it that is read.
pub(crate) trait ObjectPart: 'static {
    /// The part, borrowing from the window.
    type Part<'a>: Deserialize<'a>;

    /// The object's `kind`.
    const KIND: &'static str;

    /// The object's own `kind` and `apiVersion`, where it states them.
    fn header<'i>(part: &'i Self::Part<'_>) -> Header<'i>;
}

/// What an object says it is. Objects inside a typed list may leave it out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header<'a> {
    pub(crate) kind: Option<&'a str>,
    pub(crate) api_version: Option<&'a str>,
}

/// What is done with each object; an error ends the reading.
type ForEach<'e, P> = dyn FnMut(<P as ObjectPart>::Part<'_>) -> Result<(), ObjectError> + 'e;

/// Opens a dump: a file, or standard input for `-`.
pub fn open(path: &Path) -> Result<Box<dyn Read>, DumpError> {
    if path.as_os_str() == "-" {
        Ok(Box::new(io::stdin().lock()))
    } else {
        Ok(Box::new(File::open(path).map_err(DumpError::Open)?))
    }
}

/// Reads the objects of a dump, in the order in which they stand there.
///
/// Nothing that `each` was given means anything until the whole dump has been read: a cut dump shows only then.
pub(crate) fn read<P: ObjectPart>(source: impl Read, each: &mut ForEach<'_, P>) -> Result<(), DumpError> {
    let mut window = Window::over(source)?;
    match window.peek()? {
        None => Err(DumpError::Empty),
        // YAML may begin with a brace too, but nobody's tools write that.
        Some(b'{') => list::read::<P>(&mut window, list::Origin::Json, each),
        Some(b'[') => Err(DumpError::BareArray(P::KIND)),
        Some(_) => {
            let json = yaml::to_json(&window.rest()?)?;
            list::read::<P>(&mut Window::over(json.as_bytes())?, list::Origin::Yaml, each)
        }
    }
}
