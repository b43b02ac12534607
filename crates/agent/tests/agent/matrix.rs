//! What a pod meets that runs, waits or starts while the agent has a bad day, as one table. Afterwards everything goes on.
//!
//! The agent's answer to each fault stands in tests of its own; here it is what the pods see.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use simgpu_device::{Machine, MachineSettings};
use tempfile::TempDir;

use crate::full_disk::SmallDisk;
use crate::leases::whole_card;
use crate::log::full_pipe;
use crate::node::Node;

/// A file system whose server never answers, in a mount namespace of its own. Both end with the process that holds them, and so
/// does every wait for it.
struct HungMount {
    holder: Child,
    folder: TempDir,
}

impl HungMount {
    fn new() -> Self {
        let folder = TempDir::with_prefix("gpupool-hung-").unwrap();
        let mount = "exec 9<>/dev/fuse && \
                     mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung \"$0\" && \
                     echo ready && exec sleep infinity";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "bash", "-c", mount])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { holder, folder }
    }

    /// A pod whose program has a descriptor there, and uses a card until its standard input closes.
    fn pod(&self, node: &Node, name: &str) -> Child {
        let binary = node.socket().with_file_name("holding_path");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/holding_path.c");
        assert!(Command::new("gcc").arg("-o").arg(&binary).arg(source).status().unwrap().success());
        let gpupool = gpupool_dist::given_or_built().unwrap().join("bin/gpupool");
        Command::new(&gpupool)
            .args(["run", "--core", "1:100", "--memory", "1:100", "--name", name, "--socket"])
            .arg(node.socket())
            .args(["--", "nsenter"])
            .arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()))
            .arg(binary)
            .arg(self.folder.path())
            .arg(gpupool)
            .arg("demo-program")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

/// A node with a pod on each of its two cards, and one that waits.
struct Scene {
    node: Node,
    machine: Machine,
    running: [Child; 2],
    waiting: Child,
}

impl Scene {
    fn on(node: Node, first: impl FnOnce(&Node) -> Child) -> Self {
        let settings = MachineSettings::new(node.cards_state(), "2").unwrap();
        let machine = Machine::open(&settings).unwrap();
        let running = [first(&node), whole_card(&node, "second")];
        node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
        let waiting = whole_card(&node, "waiting");
        node.wait_until("the third to wait", |status| status.queue.len() == 1);
        Self { node, machine, running, waiting }
    }

    /// Who has a context.
    fn holders(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self
            .machine
            .cards()
            .flat_map(|card| card.processes())
            .filter(|process| process.contexts > 0)
            .filter_map(|process| process.pid)
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Puts the agent through it, with one more pod that starts meanwhile, and writes down what the pods met.
    fn through(
        mut self,
        fault: &str,
        table: &mut String,
        begin: impl FnOnce(&mut Node),
        end: impl FnOnce(&mut Node),
    ) {
        let before = self.holders();
        assert_eq!(before.len(), 2, "{fault}");
        begin(&mut self.node);
        let mut starting = whole_card(&self.node, "starting");
        let lives = |child: &mut Child| child.try_wait().unwrap().is_none();
        let [first, second] = &mut self.running;
        assert!(lives(first) && lives(second) && lives(&mut self.waiting) && lives(&mut starting), "{fault}");
        assert_eq!(self.holders(), before, "{fault}");
        end(&mut self.node);
        let status = self.node.wait_until("the new one to wait", |status| status.queue.len() == 2);
        let order: Vec<&str> = status.queue.iter().map(|waiting| waiting.pod.as_str()).collect();
        assert_eq!(order, ["waiting", "starting"], "{fault}");
        assert_eq!((status.leases.len(), self.holders()), (2, before), "{fault}");
        // And everything goes on: who ends makes room for the next in line.
        let [first, second] = self.running;
        for (leaves, next) in [(first, "waiting"), (second, "starting")] {
            finish(leaves);
            self.node.wait_until(next, |status| status.leases.iter().any(|lease| lease.pod == next));
        }
        finish(self.waiting);
        finish(starting);
        let _ =
            writeln!(table, "{fault:<42} runs on, keeps card   keeps its place   waits, then has its turn");
    }
}

fn finish(mut pod: Child) {
    drop(pod.stdin.take());
    assert!(pod.wait().unwrap().success());
}

fn plain(node: &Node) -> Child {
    whole_card(node, "first")
}

#[test]
#[ignore = "needs root"]
fn whatever_befalls_the_agent_pods_run_wait_and_start_and_everything_goes_on() {
    let mut table = format!("\n{:<42} {:<21} {:<17} starting pod\n", "agent", "running pod", "waiting pod");
    Scene::on(Node::start(&[]), plain).through(
        "stopped (SIGSTOP)",
        &mut table,
        |node| node.freeze(),
        |node| node.thaw(),
    );
    let again = |node: &mut Node| {
        node.kill();
        node.start_again();
    };
    Scene::on(Node::start(&[]), plain).through(
        "killed and started again",
        &mut table,
        Node::kill,
        Node::start_again,
    );
    let (_reader, writer, _) = full_pipe();
    let mut node = Node::begin_with_log(&[], writer.into());
    node.wait_for_answer();
    Scene::on(node, plain).through("nobody reads its log", &mut table, |_| {}, |_| {});
    let disk = SmallDisk::new();
    let journal = disk.path("agent.journal");
    let mut node = Node::begin_by(&disk.launcher(), &["--journal", journal.to_str().unwrap()]);
    node.wait_for_answer();
    let full = |node: &mut Node| {
        disk.fill();
        again(node);
    };
    Scene::on(node, plain)
        .through("full disk, killed and started on it", &mut table, full, |_| disk.make_room());
    let hung = HungMount::new();
    assert!(is_hung(&hung), "the file system answers");
    Scene::on(Node::start(&[]), |node| hung.pod(node, "first")).through(
        "a program's file system hangs, started again",
        &mut table,
        again,
        |_| {},
    );
    eprintln!("{table}");
}

/// Whether looking at the file system waits: a process that does is in it for good, until the server is gone.
fn is_hung(hung: &HungMount) -> bool {
    let namespace = format!("--mount=/proc/{}/ns/mnt", hung.holder.id());
    let mut looking =
        Command::new("nsenter").arg(namespace).arg("stat").arg(hung.folder.path()).spawn().unwrap();
    let state = Path::new("/proc").join(looking.id().to_string()).join("wchan");
    let deadline = std::time::Instant::now() + crate::node::PATIENCE;
    let waits = loop {
        let place = fs::read_to_string(&state).unwrap_or_default();
        let ended = looking.try_wait().unwrap().is_some();
        if place.contains("fuse") || place.contains("request_wait") || ended {
            break !ended;
        }
        assert!(std::time::Instant::now() < deadline, "it is at {place}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    // It ends with the server at the latest.
    let _ = looking.kill();
    waits
}
