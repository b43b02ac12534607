//! What the checker answered, and what is wrong with that.

use std::io::{self, Read};

use gpupool_dump::check_config::{Report, check};

use super::breakage::{Expected, Input};
use super::{Options, verdict};

/// No line is longer, in bytes: names, labels and resources are cut.
const LONGEST_LINE: usize = 16_384;

/// What the checker answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// The exit code.
    pub(super) code: u8,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Gives a few bytes at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(7);
        self.0.read(&mut buffer[..room])
    }
}

impl Answer {
    /// Lets the checker read the input and prints its answer.
    pub(super) fn of(input: &Input) -> Self {
        Self::from(&input.bytes[..], input.options)
    }

    fn from(source: impl Read, options: Options) -> Self {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let code = match check(source, options.rules) {
            Ok(report) => {
                print(&report, options.json, &mut stdout, &mut stderr);
                u8::from(!report.is_ok())
            }
            Err(error) => {
                stderr.extend(format!("gpupool: - {error}\n").into_bytes());
                2
            }
        };
        Self { code, stdout, stderr }
    }

    /// The first word of every line on standard output.
    pub(super) fn verdict(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.stdout);
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    /// What is wrong with this answer to this input, if anything is.
    pub(super) fn fault(&self, input: &Input) -> Option<String> {
        let form = self.fault_of_form(input.options.json);
        let meaning = match &input.expected {
            Expected::NoVerdict if self.code != 2 => Err("a verdict on what is no JSON".to_owned()),
            Expected::Verdict(verdict) if self.verdict() != *verdict => {
                Err(format!("expected {verdict:?} as for the same dump without so many blanks"))
            }
            _ if self.differs_from_slow(input) => {
                Err("another answer to the same bytes when they come a few at a time".to_owned())
            }
            _ => Ok(()),
        };
        let fault = form.and(meaning).err()?;
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(300).collect::<String>();
        Some(format!(
            "{fault}: exit code {}, standard output {:?}, standard error {:?}",
            self.code,
            show(&self.stdout),
            show(&self.stderr)
        ))
    }

    /// Whether the answer hangs on how the bytes come. Large inputs would take too long.
    fn differs_from_slow(&self, input: &Input) -> bool {
        let slow = |bytes| Self::from(Slow(bytes), input.options);
        input.bytes.len() < 8192 && {
            let other = slow(&input.bytes);
            (other.code, &other.stdout, &other.stderr) != (self.code, &self.stdout, &self.stderr)
        }
    }

    fn fault_of_form(&self, json: bool) -> Result<(), String> {
        let stdout = printable(&self.stdout)?;
        let stderr = printable(&self.stderr)?;
        let warnings = stderr.lines().all(|line| line.starts_with("warning: "));
        match self.code {
            2 if !stdout.is_empty() => Err("output beside exit code 2".to_owned()),
            2 if stderr.lines().count() != 1 || !stderr.starts_with("gpupool: ") => {
                Err("no message of one line beside exit code 2".to_owned())
            }
            2 => Ok(()),
            0 | 1 if !warnings => Err("something else than warnings on standard error".to_owned()),
            code @ (0 | 1) if json => json_verdict(stdout, code == 0),
            0 => ok_line(stdout),
            1 => mismatch_lines(stdout),
            _ => Err("it ended neither with 0, 1 nor 2".to_owned()),
        }
    }
}

fn print(report: &Report, json: bool, stdout: &mut Vec<u8>, stderr: &mut Vec<u8>) {
    let printed = verdict::print_warnings(report, stderr).and_then(|()| {
        if json { verdict::print_json(report, stdout) } else { verdict::print_text(report, stdout) }
    });
    printed.unwrap_or_else(|error| unreachable!("memory takes all that is written: {error}"));
}

/// The text, if a terminal can show it without obeying it.
fn printable(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "output that is no UTF-8")?;
    let obeyed = |character: char| {
        character.is_control() && character != '\n'
            || matches!(character, '\u{2028}'..='\u{202e}' | '\u{feff}')
    };
    match text.lines().map(str::len).max() {
        _ if text.contains(obeyed) => Err("output with characters that a terminal obeys".to_owned()),
        Some(length) if length > LONGEST_LINE => Err(format!("a line of {length} bytes")),
        _ => Ok(text),
    }
}

