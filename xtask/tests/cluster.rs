//! `cargo xtask cluster` as people use it, in a cache folder of its own.
//!
//! The programs are built first if the real cache has none: minutes, once, said on standard error.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpupool_testbed::{ClusterDescription, Tool, folder_of, holder};
use tempfile::TempDir;

/// A user who has never had a cluster, but has the programs.
struct Person {
    cache: TempDir,
}

impl Person {
    fn new() -> Self {
        Self::with(&[Tool::Kube, Tool::Kwok])
    }

    fn with(tools: &[Tool]) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let testbed = cache.path().join("gpupool/testbed");
        std::fs::create_dir_all(&testbed).unwrap();
        for &tool in tools {
            let built = folder_of(tool).unwrap();
            symlink(&built, testbed.join(built.file_name().unwrap())).unwrap();
        }
        Self { cache }
    }

    fn types(&self, action: &str) -> Output {
        self.command(&[action]).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("cluster").args(arguments).env("XDG_CACHE_HOME", self.cache.path());
        command
    }

    /// A folder for the front of the path: this build as `cargo xtask`, a runc that is not installed yet, and an installer
    /// that brings it and talks.
    fn programs_of_a_fresh_machine(&self) -> PathBuf {
        let folder = self.cache.path().join("programs");
        std::fs::create_dir(&folder).unwrap();
        let xtask = env!("CARGO_BIN_EXE_xtask");
        for (name, script) in [
            ("cargo", format!("shift; exec '{xtask}' \"$@\"")),
            ("runc", "exit 127".to_owned()),
            (
                "apt-get",
                "echo 'Reading package lists...'; [ $1 = update ] && exit\n\
                 rm -f \"$(dirname \"$0\")/runc\"; echo 'Setting up runc (1.1) ...'; echo \"$(exit 3)\""
                    .to_owned(),
            ),
        ] {
            let path = folder.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn folder(&self) -> PathBuf {
        self.cache.path().join("gpupool/testbed/people")
    }

    fn export_line(&self) -> String {
        format!("export KUBECONFIG={}\n", self.folder().join("kubeconfig").display())
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // A failed test must not leave a cluster behind.
        let _ = ClusterDescription::end(&self.folder());
    }
}

/// Standard output and standard error of a command that must succeed.
fn said(output: Output) -> (String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}{err}");
    (out, err)
}

/// Standard output and standard error together, of a command that must fail with one line.
fn refusal(output: Output) -> String {
    assert!(!output.status.success());
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_cluster_stays_up_until_it_is_taken_down_and_there_is_only_one() {
    let person = Person::new();
    assert!(refusal(person.types("env")).starts_with("no cluster is up"));
    assert!(refusal(person.types("status")).starts_with("no cluster is up"));

    let (out, _) = said(person.types("up"));
    assert_eq!(out, person.export_line());
    let (out, err) = said(person.types("up"));
    assert_eq!(out, person.export_line());
    assert!(err.starts_with("a cluster is up already"), "{err}");
    assert_eq!(said(person.types("env")).0, person.export_line());

    let (out, _) = said(person.types("status"));
    for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"] {
        let row = out.lines().find(|line| line.starts_with(&format!("{component} "))).unwrap_or_default();
        assert_eq!(row.split_whitespace().nth(4), Some("ok"), "{out}");
    }

    let script = format!("{}{} get nodes -o name", person.export_line(), kubectl(&person));
    let nodes = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(said(nodes).0, "node/node-1\n");

    said(person.types("down"));
    assert!(!person.folder().exists());
    assert!(said(person.types("down")).1.starts_with("no cluster was up"));
}

