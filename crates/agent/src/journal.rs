//! The journal's file: records appended in order, each with a checksum, read back after a restart.
//!
//! A record is one line: eight hexadecimal digits of CRC-32, a blank, JSON, a line end. Records that are added together
//! hold together or not at all: a blank after the JSON says that the next line belongs to it. What the records mean is
//! not known here. Nothing is synced to the disk: the journal outlives the agent, and after a crash of the whole
//! machine there are no processes left whose leases it could tell of.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Digits of the checksum and the blank after them.
const PREFIX: usize = 9;

/// Ends the JSON of a record that was added together with the next one. To a reader of JSON it is nothing.
const MORE: u8 = b' ';

/// A journal that can't be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The system refused.
    #[error("cannot {action} the journal {path}: {source}")]
    File {
        /// What was tried: "open", "read", "write to", "replace".
        action: &'static str,
        /// The journal's path.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A record can't be written as JSON. A defect of the agent.
    #[error("cannot write a record of the journal {path}: {source}")]
    Record {
        /// The journal's path.
        path: PathBuf,
        /// What the serialiser says.
        source: serde_json::Error,
    },
}

/// What stood in the journal when it was opened.
#[derive(Debug)]
pub(crate) struct Replay<R> {
    /// The whole records, in order.
    pub(crate) records: Vec<R>,
    /// What follows them is whole as well and means nothing to this version.
    pub(crate) unknown: Option<Unknown>,
}

/// A record as it was written, which this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// Its line in the file, from 1.
    pub(crate) line: usize,
    /// What cannot be read.
    pub(crate) why: String,
}

/// The part of a journal that is no whole record.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Bytes that belong to no whole record.
    bytes: usize,
    /// How many whole records come before it.
    after: usize,
    /// The file it was moved to, or why it was not.
    set_aside: std::io::Result<PathBuf>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, after) = (self.bytes, self.after);
        write!(
            out,
            "the journal is damaged after {after} whole records, which are used; the other {bytes} bytes "
        )?;
        match &self.set_aside {
            Ok(path) => write!(out, "are now in {}", path.display()),
            Err(failure) => write!(out, "cannot be set aside and will be written over: {failure}"),
        }
    }
}

/// An open journal, written by one agent only (who holds the lock is decided elsewhere).
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Length of the file up to its last whole record.
    length: u64,
    /// The file may end in what is no whole record.
    torn: bool,
    /// What was no whole record when it was opened, after so many that are.
    damaged: Vec<u8>,
    after: usize,
}

impl Journal {
    /// Opens or makes the journal and reads it. Nothing of it changes.
    pub(crate) fn open<R: DeserializeOwned>(path: &Path) -> Result<(Self, Replay<R>), JournalError> {
        let failed = |action| move |source| JournalError::File { action, path: path.to_owned(), source };
        let mut file = open_file(path).map_err(failed("open"))?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(failed("read"))?;
        let Content { records, whole, unknown } = read(&content);
        let damaged = content.split_off(whole);
        let (after, torn) = (records.len(), !damaged.is_empty());
        let journal = Self { path: path.to_owned(), file, length: whole as u64, torn, damaged, after };
        Ok((journal, Replay { records, unknown }))
    }

    /// Moves what is damaged to a file beside the journal. Where there is no room for that, the journal is used all the same.
    pub(crate) fn set_damage_aside(&mut self) -> Option<Damage> {
        let damaged = std::mem::take(&mut self.damaged);
        if damaged.is_empty() {
            return None;
        }
        let set_aside = set_aside(&self.path, &damaged);
        if set_aside.is_ok() {
            // If not now, then before the next record.
            self.torn = self.file.set_len(self.length).is_err();
        }
        Some(Damage { bytes: damaged.len(), after: self.after, set_aside })
    }

