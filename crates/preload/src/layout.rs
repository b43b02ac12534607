//! The folder beside the library in which there is something to preload for every kind of program.
//!
//! The loader puts its platform's name in the place of `$PLATFORM`: glibc says `x86_64` in 64-bit programs, and up to
//! its version 2.36 `haswell` or `xeon_phi` on such processors; in 32-bit programs it says `i686` or an older one.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::stub;

/// The library's file name.
pub const LIBRARY: &str = "libgpupool.so";

/// The folder's name.
pub const FOLDER: &str = "by-platform";

/// What the loader replaces by the name of its platform (`man 8 ld.so`, "Dynamic string tokens").
const PLATFORM: &str = "$PLATFORM";

/// Platforms of 64-bit programs: for these it is the library beside the folder.
const OURS: [&str; 3] = ["x86_64", "haswell", "xeon_phi"];

/// Platforms of 32-bit programs.
const OTHERS: [&str; 4] = ["i686", "i586", "i486", "i386"];

/// What a list of preloads says for the library in `libraries`, where [`lay_out`] has made the folder beside it.
pub fn preload_path(libraries: &Path) -> PathBuf {
    libraries.join(FOLDER).join(PLATFORM).join(LIBRARY)
}

/// Makes the folder in `libraries`, or what it lacks. The library itself need not be there yet. Fails as the file system
/// does.
pub fn lay_out(libraries: &Path) -> io::Result<()> {
    let folder = libraries.join(FOLDER);
    fs::create_dir_all(&folder)?;
    for platform in OURS {
        link("..", &folder.join(platform))?;
    }
    let [first, rest @ ..] = OTHERS;
    let stub = folder.join(first).join(LIBRARY);
    if fs::read(&stub).ok().as_deref() != Some(&stub::BYTES) {
        fs::create_dir_all(folder.join(first))?;
        let next = stub.with_extension("next");
        fs::write(&next, stub::BYTES)?;
        fs::rename(&next, &stub)?;
    }
    for platform in rest {
        link(first, &folder.join(platform))?;
    }
    // For whoever loses the token on the way, as a shell does that reads the variable twice.
    link(&format!("../{LIBRARY}"), &folder.join(LIBRARY))
}

fn link(to: &str, at: &Path) -> io::Result<()> {
    match symlink(to, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_platform_finds_something_and_only_64_bit_ones_the_library() {
        let folder = tempfile::tempdir().unwrap();
        lay_out(folder.path()).unwrap();
        fs::write(folder.path().join(LIBRARY), "the library").unwrap();
        let path = preload_path(folder.path()).into_os_string().into_string().unwrap();
        let found = |platform: &str| fs::read(path.replace(PLATFORM, platform)).unwrap();
        for platform in OURS {
            assert_eq!(found(platform), b"the library", "{platform}");
        }
        for platform in OTHERS {
            assert_eq!(found(platform), stub::BYTES, "{platform}");
        }
        assert_eq!(found(""), b"the library", "where the token got lost");
    }

    #[test]
    fn laying_out_twice_mends_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        lay_out(folder.path()).unwrap();
        let stub = folder.path().join(FOLDER).join("i686").join(LIBRARY);
        fs::write(&stub, "half").unwrap();
        fs::remove_file(folder.path().join(FOLDER).join("haswell")).unwrap();
        lay_out(folder.path()).unwrap();
        assert_eq!(fs::read(&stub).unwrap(), stub::BYTES);
        assert_eq!(fs::read_link(folder.path().join(FOLDER).join("haswell")).unwrap(), Path::new(".."));
    }
}
