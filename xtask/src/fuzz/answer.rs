//! What the checker answered, and what is wrong with that.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::breakage::{Expected, Input};

/// After this many seconds the checker hangs. It needs milliseconds; a busy machine may need more.
const PATIENCE: i64 = 60;
/// No line is longer, in bytes: names, labels and resources are cut.
const LONGEST_LINE: usize = 16_384;

/// What the checker answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// The exit code; none when a signal or we ended it.
    pub(super) code: Option<i32>,
    ended_in_time: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Answer {
    /// Lets the checker read these bytes from its standard input.
    pub(super) fn of(program: &Path, bytes: &[u8], options: &[&str]) -> anyhow::Result<Self> {
        let [mut input, stdout, stderr] = [memory_file()?, memory_file()?, memory_file()?];
        input.write_all(bytes)?;
        input.rewind()?;
        let mut child = Command::new(program)
            .args(["check-config", "-"])
            .args(options)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = Pid::from_raw(child.id().try_into()?).context("a process id is positive")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
        let ended_in_time = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience))? > 0;
        if !ended_in_time {
            child.kill()?;
        }
        let code = child.wait()?.code();
        Ok(Self { code, ended_in_time, stdout: content(stdout)?, stderr: content(stderr)? })
    }

    /// The first word of every line on standard output.
    pub(super) fn verdict(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.stdout);
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    /// What is wrong with this answer to this input, if anything is.
    pub(super) fn fault(&self, input: &Input) -> Option<String> {
        let form = self.fault_of_form(input.options.contains(&"json"));
        let meaning = match &input.expected {
            Expected::NoVerdict if self.code != Some(2) => Err("a verdict on what is no JSON".to_owned()),
            Expected::Verdict(verdict) if self.verdict() != *verdict => {
                Err(format!("expected {verdict:?} as for the same dump without so many blanks"))
            }
            _ => Ok(()),
        };
        let fault = form.and(meaning).err()?;
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(300).collect::<String>();
        Some(format!(
            "{fault}: exit code {:?}, standard output {:?}, standard error {:?}",
            self.code,
            show(&self.stdout),
            show(&self.stderr)
        ))
    }

    fn fault_of_form(&self, json: bool) -> Result<(), String> {
        if !self.ended_in_time {
            return Err(format!("no answer within {PATIENCE} s"));
        }
        let stdout = printable(&self.stdout)?;
        let stderr = printable(&self.stderr)?;
        if stderr.contains("panicked") {
            return Err("it panicked".to_owned());
        }
        let warnings = stderr.lines().all(|line| line.starts_with("warning: "));
        match self.code {
            Some(2) if !stdout.is_empty() => Err("output beside exit code 2".to_owned()),
            Some(2) if stderr.lines().count() != 1 || !stderr.starts_with("gpupool: ") => {
                Err("no message of one line beside exit code 2".to_owned())
            }
            Some(2) => Ok(()),
            Some(0 | 1) if !warnings => Err("something else than warnings on standard error".to_owned()),
            Some(code @ (0 | 1)) if json => json_verdict(stdout, code == 0),
            Some(0) => ok_line(stdout),
            Some(1) => mismatch_lines(stdout),
            _ => Err("it ended neither with 0, 1 nor 2".to_owned()),
        }
    }
}

fn memory_file() -> anyhow::Result<File> {
    Ok(memfd_create("fuzz", MemfdFlags::CLOEXEC)?.into())
}

fn content(mut file: File) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
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
    use super::{Answer, Expected, Input};

    fn answer(code: Option<i32>, stdout: &str, stderr: &str) -> Answer {
        Answer { code, ended_in_time: true, stdout: stdout.into(), stderr: stderr.into() }
    }

    fn fault(answer: &Answer, expected: Expected, options: &'static [&'static str]) -> Option<String> {
        answer.fault(&Input { bytes: Vec::new(), options, expected })
    }

    #[test]
    fn what_the_checker_may_answer_is_no_fault() {
        for (code, stdout, stderr) in [
            (0, "OK=12\n", ""),
            (0, "OK=0\n", "warning: nothing was judged\n"),
            (1, "MISMATCH=a label x\nMISMATCH=b 2 resources\n", "warning: node c: odd\n"),
            (2, "", "gpupool: - is empty\n"),
        ] {
            assert_eq!(fault(&answer(Some(code), stdout, stderr), Expected::Anything, &[]), None, "{stdout}");
        }
        let json = answer(Some(1), r#"{"verdict":"mismatch","mismatches":[{}]}"#, "");
        assert_eq!(fault(&json, Expected::Anything, &["--output", "json"]), None);
        let refused = answer(Some(2), "", "gpupool: - line 1: not JSON\n");
        assert_eq!(fault(&refused, Expected::NoVerdict, &[]), None);
    }

    #[test]
    fn everything_else_is_a_fault() {
        for (code, stdout, stderr) in [
            (None, "", ""),
            (Some(101), "", "thread 'main' panicked at a.rs:1:1\n"),
            (Some(134), "", ""),
            (Some(2), "OK=1\n", "gpupool: - is empty\n"),
            (Some(2), "", ""),
            (Some(2), "", "gpupool: one\ntwo\n"),
            (Some(0), "", ""),
            (Some(0), "OK=\n", ""),
            (Some(0), "OK=1", ""),
            (Some(0), "OK=1\nOK=1\n", ""),
            (Some(0), "MISMATCH=a x\n", ""),
            (Some(0), "OK=1\n", "note\n"),
            (Some(1), "OK=1\n", ""),
            (Some(1), "", ""),
            (Some(1), "MISMATCH=a\n", ""),
            (Some(1), "MISMATCH= x\n", ""),
            (Some(1), "MISMATCH=a \u{1b}[2J\n", ""),
        ] {
            let answer = answer(code, stdout, stderr);
            assert!(fault(&answer, Expected::Anything, &[]).is_some(), "{answer:?}");
        }
        let late = Answer { ended_in_time: false, ..answer(None, "", "") };
        assert!(fault(&late, Expected::Anything, &[]).is_some());
        let json = answer(Some(0), r#"{"verdict":"mismatch","mismatches":[{}]}"#, "");
        assert!(fault(&json, Expected::Anything, &["--output", "json"]).is_some());
        let ok = answer(Some(0), "OK=1\n", "");
        assert!(fault(&ok, Expected::NoVerdict, &[]).is_some());
        assert!(fault(&ok, Expected::Verdict(vec!["OK=2".to_owned()]), &[]).is_some());
    }
}