    /// Adds records, in one write.
    pub(crate) fn append<R: Serialize>(&mut self, records: &[R]) -> Result<(), JournalError> {
        let bytes = self.encode(records)?;
        if self.torn {
            self.file.set_len(self.length).map_err(|source| self.failed("write to", source))?;
            self.torn = false;
        }
        if let Err(source) = self.file.write_all(&bytes) {
            self.torn = true;
            return Err(self.failed("write to", source));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Puts `records` in the place of everything written so far; either all of it holds afterwards, or nothing changed.
    pub(crate) fn replace<R: Serialize>(&mut self, records: &[R]) -> Result<(), JournalError> {
        let bytes = self.encode(records)?;
        let next = beside(&self.path, "next");
        let write = || {
            // A file that an earlier, failed try left behind is nobody's.
            let _ = std::fs::remove_file(&next);
            let mut file = open_file(&next)?;
            file.write_all(&bytes)?;
            std::fs::rename(&next, &self.path)?;
            Ok(file)
        };
        self.file = write().map_err(|source| self.failed("replace", source))?;
        self.length = bytes.len() as u64;
        self.torn = false;
        Ok(())
    }

    /// Bytes in the journal.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    fn encode<R: Serialize>(&self, records: &[R]) -> Result<Vec<u8>, JournalError> {
        encode(records).map_err(|source| JournalError::Record { path: self.path.clone(), source })
    }

    fn failed(&self, action: &'static str, source: std::io::Error) -> JournalError {
        JournalError::File { action, path: self.path.clone(), source }
    }
}

/// Records that are added together, as they lie in the file.
pub(crate) fn encode<R: Serialize>(records: &[R]) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(records.len() * 128);
    for (following, record) in (0..records.len()).rev().zip(records) {
        let mut body = serde_json::to_vec(record)?;
        if following > 0 {
            body.push(MORE);
        }
        bytes.extend_from_slice(format!("{:08x} ", crc32fast::hash(&body)).as_bytes());
        bytes.extend_from_slice(&body);
        bytes.push(b'\n');
    }
    Ok(bytes)
}

fn open_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

