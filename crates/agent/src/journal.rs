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
    /// What could not be read, and where it is now.
    pub(crate) damage: Option<Damage>,
}

/// The part of a journal that is no whole record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Bytes that belong to no whole record.
    pub(crate) bytes: u64,
    /// How many whole records come before it.
    pub(crate) after: usize,
    /// The file it was moved to.
    pub(crate) set_aside: PathBuf,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "the journal is damaged after {} whole records, which are used; the other {} bytes are now in {}",
            self.after,
            self.bytes,
            self.set_aside.display()
        )
    }
}

/// An open journal, written by one agent only (who holds the lock is decided elsewhere).
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Length of the file up to its last whole record.
    length: u64,
    /// The file may end in half a record, because the last write failed.
    torn: bool,
}

impl Journal {
    /// Opens or makes the journal and reads it. What is damaged is moved to a file beside it.
    pub(crate) fn open<R: DeserializeOwned>(path: &Path) -> Result<(Self, Replay<R>), JournalError> {
        let failed = |action| move |source| JournalError::File { action, path: path.to_owned(), source };
        let mut file = open_file(path).map_err(failed("open"))?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(failed("read"))?;
        let (records, whole) = whole_records(&content);
        let mut damage = None;
        if let Some(rest) = content.get(whole..).filter(|rest| !rest.is_empty()) {
            let set_aside = set_aside(path, rest).map_err(failed("set aside the damaged end of"))?;
            damage = Some(Damage { bytes: rest.len() as u64, after: records.len(), set_aside });
            file.set_len(whole as u64).map_err(failed("write to"))?;
        }
        let journal = Self { path: path.to_owned(), file, length: whole as u64, torn: false };
        Ok((journal, Replay { records, damage }))
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
            Ok(mut file) => return file.write_all(rest).map(|()| target),
            Err(taken) if taken.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(source),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// The records up to the first that is not whole, or was added together with one that is not; and the length of them all
/// in bytes.
pub(crate) fn whole_records<R: DeserializeOwned>(content: &[u8]) -> (Vec<R>, usize) {
    let (mut records, mut read) = (Vec::new(), 0);
    let (mut count, mut whole) = (0, 0);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let Some(record) = decode(line) else { break };
        records.push(record);
        read += line.len();
        if !line.ends_with(&[MORE, b'\n']) {
            (count, whole) = (records.len(), read);
        }
    }
    records.truncate(count);
    (records, whole)
}

fn decode<R: DeserializeOwned>(line: &[u8]) -> Option<R> {
    let line = line.strip_suffix(b"\n")?;
    let (prefix, body) = line.split_at_checked(PREFIX)?;
    let digits = std::str::from_utf8(prefix.strip_suffix(b" ")?).ok()?;
    let expected = u32::from_str_radix(digits, 16).ok()?;
    if crc32fast::hash(body) != expected {
        return None;
    }
    serde_json::from_slice(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(path: &Path) -> (Journal, Replay<String>) {
        Journal::open(path).unwrap()
    }

    #[test]
    fn what_was_appended_is_read_back_in_order() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let (mut first, empty) = journal(&path);
        assert!(empty.records.is_empty() && empty.damage.is_none());
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
            let (mut cut, replay) = journal(&path);
            let whole = content[..length].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(replay.records.len(), whole, "cut at {length}");
            assert_eq!(
                replay.damage.is_some(),
                length % line != 0 && whole < 2 || length > 2 * line,
                "{length}"
            );
            if let Some(damage) = replay.damage {
                let rest = std::fs::read(&damage.set_aside).unwrap();
                assert_eq!(rest.len() as u64, damage.bytes);
                assert!(content[..length].ends_with(&rest));
                std::fs::remove_file(damage.set_aside).unwrap();
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
        let (_, replay) = journal(&path);
        assert_eq!(replay.records, ["one"]);
        assert!(replay.damage.unwrap().to_string().contains("after 1 whole records"));
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
