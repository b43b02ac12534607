//! What kind of program a file is, as its first bytes tell: whether the loader that it names takes the library in.

/// How much of a file is looked at, in bytes: linkers put the segments' table and the loader's name right behind the
/// header.
pub const BEGINNING: usize = 4096;

/// Kinds of segments (the ELF specification): the one that names a program's loader.
const INTERPRETER: usize = 3;

/// A kind of program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program<'a> {
    /// glibc's loader for the library's own machine starts it.
    Loaded,
    /// It names no loader.
    Static,
    /// It is for a 32-bit machine.
    ThirtyTwoBit,
    /// Another C library's loader starts it.
    OtherLoader,
    /// A script: this program runs it.
    Script(&'a [u8]),
    /// None of these, or cut off before it could be told.
    Unknown,
}

impl<'a> Program<'a> {
    /// The kind of the program that begins with these bytes.
    pub fn of(beginning: &'a [u8]) -> Self {
        if let Some(line) = beginning.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
            let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
            return Self::Script(line.get(..end).unwrap_or_default());
        }
        match beginning.get(..5) {
            Some(b"\x7fELF\x02") => Self::of_64_bit(beginning).unwrap_or(Self::Unknown),
            Some(b"\x7fELF\x01") => Self::ThirtyTwoBit,
            _ => Self::Unknown,
        }
    }

    /// Nothing where the file ends before its segments' table does.
    fn of_64_bit(file: &[u8]) -> Option<Self> {
        let number = |at: usize, length: usize| -> Option<usize> {
            let bytes = file.get(at..at.checked_add(length)?)?;
            Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | usize::from(*byte)))
        };
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        for index in 0..count {
            let segment = table.checked_add(index.checked_mul(size)?)?;
            if number(segment, 4)? != INTERPRETER {
                continue;
            }
            let (start, length) = (number(segment.checked_add(8)?, 8)?, number(segment.checked_add(32)?, 8)?);
            let Some(name) = file.get(start..start.checked_add(length)?) else { return Some(Self::Loaded) };
            let name = name.strip_suffix(b"\0").unwrap_or(name);
            let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
            // Beside musl's only bionic's is in use, and that reads no such list either.
            let other = last.starts_with(b"ld-musl") || last.starts_with(b"linker");
            return Some(if other { Self::OtherLoader } else { Self::Loaded });
        }
        Some(Self::Static)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Command;

    use super::*;

    /// The beginning of a program that a compiler makes with these options.
    fn built(compiler: &str, options: &[&str]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, built) = (folder.path().join("program.c"), folder.path().join("program"));
        std::fs::write(&source, "void _start(void) {}").unwrap();
        let made = Command::new(compiler).args(options).arg("-o").arg(&built).arg(&source).status();
        assert!(made.unwrap().success());
        let mut bytes = Vec::new();
        std::fs::File::open(built).unwrap().take(BEGINNING as u64).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_first_bytes_tell_whether_a_preload_is_taken() {
        for (compiler, options, kind) in [
            ("gcc", &["-nostartfiles"][..], Program::Loaded),
            ("gcc", &["-nostartfiles", "-pie"], Program::Loaded),
            ("gcc", &["-nostartfiles", "-static"], Program::Static),
            ("gcc", &["-nostartfiles", "-static-pie"], Program::Static),
            ("gcc", &["-nostdlib", "-m32"], Program::ThirtyTwoBit),
            ("musl-gcc", &["-nostartfiles"], Program::OtherLoader),
        ] {
            assert_eq!(Program::of(&built(compiler, options)), kind, "{compiler} {options:?}");
        }
    }

    #[test]
    fn a_script_is_run_by_the_program_that_it_names() {
        for (text, program) in [
            ("#!/bin/sh\necho", "/bin/sh"),
            ("#! /usr/bin/env python3\n", "/usr/bin/env"),
            ("#!/bin/sh", "/bin/sh"),
            ("#!\n", ""),
        ] {
            assert_eq!(Program::of(text.as_bytes()), Program::Script(program.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_cut_or_no_program_tells_nothing_and_breaks_nothing() {
        let whole = built("gcc", &["-nostartfiles"]);
        for length in 0..120 {
            assert_eq!(Program::of(&whole[..length]), Program::Unknown, "{length} bytes");
        }
        assert_eq!(Program::of(b"text"), Program::Unknown);
        assert_eq!(Program::of(&[b"\x7fELF\x02".as_slice(), &[0xff; 100]].concat()), Program::Unknown);
    }
}