/// Writes the damaged rest into the first free `<journal>.damaged-<n>`.
fn set_aside(path: &Path, rest: &[u8]) -> std::io::Result<PathBuf> {
    for number in 1_u32.. {
        let target = beside(path, &format!("damaged-{number}"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target) {
            Ok(mut file) => {
                let written = file.write_all(rest);
                if written.is_err() {
                    // Half of it is of no use; it may be what the disk is full of.
                    let _ = std::fs::remove_file(&target);
                }
                return written.map(|()| target);
            }
            Err(taken) if taken.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(source),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// What can be read of a journal.
#[derive(Debug)]
pub(crate) struct Content<R> {
    /// The records up to the first that is not whole, or was added together with one that is not; or that means nothing here.
    pub(crate) records: Vec<R>,
    /// Bytes up to the first that is not whole, or was added together with one that is not.
    pub(crate) whole: usize,
    /// The first that is whole and means nothing here.
    pub(crate) unknown: Option<Unknown>,
}

/// Reads a journal.
pub(crate) fn read<R: DeserializeOwned>(content: &[u8]) -> Content<R> {
    let mut read = Content { records: Vec::new(), whole: 0, unknown: None };
    let (mut begun, mut end) = (Vec::new(), 0);
    for (number, line) in (1..).zip(content.split_inclusive(|byte| *byte == b'\n')) {
        let Some(body) = whole(line) else { break };
        match serde_json::from_slice(body) {
            Ok(record) if read.unknown.is_none() => begun.push(record),
            Ok(_) => {}
            Err(error) => {
                read.unknown.get_or_insert_with(|| Unknown { line: number, why: error.to_string() });
            }
        }
        end += line.len();
        if body.last() != Some(&MORE) {
            read.records.append(&mut begun);
            read.whole = end;
        }
    }
    read
}

/// The JSON of a line, if it is as it was written.
fn whole(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let (prefix, body) = line.split_at_checked(PREFIX)?;
    let digits = std::str::from_utf8(prefix.strip_suffix(b" ")?).ok()?;
    let expected = u32::from_str_radix(digits, 16).ok()?;
    (crc32fast::hash(body) == expected).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(path: &Path) -> (Journal, Replay<String>) {
        let (mut journal, replay) = Journal::open(path).unwrap();
        journal.set_damage_aside();
        (journal, replay)
    }

    /// What an agent says of the journal's damage.
    fn damage(path: &Path) -> Option<Damage> {
        Journal::open::<String>(path).unwrap().0.set_damage_aside()
    }

    #[test]
    fn what_was_appended_is_read_back_in_order() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut first, empty) = journal(&path);
        assert!(empty.records.is_empty());
        first.append(&["a", "with a\nline end"]).unwrap();
        first.append(&["b"]).unwrap();
        let (second, replay) = journal(&path);
        assert_eq!(replay.records, ["a", "with a\nline end", "b"]);
        assert_eq!(second.length(), first.length());
    }

    #[test]
    fn records_that_are_added_together_are_read_together_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        journal(&path).0.append(&["before"]).unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        journal(&path).0.append(&["one", "two", "three"]).unwrap();
        let content = std::fs::read(&path).unwrap();
        for length in before..content.len() as u64 {
            std::fs::write(&path, &content[..usize::try_from(length).unwrap()]).unwrap();
            let (_, replay) = journal(&path);
            assert_eq!(replay.records, ["before"], "cut at {length}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
        }
        std::fs::write(&path, &content).unwrap();
        assert_eq!(journal(&path).1.records, ["before", "one", "two", "three"]);
    }

    #[test]
    fn cut_anywhere_the_whole_records_are_used_and_the_rest_is_set_aside() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut first, _) = journal(&path);
        for record in ["one", "two", "three"] {
            first.append(&[record]).unwrap();
        }
        let content = std::fs::read(&path).unwrap();
        let line = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in 0..content.len() {
            std::fs::write(&path, &content[..length]).unwrap();
            let damage = damage(&path);
            let (mut cut, replay) = journal(&path);
            let whole = content[..length].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(replay.records.len(), whole, "cut at {length}");
            assert_eq!(damage.is_some(), length % line != 0 && whole < 2 || length > 2 * line, "{length}");
            if let Some(damage) = damage {
                let set_aside = damage.set_aside.unwrap();
                let rest = std::fs::read(&set_aside).unwrap();
                assert_eq!(rest.len(), damage.bytes);
                assert!(content[..length].ends_with(&rest));
                std::fs::remove_file(set_aside).unwrap();
            }
            cut.append(&["after"]).unwrap();
            assert_eq!(journal(&path).1.records.last().unwrap(), "after");
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_reading_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut first, _) = journal(&path);
        for record in ["one", "two", "three"] {
            first.append(&[record]).unwrap();
        }
        let mut content = std::fs::read(&path).unwrap();
        let second = content.iter().position(|byte| *byte == b'\n').unwrap() + 12;
        content[second] ^= 4;
        std::fs::write(&path, &content).unwrap();
        assert!(damage(&path).unwrap().to_string().contains("after 1 whole records"));
        assert_eq!(journal(&path).1.records, ["one"]);
    }

    #[test]
    fn damage_that_cannot_be_set_aside_stays_until_the_next_record() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        journal(&path).0.append(&["one"]).unwrap();
        let mut content = std::fs::read(&path).unwrap();
        content.extend_from_slice(b"half a rec");
        std::fs::write(&path, &content).unwrap();
        let (mut opened, replay) = Journal::open::<String>(&path).unwrap();
        assert_eq!(replay.records, ["one"]);
        // No file can be made there any more.
        let moved = place.path().join("moved");
        std::fs::create_dir(&moved).unwrap();
        opened.path = moved.join("gone/journal");
        let said = opened.set_damage_aside().unwrap().to_string();
        assert!(said.contains("cannot be set aside and will be written over"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
        opened.append(&["two"]).unwrap();
        assert_eq!(journal(&path).1.records, ["one", "two"]);
    }

    #[test]
    fn a_record_that_means_nothing_here_is_no_damage_and_the_file_stays_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let encoded = [encode(&["one"]), encode(&["two", "three"])].map(Result::unwrap).concat();
        let newer = encode(&[serde_json::json!({"later": 1})]).unwrap();
        let content = [encoded.as_slice(), &newer, &encoded, b"torn"].concat();
        std::fs::write(&path, &content).unwrap();
        let (_, replay) = Journal::open::<String>(&path).unwrap();
        assert_eq!(replay.records, ["one", "two", "three"]);
        let unknown = replay.unknown.unwrap();
        assert_eq!(unknown.line, 4);
        assert!(unknown.why.contains("invalid type: map"), "{}", unknown.why);
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }

    #[test]
    fn replacing_keeps_only_the_new_records_and_appending_goes_on_after_them() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut first, _) = journal(&path);
        first.append(&["old"; 100]).unwrap();
        first.replace(&["snapshot"]).unwrap();
        first.append(&["new"]).unwrap();
        assert_eq!(journal(&path).1.records, ["snapshot", "new"]);
        assert_eq!(first.length(), std::fs::metadata(&path).unwrap().len());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
