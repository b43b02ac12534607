//! The first stage of `cargo xtask` beside other cargos, in a build folder of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A target folder in which another cargo is building, until what is returned is dropped.
fn busy(target: &Path) -> File {
    let debug = target.join("debug");
    fs::create_dir_all(&debug).unwrap();
    let lock = File::create(debug.join(".cargo-lock")).unwrap();
    lock.lock().unwrap();
    lock
}

fn launch(target: &Path, words: &[&str]) -> Command {
    let mut launch = Command::new(env!("CARGO_BIN_EXE_launch"));
    launch.args(words).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
    launch.stdout(Stdio::piped()).stderr(Stdio::piped());
    launch
}

#[test]
fn a_cluster_can_be_ended_while_another_cargo_builds() {
    let target = tempfile::tempdir().unwrap();
    let _lock = busy(target.path());
    let xtask = target.path().join("debug/xtask");
    fs::write(&xtask, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&xtask, Permissions::from_mode(0o755)).unwrap();
    let output = launch(target.path(), &["cluster", "down"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "cluster down\n");
    assert!(String::from_utf8(output.stderr).unwrap().contains("another cargo is building"));
}

#[test]
fn what_has_to_be_built_first_says_whom_it_waits_for() {
    let target = tempfile::tempdir().unwrap();
    let lock = busy(target.path());
    // A cargo that does nothing, so that the wait is over when the lock is.
    let cargo = target.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\nexec flock \"$CARGO_TARGET_DIR/debug/.cargo-lock\" false\n").unwrap();
    fs::set_permissions(&cargo, Permissions::from_mode(0o755)).unwrap();
    let mut waiting = launch(target.path(), &["cluster", "down"]).env("CARGO", &cargo).spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("waiting for another cargo that is building in"), "{line}");
    drop(lock);
    said.read_to_string(&mut line).unwrap();
    assert!(!waiting.wait().unwrap().success(), "{line}");
}

#[test]
fn without_a_task_the_tasks_are_listed_and_nothing_is_built() {
    let target = tempfile::tempdir().unwrap();
    let output = launch(target.path(), &["--help"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("four programs share two simulated cards"));
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}
