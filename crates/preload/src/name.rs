//! What a path may not contain to stand in a list of preloads.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A path that no list of preloads can hold: the loader takes it apart or changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlistable(char);

/// Whether a list of preloads can hold the path of this folder.
pub fn check(folder: &Path) -> Result<(), Unlistable> {
    // The first two separate names in `LD_PRELOAD`, and in the system's list also white space does; the third begins what
    // the loader replaces.
    let wrong = |byte: &&u8| matches!(byte, b' ' | b':' | b'$' | b'\t' | b'\n');
    match folder.as_os_str().as_bytes().iter().find(wrong) {
        Some(byte) => Err(Unlistable(char::from(*byte))),
        None => Ok(()),
    }
}

impl fmt::Display for Unlistable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            ' ' => "a space",
            ':' => "a colon",
            '$' => "a dollar sign",
            _ => "white space",
        };
        write!(out, "it has {what} in it, and no list of preloads can name such a path")
    }
}

impl std::error::Error for Unlistable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_loader_takes_literally_can_be_listed() {
        for right in ["/usr/lib/gpupool", "/opt/über/lib", "/a-b_c.d/+,;%~"] {
            assert_eq!(check(Path::new(right)), Ok(()), "{right}");
        }
        for (wrong, what) in [
            ("/home/me/My Programs/lib", "a space"),
            ("/opt/gpu:pool/lib", "a colon"),
            ("/opt/$LIB/lib", "dollar"),
            ("/opt/a\tb", "white space"),
        ] {
            assert!(check(Path::new(wrong)).unwrap_err().to_string().contains(what), "{wrong}");
        }
    }
}
