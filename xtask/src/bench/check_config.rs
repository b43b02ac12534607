//! `gpupool check-config` on dumps of nodes, beside `jq` with the same judgement and Python's `json.load`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use rustix::fs::statvfs;
use tempfile::TempDir;

use super::node_dump;
use super::report::{self, Bar, Figure, Line};
use crate::machine;
use crate::{setup, step};

/// How long the dumps are, what that is called, and how often each program reads one. Odd, for the median.
const DUMPS: &[(u64, &str, usize)] =
    &[(10_000_000, "10 MB", 5), (100_000_000, "100 MB", 3), (1_000_000_000, "1 GB", 1)];
/// The design's bar on memory, for the longest dump.
const MOST_MEMORY: f64 = 64.0 * 1024.0 * 1024.0;
/// Bytes of memory that the others may take for a byte of dump. Measured: jq 1.6 takes 3, Python 4.
const PEERS_MEMORY: u64 = 6;
/// Room beside a dump that must stay free on the disk, in bytes.
const SPARE: u64 = 200_000_000;

const PYTHON: &str = "import json, sys\nwith open(sys.argv[1], 'rb') as dump: json.load(dump)";

/// What one program needed, in every round.
#[derive(Debug, Default)]
struct Needed {
    nanoseconds: Vec<f64>,
    /// Peak resident memory.
    bytes: Vec<f64>,
}

pub(crate) fn measure(dist: &Path) -> anyhow::Result<()> {
    setup::provide(&[setup::PYTHON, setup::JQ])?;
    let folder = TempDir::with_prefix("gpupool-bench-")?;
    let spent = machine::compile("spent", folder.path())?;
    for &(bytes, size, rounds) in DUMPS {
        match room(folder.path(), bytes)? {
            Some(missing) => report::skipped(&format!("check-config, {size}"), &missing),
            None => one_dump(&Place { dist, folder: folder.path(), spent: &spent }, bytes, size, rounds)?,
        }
    }
    Ok(())
}

/// What is missing for a dump of this length, if anything is.
fn room(folder: &Path, bytes: u64) -> anyhow::Result<Option<String>> {
    let disk = statvfs(folder).context("cannot ask for the room on the disk")?;
    let free = disk.f_bavail * disk.f_frsize;
    if free < bytes + SPARE {
        let wanted = (bytes + SPARE) / 1_000_000;
        let (free, folder) = (free / 1_000_000, folder.display());
        return Ok(Some(format!(
            "{folder} has {free} MB free, {wanted} are needed; TMPDIR names another place"
        )));
    }
    let text = fs::read_to_string("/proc/meminfo").context("cannot read how much memory there is")?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = available.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let available = available.context("/proc/meminfo does not say MemAvailable")? * 1024;
    let wanted = bytes * PEERS_MEMORY;
    Ok((available < wanted).then(|| {
        let (available, wanted) = (available / 1_000_000, wanted / 1_000_000);
        format!("{available} MB of memory are available, jq and Python need up to {wanted}")
    }))
}

/// Where a measurement finds its programs and leaves its files.
#[derive(Debug)]
struct Place<'a> {
    dist: &'a Path,
    folder: &'a Path,
    spent: &'a Path,
}

/// Writes a dump, lets every program read it in turn, prints and removes it.
fn one_dump(place: &Place<'_>, bytes: u64, size: &str, rounds: usize) -> anyhow::Result<()> {
    let dump = place.folder.join("nodes.json");
    let nodes = node_dump::write(&dump, bytes)?;
    let length = fs::metadata(&dump)?.len();
    let [mut ours, mut jq, mut python] = [(); 3].map(|()| Needed::default());
    for _ in 0..rounds {
        let our_verdict = place.run(&checker(place.dist, &dump), &mut ours)?;
        let jq_verdict = place.run(&jq_program(&dump), &mut jq)?;
        place.run(&python_program(&dump), &mut python)?;
        let (our_words, jq_words) = (named(&our_verdict), named(&jq_verdict));
        ensure!(our_words == jq_words, "gpupool says {our_words:?}, jq says {jq_words:?}");
    }
    fs::remove_file(&dump)?;
    print(&format!("{size}, {nodes} nodes"), length, [&mut ours, &mut jq, &mut python], bytes);
    Ok(())
}

fn print(dump: &str, length: u64, [ours, jq, python]: [&mut Needed; 3], bytes: u64) {
    let longest = DUMPS.iter().all(|(other, ..)| *other <= bytes);
    let times = [&*ours, &*jq, &*python].map(|needed| middle(&needed.nanoseconds));
    let memory = [&*ours, &*jq, &*python].map(|needed| middle(&needed.bytes));
    #[allow(clippy::cast_precision_loss, reason = "no dump is longer than 2^53 bytes")]
    let rate = |nanoseconds: f64| Figure::BytesPerSecond(length as f64 / nanoseconds * 1e9);
    let line = |what: &str, bare, ours, bar| {
        report::print(&Line { what: format!("check-config, {dump}: {what}"), bare, ours, bar });
    };
    let [our_time, jq_time, python_time] = times.map(Figure::Nanoseconds);
    line("time, jq", jq_time, our_time, Some(Bar::Faster(10.0)));
    line("time, json.load", python_time, our_time, None);
    line("rate, jq", rate(times[1]), rate(times[0]), None);
    let [our_memory, jq_memory, python_memory] = memory.map(Figure::Bytes);
    line("memory, jq", jq_memory, our_memory, longest.then_some(Bar::Memory(MOST_MEMORY)));
    line("memory, json.load", python_memory, our_memory, None);
}

fn middle(samples: &[f64]) -> f64 {
    report::percentile(&mut samples.to_vec(), 50)
}

impl Place<'_> {
    /// Runs a command under `spent.c`. All three end with 0 or, for a verdict that something is wrong, with 1.
    fn run(&self, words: &[PathBuf], needed: &mut Needed) -> anyhow::Result<Output> {
        let figures = self.folder.join("spent.txt");
        let mut command = Command::new(self.spent);
        let output = command.arg(&figures).args(words).output()?;
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let text = fs::read_to_string(&figures)?;
        let (nanoseconds, bytes) = text.trim().split_once(' ').context("spent.c prints two figures")?;
        needed.nanoseconds.push(nanoseconds.parse()?);
        needed.bytes.push(bytes.parse()?);
        Ok(output)
    }
}

fn checker(dist: &Path, dump: &Path) -> Vec<PathBuf> {
    vec![dist.join("bin/gpupool"), "check-config".into(), dump.to_owned()]
}

fn jq_program(dump: &Path) -> Vec<PathBuf> {
    let program = step::root().join("xtask/bench/check-config.jq");
    vec!["jq".into(), "--raw-output".into(), "--from-file".into(), program, dump.to_owned()]
}

fn python_program(dump: &Path) -> Vec<PathBuf> {
    vec!["python3".into(), "-c".into(), PYTHON.into(), dump.to_owned()]
}

/// The verdict without its reasons, which are each program's own: how many are well, or which are not.
fn named(output: &Output) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
