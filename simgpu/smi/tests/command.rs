//! The built program on the built library: its exit codes and what it prints.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output, Stdio};

use simgpu_device::{Machine, MachineSettings};
use tempfile::TempDir;

/// Two cards of different models, in a state of their own.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let dist = gpupool_dist::given_or_built().unwrap();
        let simulated = dist.join("simgpu");
        let mut command = Command::new(simulated.join("nvidia-smi"));
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", simulated)
            .env("SIMGPU_STATE", self.folder.path().join("state"))
            .env("SIMGPU_CARDS", "A100-80GB,T4");
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// What a call prints that has nothing to complain about.
    fn print(&self, arguments: &[&str]) -> String {
        let (code, output, complaint) = self.run(arguments);
        assert_eq!((code, complaint.as_str()), (0, ""), "{arguments:?}");
        output
    }
}

#[test]
fn the_list_has_a_line_per_card_with_a_uuid_that_finds_it() {
    let scene = Scene::new();
    let list = scene.print(&["-L"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("GPU 0: NVIDIA A100-SXM4-80GB (simulated) (UUID: GPU-"), "{list}");
    let uuid = lines[1].rsplit(' ').next().unwrap().trim_end_matches(')');
    let query = ["--query-gpu=index,name,memory.total,uuid", "--format=csv,noheader,nounits"];
    let expected = format!("1, Tesla T4 (simulated), 16384, {uuid}\n");
    for id in ["1", uuid, "00000000:0F:00.0"] {
        assert_eq!(scene.print(&[query[0], query[1], "-i", id]), expected);
    }
    assert_eq!(scene.print(&query).lines().count(), 2);
}

#[test]
fn the_table_shows_every_card_and_says_that_it_is_simulated() {
    let table = Scene::new().print(&[]);
    assert!(table.contains("NVIDIA-SMI 615.71.01 (simulated)"), "{table}");
    assert!(table.contains("CUDA Version: 13.5"), "{table}");
    assert!(table.contains("0MiB /  81920MiB") && table.contains("0MiB /  16384MiB"), "{table}");
    assert!(table.contains("No running processes found"), "{table}");
}

#[test]
fn without_programs_a_query_for_them_is_only_a_heading() {
    let query = ["--query-compute-apps=pid,process_name,used_memory,gpu_uuid", "--format=csv"];
    assert_eq!(Scene::new().print(&query), "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n");
}

#[test]
fn a_program_that_holds_memory_is_listed_on_its_card() {
    let scene = Scene::new();
    let state = scene.folder.path().join("state");
    let machine = Machine::open(&MachineSettings::new(&state, "A100-80GB,T4").unwrap()).unwrap();
    let process = machine.join().unwrap();
    process.open_context(1).unwrap();
    process.take_memory(1, 100 << 20).unwrap();
    let held = process.held_memory(1) >> 20;
    let (pid, uuid) = (std::process::id(), machine.card(1).unwrap().uuid());

    let query = ["--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader"];
    assert_eq!(scene.print(&query), format!("{pid}, {held} MiB, {uuid}\n"));
    let used = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    assert_eq!(scene.print(&used), format!("0\n{held}\n"));
    let table = scene.print(&[]);
    let row = table.lines().find(|line| line.contains(&format!(" {pid} "))).unwrap();
    assert!(row.starts_with("|    1 ") && row.ends_with(&format!(" {held}MiB |")), "{row}");
}

#[test]
fn wrong_questions_are_refused_with_the_reason() {
    let scene = Scene::new();
    for (arguments, code, word) in [
        (&["--query-gpu=name,colour", "--format=csv"][..], 2, "\"colour\" is not a valid field"),
        (&["--query-gpu=name"], 2, "--format=csv"),
        (&["--query-gpu=name", "--format=xml"], 2, "\"xml\" is not a valid format"),
        (&["--no-such-option"], 2, "--no-such-option"),
        (&["-i", "2"], 6, "No devices were found"),
        (&["-i", "GPU-0"], 6, "No devices were found"),
        (&["--simulate-lost", "2"], 6, "No devices were found"),
    ] {
        let (got, output, complaint) = scene.run(arguments);
        assert_eq!((got, output.as_str()), (code, ""), "{arguments:?}");
        assert!(complaint.contains(word), "{arguments:?}: {complaint}");
    }
}

#[test]
fn every_listed_field_can_be_asked_for() {
    let scene = Scene::new();
    for (help, query) in
        [("--help-query-gpu", "--query-gpu"), ("--help-query-compute-apps", "--query-compute-apps")]
    {
        let names: Vec<String> =
            scene.print(&[help]).lines().flat_map(|line| line.split(" or ").map(str::to_owned)).collect();
        assert!(names.len() > 5);
        let table = scene.print(&[&format!("{query}={}", names.join(",")), "--format=csv"]);
        let widths: Vec<usize> = table.lines().map(|line| line.split(", ").count()).collect();
        assert!(widths.iter().all(|width| *width == names.len()), "{widths:?} columns for {names:?}");
    }
}

#[test]
fn a_lost_card_is_named_and_the_others_are_shown() {
    let scene = Scene::new();
    assert!(scene.print(&["--simulate-lost", "0"]).starts_with("GPU 0: lost"));
    let (code, output, complaint) = scene.run(&["-L"]);
    assert_eq!(code, 15);
    assert!(output.starts_with("GPU 1: ") && output.lines().count() == 1, "{output}");
    assert_eq!(complaint, "Unable to determine the device handle for GPU0: GPU is lost.\n");
    scene.print(&["-L", "-i", "1"]);
    assert!(scene.print(&["--simulate-recovered", "0"]).starts_with("GPU 0: recovered"));
    assert_eq!(scene.print(&["-L"]).lines().count(), 2);
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let scene = Scene::new();
    let mut child = scene.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(String::from_utf8(stderr).unwrap(), "");
}

#[test]
fn without_the_library_it_says_where_to_look() {
    let scene = Scene::new();
    let Output { status, stderr, .. } = scene.command(&[]).env("LD_LIBRARY_PATH", "").output().unwrap();
    let complaint = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(12), "{complaint}");
    assert!(complaint.contains("libnvidia-ml.so.1") && complaint.contains("LD_LIBRARY_PATH"), "{complaint}");
}
