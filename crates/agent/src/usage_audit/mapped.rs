//! What a process has loaded, as its memory map and its program's file tell: whether the shim is in it, and whether it
//! could be.
//!
//! This explains a finding and decides nothing: a program can name its files as it likes.

use std::fs::File;
use std::io::Read as _;

use gpupool_preload::layout::LIBRARY;
use gpupool_preload::program::{BEGINNING, Program};

use super::WhyNotHeld;
use crate::procfs::{Proc, ProcessKey};

/// How much of a map is read, in bytes: some ten thousand mappings.
const LONGEST_MAP: u64 = 1 << 20;

/// Why a GPU process is not held.
pub(crate) fn why_not_held(proc: &Proc, key: ProcessKey) -> WhyNotHeld {
    let map = proc.memory_map(key.pid).and_then(|map| beginning(map, LONGEST_MAP));
    let program = proc.program(key.pid).and_then(|file| beginning(file, BEGINNING as u64));
    match (map, program) {
        (Ok(map), Ok(program)) if !map.is_empty() => judge(&String::from_utf8_lossy(&map), &program),
        _ => WhyNotHeld::Unknown,
    }
}

fn beginning(file: File, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn judge(map: &str, program: &[u8]) -> WhyNotHeld {
    if map.lines().filter_map(file_name).any(|name| name == LIBRARY) {
        return WhyNotHeld::PastTheShim;
    }
    match Program::of(program) {
        Program::Loaded => WhyNotHeld::ShimNotLoaded,
        Program::Static => WhyNotHeld::StaticProgram,
        Program::ThirtyTwoBit => WhyNotHeld::ThirtyTwoBit,
        Program::OtherLoader => WhyNotHeld::OtherLoader,
        Program::Script(_) | Program::Unknown => WhyNotHeld::Unknown,
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
    const SHIM: &str = "7f1000000000-7f1000001000 r-xp 00001000 fe:01 15 /opt/lib/libgpupool.so (deleted)\n";
    const HEAP: &str = "55d0c1000000-55d0c1001000 rw-p 00000000 00:00 0 [heap]\n";

    /// The beginning of a program that this compiler makes with these options.
    fn program(compiler: &str, options: &[&str]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, built) = (folder.path().join("program.c"), folder.path().join("program"));
        std::fs::write(&source, "int main(void) { return 0; }").unwrap();
        let mut compiler = std::process::Command::new(compiler);
        let made = compiler.args(options).arg("-o").arg(&built).arg(&source).status();
        assert!(made.unwrap().success());
        beginning(File::open(built).unwrap(), BEGINNING as u64).unwrap()
    }

    #[test]
    fn map_and_program_say_whether_the_shim_is_there_and_could_be() {
        let (dynamic, fixed) = (program("gcc", &[]), program("gcc", &["-static"]));
        assert_eq!(judge(&[PROGRAM, HEAP, SHIM].concat(), &dynamic), WhyNotHeld::PastTheShim);
        assert_eq!(judge(&[PROGRAM, HEAP].concat(), &dynamic), WhyNotHeld::ShimNotLoaded);
        assert_eq!(judge(&[PROGRAM, HEAP].concat(), &fixed), WhyNotHeld::StaticProgram);
        assert_eq!(judge(PROGRAM, &program("gcc", &["-static-pie"])), WhyNotHeld::StaticProgram);
        let other = program("gcc", &["-m32", "-nostdlib", "-Wl,--entry=main"]);
        assert_eq!(judge(PROGRAM, &other), WhyNotHeld::ThirtyTwoBit);
        assert_eq!(judge(PROGRAM, &program("musl-gcc", &[])), WhyNotHeld::OtherLoader);
        assert_eq!(judge(PROGRAM, b"#!/bin/sh"), WhyNotHeld::Unknown);
    }

    #[test]
    fn this_process_runs_without_the_shim_and_a_missing_one_tells_nothing() {
        let key = Proc::default().stat(std::process::id()).unwrap().key;
        assert_eq!(why_not_held(&Proc::default(), key), WhyNotHeld::ShimNotLoaded);
        let gone = tempfile::tempdir().unwrap();
        assert_eq!(why_not_held(&Proc::at(gone.path()), key), WhyNotHeld::Unknown);
    }
}
