//! What the shim can't hold is seen by the agent: reported always, ended where the agent was told to.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpupool_agent::admin_api::{Hold, PodStatus, Status, WhyNotHeld};

use crate::agent_node::{AgentNode, dist, wait_for};

/// Device memory that the programs take, in MiB.
const TAKEN: u64 = 300;

/// The program that gets past the shim, and the library that it loads.
struct Taker {
    program: PathBuf,
    library: PathBuf,
}

impl Taker {
    fn build(folder: &Path) -> Self {
        let (program, library) = (folder.join("past_the_shim"), folder.join("taker.so"));
        let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source("taker.c"));
        gcc.arg(dist().join("simgpu/libcuda.so.1"));
        assert!(gcc.status().unwrap().success(), "taker.c does not compile");
        let mut gcc = Command::new("gcc");
        gcc.arg("-o").arg(&program).arg(source("past_the_shim.c")).arg("-ldl");
        assert!(gcc.status().unwrap().success(), "past_the_shim.c does not compile");
        Self { program, library }
    }

    /// The end of a command line that takes memory in this way.
    fn arguments(&self, how: &str) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![text(&self.program), how.to_owned(), text(&self.library), TAKEN.to_string()]
    }
}

/// A pod of half a card that runs a command line; the second value is the process that took memory.
fn pod(node: &AgentNode, name: &str, line: &[String]) -> (Child, u32) {
    let mut command = node.gpupool("run");
    command.args(["--core", "50", "--memory", "50", "--name", name, "--"]).args(line);
    taking(command)
}

/// Starts a command and waits until it has taken memory.
fn taking(mut command: Command) -> (Child, u32) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = line.trim().strip_prefix("taken by ").unwrap_or_else(|| panic!("it says {line:?}"));
    (child, pid.parse().unwrap())
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

fn find<'a>(status: &'a Status, pod: &str) -> Option<&'a PodStatus> {
    status.pods.iter().find(|it| it.name == pod)
}

/// The pod in the first status in which its hold is as wished.
fn wait_for_hold(node: &AgentNode, pod: &str, wished: Hold) -> PodStatus {
    let status = node.wait_until(&format!("{pod} to be held: {wished:?}"), |status| {
        find(status, pod).is_some_and(|pod| pod.hold.memory == wished)
    });
    find(&status, pod).unwrap().clone()
}

fn wait_for_words(node: &AgentNode, words: &str) {
    wait_for(words, || node.log().contains(words).then_some(()));
}

#[test]
fn who_gets_past_the_shim_is_reported_with_the_reason_and_left_alone() {
    let node = AgentNode::start(&[]);
    let taker = Taker::build(node.folder());
    let bare = ["env", "-u", "LD_PRELOAD"].map(str::to_owned);
    let lines = [
        ("deep", taker.arguments("deepbind"), WhyNotHeld::PastTheShim),
        ("own", taker.arguments("dlmopen"), WhyNotHeld::PastTheShim),
        ("bare", [bare.to_vec(), taker.arguments("plain")].concat(), WhyNotHeld::ShimNotLoaded),
    ];
    for (name, line, why) in lines {
        let (child, pid) = pod(&node, name, &line);
        let hold = wait_for_hold(&node, name, Hold::Nothing).hold;
        assert_eq!(hold.core, Hold::Nothing, "{name}");
        assert_eq!(hold.not_held.iter().map(|it| (it.pid, it.why)).collect::<Vec<_>>(), [(pid, why)]);
        let bytes = hold.not_held[0].memory_bytes.unwrap();
        assert!(bytes > TAKEN << 20, "{name}: a context and {TAKEN} MiB are more than {bytes} bytes");
        assert_eq!(hold.unaccounted_bytes, Some(bytes), "{name}: nothing of it is counted");
        wait_for_words(&node, &format!("process {pid} of {name} uses a card and is not held: {why}"));
        wait_for_words(&node, &format!("{name} takes {} MiB of its card that", bytes >> 20));
        end(child);
    }
    assert!(!node.log().contains("are ended"));
}

#[test]
fn what_the_shim_holds_is_counted_to_the_byte() {
    let node = AgentNode::start(&[]);
    let taker = Taker::build(node.folder());
    let (child, _) = pod(&node, "held", &taker.arguments("plain"));
    let pod = wait_for_hold(&node, "held", Hold::Shim);
    assert_eq!((pod.hold.core, pod.hold.unaccounted_bytes), (Hold::Shim, Some(0)));
    assert_eq!(pod.hold.not_held, []);
    end(child);
    wait_for("the pod to go", || node.status().pods.is_empty().then_some(()));
    assert!(!node.log().contains("held"), "{}", node.log());
}

#[test]
fn a_pod_with_one_process_past_the_shim_is_held_in_part() {
    let node = AgentNode::start(&[]);
    let taker = Taker::build(node.folder());
    let (plain, deep) = (taker.arguments("plain").join(" "), taker.arguments("deepbind").join(" "));
    let script = format!("exec 3<&0; {plain} <&3 >&2 & {deep}; wait");
    let (child, pid) = pod(&node, "both", &["sh".to_owned(), "-c".to_owned(), script]);
    let hold = wait_for_hold(&node, "both", Hold::Partly).hold;
    assert_eq!(hold.not_held.iter().map(|it| it.pid).collect::<Vec<_>>(), [pid]);
    assert_eq!(hold.unaccounted_bytes, hold.not_held[0].memory_bytes);
    end(child);
}

