//! What a process has loaded, as its memory map tells: whether the shim is in it, and whether anything can be.
//!
//! This explains a finding and decides nothing: a program can name its files as it likes.

use std::io::Read as _;

use super::WhyNotHeld;
use crate::procfs::{Proc, ProcessKey};

/// How much of a map is read, in bytes: some ten thousand mappings.
const LONGEST_MAP: u64 = 1 << 20;

/// The shim's file name.
const SHIM: &str = "libgpupool.so";

/// How the names of dynamic loaders begin: glibc's, musl's, and glibc's before 2.34.
const LOADERS: [&str; 3] = ["ld-linux", "ld-musl", "ld-2."];

/// Why a GPU process is not held.
pub(crate) fn why_not_held(proc: &Proc, key: ProcessKey) -> WhyNotHeld {
    let mut text = Vec::new();
    let read = proc.memory_map(key.pid).and_then(|map| map.take(LONGEST_MAP).read_to_end(&mut text));
    match read {
        Ok(length) if length > 0 => judge(&String::from_utf8_lossy(&text)),
        _ => WhyNotHeld::Unknown,
    }
}

fn judge(map: &str) -> WhyNotHeld {
    let names = || map.lines().filter_map(file_name);
    if names().any(|name| name == SHIM) {
        WhyNotHeld::PastTheShim
    } else if names().any(|name| LOADERS.iter().any(|loader| name.starts_with(loader))) {
        WhyNotHeld::ShimNotLoaded
    } else {
        WhyNotHeld::StaticProgram
    }
}

/// The last part of the path at a line's end: after the address, the rights, the offset, the device and the inode.
fn file_name(line: &str) -> Option<&str> {
    let path = line.split_once('/')?.1;
    path.trim_end_matches(" (deleted)").rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "55d0c0000000-55d0c0001000 r--p 00000000 fe:01 12 /usr/bin/my train\n";
    const LOADER: &str = "7f0000000000-7f0000001000 r-xp 00001000 fe:01 14 /usr/lib64/ld-linux-x86-64.so.2\n";
    const SHIM: &str = "7f1000000000-7f1000001000 r-xp 00001000 fe:01 15 /opt/lib/libgpupool.so (deleted)\n";
    const HEAP: &str = "55d0c1000000-55d0c1001000 rw-p 00000000 00:00 0 [heap]\n";

    #[test]
    fn the_map_says_whether_the_shim_is_there_and_could_be() {
        assert_eq!(judge(&[PROGRAM, HEAP, LOADER, SHIM].concat()), WhyNotHeld::PastTheShim);
        assert_eq!(judge(&[PROGRAM, HEAP, LOADER].concat()), WhyNotHeld::ShimNotLoaded);
        assert_eq!(judge(&[PROGRAM, HEAP].concat()), WhyNotHeld::StaticProgram);
    }

    #[test]
    fn this_process_runs_without_the_shim_and_a_missing_one_tells_nothing() {
        let key = Proc::default().stat(std::process::id()).unwrap().key;
        assert_eq!(why_not_held(&Proc::default(), key), WhyNotHeld::ShimNotLoaded);
        let gone = tempfile::tempdir().unwrap();
        assert_eq!(why_not_held(&Proc::at(gone.path()), key), WhyNotHeld::Unknown);
    }
}