#[test]
fn a_cluster_whose_process_was_killed_is_said_to_be_dead_and_replaced() {
    let person = Person::new();
    said(person.types("up"));
    let keeper = holder(&person.folder()).unwrap().unwrap();
    assert!(Command::new("kill").args(["-9", &keeper.to_string()]).status().unwrap().success());
    let started = Instant::now();
    while holder(&person.folder()).unwrap().is_some() {
        assert!(started.elapsed() < Duration::from_mins(1), "a killed process still holds its cluster");
        std::thread::sleep(Duration::from_millis(20));
    }
    for action in ["status", "env"] {
        assert!(refusal(person.types(action)).starts_with("the cluster's process has died"));
    }
    let (out, err) = said(person.types("up"));
    assert!(err.starts_with("the last cluster's process has died; removing what it left"), "{err}");
    assert_eq!(out, person.export_line());
    said(person.types("down"));
    assert!(!person.folder().exists());
}

#[test]
fn a_cluster_that_is_being_started_is_left_alone_until_down_ends_it() {
    let person = Person::new();
    let lock = person.folder().with_extension("lock");
    // Holds the lock as a keeper does before its cluster is ready, for as long as anybody could want.
    let script = format!("exec 9>'{}'; flock 9; echo $$ >&9; exec sleep 1000", lock.display());
    let mut starting = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while holder(&person.folder()).unwrap() != Some(starting.id()) {
        assert!(started.elapsed() < Duration::from_mins(1), "the lock was never taken");
        std::thread::sleep(Duration::from_millis(20));
    }
    let sentence = format!("process {} is just starting a cluster", starting.id());
    for action in ["up", "status", "env"] {
        assert!(refusal(person.types(action)).starts_with(&sentence));
    }
    assert!(said(person.types("down")).1.starts_with("the cluster is gone"));
    assert!(!starting.wait().unwrap().success() && !lock.exists());
}

/// As the README has it, on a machine that lacks a package: the shell evaluates what the command prints, and installers
/// print a lot.
#[test]
#[ignore = "needs root"]
fn a_cluster_with_cards_has_gpupool_installed_and_every_part_of_it_is_well() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let line = readme
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .find(|line| line.starts_with("eval \"$(cargo xtask cluster up"));
    let line = line.unwrap().split('#').next().unwrap();
    let person = Person::with(&[Tool::Kube, Tool::Kwok, Tool::Init, Tool::Containerd, Tool::Helm]);
    let programs = person.programs_of_a_fresh_machine();
    let script = format!("set -e; {line}; echo \"KUBECONFIG is $KUBECONFIG\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("XDG_CACHE_HOME", person.cache.path());
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let (out, err) = said(shell.env("PATH", path).output().unwrap());
    assert_eq!(out, format!("KUBECONFIG is {}\n", person.folder().join("kubeconfig").display()));
    assert!(err.contains("Setting up runc"), "the installer was not asked: {err}");
    let (out, _) = said(person.types("status"));
    for component in ["kubelet@node-1", "containerd@node-2", "kube-scheduler", "kube-proxy"] {
        let row = out.lines().find(|line| line.starts_with(&format!("{component} "))).unwrap_or_default();
        assert_eq!(row.split_whitespace().nth(4), Some("ok"), "{out}");
    }
    let kubectl = kubectl(&person);
    let script = format!(
        "{}{kubectl} get node -l alibabacloud.com/node-type=reserved -o name; \
         {kubectl} get pods --namespace gpupool-system --no-headers -o custom-columns=:.status.phase",
        person.export_line()
    );
    let seen = said(Command::new("sh").args(["-c", &script]).output().unwrap()).0;
    // An agent on each node, and two of control.
    assert_eq!(seen, "node/node-1\nnode/node-2\nRunning\nRunning\nRunning\nRunning\n");
    said(person.types("down"));
    assert!(!person.folder().exists());
}

#[test]
#[ignore = "needs root"]
fn without_root_a_cluster_with_cards_is_refused_with_what_to_do() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let nobody = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["cluster", "up", "--cards", "2"])
        .env("XDG_CACHE_HOME", folder.path())
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let sentence = refusal(nobody);
    assert!(sentence.contains("needs root") && sentence.contains("without --cards"), "{sentence}");
}

/// The kubectl that `status` and `up` speak of.
fn kubectl(person: &Person) -> String {
    ClusterDescription::read(&person.folder()).unwrap().unwrap().kubectl.display().to_string()
}