#[test]
fn a_process_of_no_pod_is_reported_and_left_alone_whatever_the_setting() {
    let node = AgentNode::start(&["--evict-unaccounted", "--grace", "50ms"]);
    let taker = Taker::build(node.folder());
    let mut command = Command::new(&taker.program);
    command.args(&taker.arguments("plain")[1..]).env("LD_LIBRARY_PATH", dist().join("simgpu"));
    command.env("SIMGPU_STATE", node.folder().join("simgpu.state")).env("SIMGPU_CARDS", "2");
    let (child, pid) = taking(command);
    let status = node.wait_until("the stranger", |status| !status.strangers.is_empty());
    assert_eq!((status.strangers[0].pid, status.strangers[0].card), (pid, 0));
    assert!(status.strangers[0].memory_bytes.unwrap() > TAKEN << 20);
    wait_for_words(&node, &format!("process {pid} of no pod uses card GPU-"));
    let table = String::from_utf8(node.gpupool("status").output().unwrap().stdout).unwrap();
    assert!(table.contains(&format!("card 0: process {pid} belongs to no pod; it takes ")), "{table}");
    end(child);
    node.wait_until("it to be gone", |status| status.strangers.is_empty());
}

#[test]
fn with_the_setting_a_pod_past_its_limit_loses_its_gpu_processes_and_nobody_else_does() {
    let node = AgentNode::start(&["--evict-unaccounted", "--grace", "50ms"]);
    let taker = Taker::build(node.folder());
    let (neighbour, _) = pod(&node, "neighbour", &taker.arguments("plain"));
    let stubborn = [taker.arguments("deepbind"), vec!["stubborn".to_owned()]].concat();
    for (name, line, signal) in [("soft", taker.arguments("deepbind"), 15), ("stubborn", stubborn, 9)] {
        let (mut child, _) = pod(&node, name, &line);
        // Open until it has ended: it does not end by itself.
        let _open = child.stdin.take();
        assert_eq!(child.wait().unwrap().signal(), Some(signal), "{name}");
        assert!(node.log().contains(&format!("{name} takes ")), "{}", node.log());
        assert!(node.log().contains("MiB of a card and holds no lease: its GPU programs are ended"));
    }
    assert_eq!(wait_for_hold(&node, "neighbour", Hold::Shim).hold.unaccounted_bytes, Some(0));
    end(neighbour);
}

#[test]
fn a_ledger_that_is_written_to_match_does_not_help_a_pod_past_its_limit() {
    // Who is told to go stays to be looked at.
    let node = AgentNode::start(&["--evict-unaccounted", "--grace", "1h"]);
    let taker = Taker::build(node.folder());
    let go = node.folder().join("go");
    let [plain, deep] = ["plain", "deepbind"].map(|how| taker.arguments(how).join(" ") + " stubborn");
    let script = format!(
        "exec 3<&0; {plain} <&3 >&2 & until [ -e {} ]; do sleep 0.01; done; {deep} <&3; wait",
        go.display()
    );
    let mut command = node.gpupool("run");
    // A percent of a card has room for one of the two.
    command.args(["--core", "50", "--memory", "1", "--name", "both", "--", "sh", "-c", &script]);
    let child = command.stdin(Stdio::piped()).spawn().unwrap();
    let status = node.wait_until("the first to hold memory", |status| {
        status.leases.first().and_then(|lease| lease.memory_used_bytes).is_some_and(|used| used > TAKEN << 20)
    });
    let (counted, limit) = (status.leases[0].memory_used_bytes.unwrap(), status.leases[0].memory_limit_bytes);
    assert!(counted <= limit && 2 * counted > limit);
    write_to_ledger(find(&status, "both").unwrap().pids[0], counted, 2 * counted);
    std::fs::write(go, "").unwrap();
    wait_for_words(&node, "MiB: its GPU programs are ended");
    let status = node.status();
    let hold = &find(&status, "both").unwrap().hold;
    assert_eq!(hold.not_held[0].memory_bytes, Some(counted), "NVML shows both");
    assert_eq!(hold.unaccounted_bytes, Some(0), "the ledger counts both");
    end(child);
}

/// Does what any program of the pod can: puts another figure in the place of what its slot counts.
fn write_to_ledger(pid: u32, counted: u64, false_figure: u64) {
    let entries = ["fd", "map_files"].map(|name| std::fs::read_dir(format!("/proc/{pid}/{name}")));
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.unwrap().path());
    let is_ledger = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("gpupool-ledger"))
    };
    let path = paths.into_iter().find(is_ledger).expect("the program has its ledger open");
    let content = std::fs::read(&path).unwrap();
    let place = content.chunks_exact(8).position(|word| word == counted.to_ne_bytes()).unwrap() * 8;
    let ledger = std::fs::File::options().write(true).open(path).unwrap();
    ledger.write_all_at(&false_figure.to_ne_bytes(), place as u64).unwrap();
}
