//! Whether the command's program will have the library loaded, as far as its file tells. Programs that it starts in turn are
//! the agent's to see.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gpupool_agent::admin_api::WhyNotHeld;
use gpupool_preload::program::{BEGINNING, Program};

/// Scripts of scripts that the kernel follows.
const MOST_SCRIPTS: usize = 5;

/// Bits of a file's mode: it runs as its owner, or as its group.
const AS_OWNER: u32 = 0o4000;
const AS_GROUP: u32 = 0o2010;

/// Why a program will not be held.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotHeld {
    /// For a reason that the agent knows too.
    Kind(WhyNotHeld),
    /// It gets privileges that its caller does not have.
    Privileged,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(why) => why.fmt(out),
            Self::Privileged => out.write_str(
                "it runs with more privileges than its caller's, and takes no library from that one's environment",
            ),
        }
    }
}

/// Why the program with this name on this search path will not be held; nothing where it will, or can't be told.
pub(super) fn why_not(program: &OsStr, search: &OsStr) -> Option<NotHeld> {
    let mut file = find(program, search)?;
    for _ in 0..MOST_SCRIPTS {
        let mut beginning = Vec::new();
        File::open(&file).ok()?.take(BEGINNING as u64).read_to_end(&mut beginning).ok()?;
        let why = match Program::of(&beginning) {
            Program::Script(by) => {
                file = PathBuf::from(OsStr::from_bytes(by));
                continue;
            }
            Program::Loaded => return is_privileged(&file).then_some(NotHeld::Privileged),
            Program::Static => WhyNotHeld::StaticProgram,
            Program::ThirtyTwoBit => WhyNotHeld::ThirtyTwoBit,
            Program::OtherLoader => WhyNotHeld::OtherLoader,
            Program::Unknown => return None,
        };
        return Some(NotHeld::Kind(why));
    }
    None
}

/// The file that is started by this name.
fn find(program: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let executable =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    std::env::split_paths(search).map(|folder| folder.join(program)).find(executable)
}

/// Whether a program gets an owner, a group or capabilities that this process does not have.
fn is_privileged(file: &Path) -> bool {
    let Ok(found) = file.metadata() else { return false };
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    (found.mode() & AS_OWNER != 0 && found.uid() != user)
        || (found.mode() & AS_GROUP == AS_GROUP && found.gid() != group)
        || (user != 0 && rustix::fs::getxattr(file, "security.capability", &mut [0_u8; 64]).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn why(program: &str) -> Option<NotHeld> {
        why_not(OsStr::new(program), OsStr::new("/nowhere:/usr/bin:/bin"))
    }

    #[test]
    fn ordinary_programs_and_scripts_of_theirs_are_held_and_what_is_none_is_left_to_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
        let endless = folder.path().join("endless");
        std::fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        for program in [
            "sh",
            "/bin/sh",
            "no-such-program",
            "/etc/passwd",
            "/",
            script.to_str().unwrap(),
            endless.to_str().unwrap(),
        ] {
            assert_eq!(why(program), None, "{program}");
        }
    }

    #[test]
    fn a_static_program_is_not_held_nor_are_its_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let (source, built) = (folder.path().join("static.c"), folder.path().join("static"));
        std::fs::write(&source, "void _start(void) {}").unwrap();
        let mut gcc = std::process::Command::new("gcc");
        assert!(
            gcc.args(["-nostdlib", "-static", "-o"]).arg(&built).arg(&source).status().unwrap().success()
        );
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{} -x\n", built.display())).unwrap();
        for file in [built, script] {
            assert_eq!(why(file.to_str().unwrap()), Some(NotHeld::Kind(WhyNotHeld::StaticProgram)));
        }
    }

    #[test]
    fn a_program_that_runs_as_somebody_else_is_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("true");
        std::fs::copy("/bin/true", &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let program = copy.to_str().unwrap();
        assert_eq!(why(program), None, "its owner is its caller");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&copy, Some(65_534), None).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(why(program), Some(NotHeld::Privileged));
        }
    }
}
