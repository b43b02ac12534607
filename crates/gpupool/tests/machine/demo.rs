//! `gpupool demo`, as a newcomer runs it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::agent_node::{gpupool, said, wait_for};

const LAST: [&str; 2] =
    ["T1  card 0: A    card 1: C    queue: D, B", "T2  card 0: A, B    card 1: D    queue: -"];

#[test]
fn the_published_example_happens_and_ends_with_its_two_lines() {
    let place = tempfile::tempdir().unwrap();
    let output = gpupool().arg("demo").env("TMPDIR", place.path()).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}\n{}", said(&output));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[lines.len() - 2..], LAST);
    assert_eq!(lines.iter().filter(|line| line.starts_with('T')).count(), 2, "exactly the two lines\n{text}");
    let place_of = |words: &str| {
        lines.iter().position(|line| line.ends_with(words)).unwrap_or_else(|| panic!("{words}\n{text}"))
    };
    assert!(place_of("A runs on card 0") < place_of("C runs on card 1"));
    assert!(place_of("D waits, number 1 in the queue") < place_of("B waits, number 2 in the queue"));
    assert!(place_of("D runs on card 1") < place_of("B runs on card 0"));
    assert!(!text.contains('\x1b'), "no escape sequences where nobody draws");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something is left behind");
}

#[test]
fn a_demo_that_is_broken_off_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = tempfile::tempdir().unwrap();
        let mut demo =
            gpupool().arg("demo").env("TMPDIR", place.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
        // Anywhere in the middle: programs are up, or coming up.
        let _ = lines.find(|line| line.as_ref().unwrap().contains("C starts")).unwrap();
        rustix::process::kill_process(Pid::from_raw(demo.id().cast_signed()).unwrap(), signal).unwrap();
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let status = demo.wait().unwrap();
        // It may have been done before the signal came.
        assert!(status.code() == Some(1) || status.success(), "{status} {rest:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something is left behind");
        let mark = place.path().to_str().unwrap().to_owned();
        wait_for("all its processes to be gone", || (!anybody_mentions(&mark)).then_some(()));
    }
}

/// Whether a process has this text in its command line or environment.
fn anybody_mentions(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    let mentions = |id: u32| {
        ["cmdline", "environ"].iter().any(|file| {
            let content = std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
            content.windows(mark.len()).any(|window| window == mark.as_bytes())
        })
    };
    processes.filter(|id| *id != std::process::id()).any(mentions)
}