fn ok_line(text: &str) -> Result<(), String> {
    let count = text.strip_prefix("OK=").and_then(|rest| rest.strip_suffix('\n'));
    let is_count = |count: &str| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    if count.is_some_and(is_count) { Ok(()) } else { Err("no OK line beside exit code 0".to_owned()) }
}

fn mismatch_lines(text: &str) -> Result<(), String> {
    let well_formed = |line: &str| {
        let parts = line.strip_prefix("MISMATCH=").and_then(|rest| rest.split_once(' '));
        parts.is_some_and(|(node, reason)| !node.is_empty() && !reason.trim().is_empty())
    };
    if text.ends_with('\n') && text.lines().all(well_formed) {
        Ok(())
    } else {
        Err("no MISMATCH lines beside exit code 1".to_owned())
    }
}

fn json_verdict(text: &str, ok: bool) -> Result<(), String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("a verdict that is no JSON: {error}"))?;
    let word = if ok { "ok" } else { "mismatch" };
    let some = value["mismatches"].as_array().is_some_and(|mismatches| mismatches.is_empty() == ok);
    if value["verdict"] == word && some {
        Ok(())
    } else {
        Err("a verdict that says another thing than its code".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OPTIONS, Options};
    use super::{Answer, Expected, Input};

    fn answer(code: u8, stdout: &str, stderr: &str) -> Answer {
        Answer { code, stdout: stdout.into(), stderr: stderr.into() }
    }

    const TEXT: Options = OPTIONS[0];
    const JSON: Options = OPTIONS[3];

    /// What is wrong with the form of the answer, or with its meaning.
    fn fault(answer: &Answer, expected: Expected, options: Options) -> Option<String> {
        // The bytes are too many to be read slowly as well: the answer was not given by the checker.
        answer.fault(&Input { bytes: vec![b' '; 8192], options, expected })
    }

    #[test]
    fn what_the_checker_may_answer_is_no_fault() {
        for (code, stdout, stderr) in [
            (0, "OK=12\n", ""),
            (0, "OK=0\n", "warning: nothing was judged\n"),
            (1, "MISMATCH=a label x\nMISMATCH=b 2 resources\n", "warning: node c: odd\n"),
            (2, "", "gpupool: - is empty\n"),
        ] {
            assert_eq!(fault(&answer(code, stdout, stderr), Expected::Anything, TEXT), None, "{stdout}");
        }
        let json = answer(1, r#"{"verdict":"mismatch","mismatches":[{}]}"#, "");
        assert_eq!(fault(&json, Expected::Anything, JSON), None);
        let refused = answer(2, "", "gpupool: - line 1: not JSON\n");
        assert_eq!(fault(&refused, Expected::NoVerdict, TEXT), None);
    }

    #[test]
    fn everything_else_is_a_fault() {
        for (code, stdout, stderr) in [
            (2, "OK=1\n", "gpupool: - is empty\n"),
            (2, "", ""),
            (2, "", "gpupool: one\ntwo\n"),
            (0, "", ""),
            (0, "OK=\n", ""),
            (0, "OK=1", ""),
            (0, "OK=1\nOK=1\n", ""),
            (0, "MISMATCH=a x\n", ""),
            (0, "OK=1\n", "note\n"),
            (1, "OK=1\n", ""),
            (1, "", ""),
            (1, "MISMATCH=a\n", ""),
            (1, "MISMATCH= x\n", ""),
            (1, "MISMATCH=a \u{1b}[2J\n", ""),
        ] {
            let answer = answer(code, stdout, stderr);
            assert!(fault(&answer, Expected::Anything, TEXT).is_some(), "{answer:?}");
        }
        let json = answer(0, r#"{"verdict":"mismatch","mismatches":[{}]}"#, "");
        assert!(fault(&json, Expected::Anything, JSON).is_some());
        let ok = answer(0, "OK=1\n", "");
        assert!(fault(&ok, Expected::NoVerdict, TEXT).is_some());
        assert!(fault(&ok, Expected::Verdict(vec!["OK=2".to_owned()]), TEXT).is_some());
    }
}
