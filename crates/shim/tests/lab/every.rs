//! Every function of the driver and of NVML, called with zeros.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use gpupool_shim::table::Entry;
use gpupool_shim::table::unhooked::{self, Reason};

/// Every name with a row, and every name without one, with the reason.
pub(crate) fn every_name() -> Vec<(String, Option<Reason>)> {
    let rows = Entry::all().map(|entry| (entry.name().to_str().unwrap().to_owned(), None));
    let rows = rows.filter(|(name, _)| name.starts_with("cu") || name.starts_with("nvml"));
    // Its answer is a text.
    let others = unhooked::all().filter(|(name, _)| *name != "nvmlErrorString");
    rows.chain(others.map(|(name, reason)| (name.to_owned(), Some(reason)))).collect()
}

/// What each function answers when everything it is given is zero.
pub(crate) fn answers(
    mut command: Command,
    stage: &str,
    names: &[(String, Option<Reason>)],
) -> BTreeMap<String, String> {
    let mut child = command.arg(stage).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let list = names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("\n");
    let writer = std::thread::spawn(move || input.write_all(list.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect()
}
