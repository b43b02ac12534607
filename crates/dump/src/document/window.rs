//! A window that moves over JSON text: whole values are read in it, and it grows only for a value that is larger.

use std::io::Read;

use serde::Deserialize;

use crate::error::{DumpError, TextFault};
use crate::fields::Text;

/// The size to begin with, in bytes. Objects are some tens of kilobytes, so that few are cut at its end. Tests take
/// one so small that everything is cut somewhere.
const SIZE: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// How near to the window's end an error may be the end's fault: the longest token that JSON can be cut in, an
/// escaped pair of surrogates, with some room.
const CUT: usize = 32;

/// A type that borrows from the window while it is looked at.
pub(super) trait Borrowed {
    /// The type, with the window's lifetime.
    type Value<'a>: Deserialize<'a>;
}

/// A string.
pub(super) struct JsonString;

impl Borrowed for JsonString {
    type Value<'a> = Text<'a>;
}

/// Any value, as its own text.
pub(super) struct RawJson;

impl Borrowed for RawJson {
    type Value<'a> = &'a serde_json::value::RawValue;
}

/// What came of one try to read a value.
enum Attempt<T> {
    /// It was read and is this long in bytes.
    Done(Result<T, TextFault>, usize),
    /// It cannot be read.
    Failed(DumpError),
    /// The window's end may have cut it.
    Cut,
}

/// The part of a text that is in memory.
pub(super) struct Window<R> {
    source: R,
    bytes: Vec<u8>,
    /// Where the next value begins.
    start: usize,
    /// Up to where the bytes are known to be UTF-8: at least `start`.
    checked: usize,
    /// Up to where bytes were read.
    filled: usize,
    /// Whether the source has no more.
    ended: bool,
    /// The place of `start` in the whole text, counted from 1.
    line: usize,
    column: usize,
}

impl<R: Read> Window<R> {
    /// A window at the beginning of a text, behind its byte order mark if it has one.
    pub(super) fn over(source: R) -> Result<Self, DumpError> {
        let (bytes, start, checked, filled) = (vec![0; SIZE], 0, 0, 0);
        let mut window = Self { source, bytes, start, checked, filled, ended: false, line: 1, column: 1 };
        window.fill()?;
        if window.text().starts_with("\u{feff}".as_bytes()) {
            window.start = 3;
        }
        Ok(window)
    }

    /// The next byte that is no blank, without taking it.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, DumpError> {
        loop {
            let blanks =
                self.text().iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            self.advance(blanks);
            if let Some(&byte) = self.text().first() {
                return Ok(Some(byte));
            }
            if self.ended {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    /// Takes the next byte that is no blank, which must be one of these.
    pub(super) fn take(&mut self, expected: &[u8]) -> Result<u8, DumpError> {
        match self.peek()? {
            Some(byte) if expected.contains(&byte) => {
                self.advance(1);
                Ok(byte)
            }
            Some(_) => {
                let wanted: Vec<_> = expected.iter().map(|&byte| format!("'{}'", char::from(byte))).collect();
                Err(self.error(TextFault::NotJson(format!("expected {}", wanted.join(" or ")))))
            }
            None => Err(self.truncated()),
        }
    }

    /// Reads the next value and does something with it.
    pub(super) fn value<B: Borrowed, T>(
        &mut self,
        mut each: impl FnMut(B::Value<'_>) -> Result<T, TextFault>,
    ) -> Result<T, DumpError> {
        loop {
            let attempt = {
                let text = self.text();
                let mut values = serde_json::Deserializer::from_slice(text).into_iter::<B::Value<'_>>();
                let value = values.next();
                let length = values.byte_offset();
                match value {
                    // A number at the very end may go on; everything else is whole.
                    Some(Ok(value)) if self.ended || length < text.len() => {
                        Attempt::Done(each(value), length)
                    }
                    Some(Err(error)) if self.ended || !may_be_cut(&error, text) => {
                        Attempt::Failed(self.parse_error(&error))
                    }
                    None if self.ended => Attempt::Failed(self.truncated()),
                    _ => Attempt::Cut,
                }
            };
            match attempt {
                Attempt::Done(done, length) => {
                    let done = done.map_err(|fault| self.error(fault))?;
                    self.advance(length);
                    return Ok(done);
                }
                Attempt::Failed(error) => return Err(error),
                Attempt::Cut => self.fill()?,
            }
        }
    }

    /// Everything from here to the end of the text.
    pub(super) fn rest(&mut self) -> Result<String, DumpError> {
        while !self.ended {
            self.fill()?;
        }
        String::from_utf8(self.text().to_vec()).map_err(|_| DumpError::NotUtf8 { line: self.line })
    }

    /// An error at this place.
    pub(super) fn error(&self, fault: TextFault) -> DumpError {
        DumpError::At { line: self.line, column: self.column, fault }
    }

    /// The error that the text ends at this place.
    pub(super) fn truncated(&self) -> DumpError {
        DumpError::Truncated { line: self.line, column: self.column }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[self.start..self.checked]
    }

    /// Reads on until the window is full. A window without room grows to twice its size.
    fn fill(&mut self) -> Result<(), DumpError> {
        self.bytes.copy_within(self.start..self.filled, 0);
        (self.checked, self.filled) = (self.checked - self.start, self.filled - self.start);
        self.start = 0;
        if self.filled == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        while !self.ended && self.filled < self.bytes.len() {
            match self.source.read(&mut self.bytes[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DumpError::Read(error)),
            }
        }
        let unchecked = &self.bytes[self.checked..self.filled];
        match std::str::from_utf8(unchecked) {
            Ok(_) => self.checked = self.filled,
            // A character that the window's end cuts.
            Err(error) if error.error_len().is_none() && !self.ended => self.checked += error.valid_up_to(),
            Err(error) => {
                let good = &self.bytes[..self.checked + error.valid_up_to()];
                return Err(DumpError::NotUtf8 { line: self.line + newlines(good) });
            }
        }
        Ok(())
    }

    fn advance(&mut self, count: usize) {
        let taken = &self.bytes[self.start..self.start + count];
        let lines = newlines(taken);
        self.line += lines;
        let behind = taken.iter().rev().take_while(|&&byte| byte != b'\n').count();
        self.column = if lines == 0 { self.column + count } else { behind + 1 };
        self.start += count;
    }

    fn parse_error(&self, error: &serde_json::Error) -> DumpError {
        let line = self.line + error.line().saturating_sub(1);
        let column = if error.line() <= 1 { self.column + error.column() } else { error.column() };
        if error.is_eof() {
            return DumpError::Truncated { line, column };
        }
        let text = error.to_string();
        // serde_json adds a place of its own, which counts from the window's start.
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        let what = gpupool_core::one_line::one_line(what, 200);
        let fault = if error.is_data() { TextFault::Unexpected(what) } else { TextFault::NotJson(what) };
        DumpError::At { line, column, fault }
    }
}

/// Whether more text could turn this error into a value.
fn may_be_cut(error: &serde_json::Error, text: &[u8]) -> bool {
    if error.is_eof() {
        return true;
    }
    let mut line_starts = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let line_start = if error.line() <= 1 { Some(0) } else { line_starts.nth(error.line() - 2) };
    !error.is_data() && line_start.is_none_or(|start| start + error.column() + CUT >= text.len())
}

fn newlines(text: &[u8]) -> usize {
    // Counted in short runs of bytes, which the compiler turns into vector instructions.
    text.chunks(255).map(|run| usize::from(run.iter().map(|&byte| u8::from(byte == b'\n')).sum::<u8>())).sum()
}
