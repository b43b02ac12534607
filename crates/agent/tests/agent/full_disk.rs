//! An agent whose journal lies on a disk without room. The disk is a small one in memory, in a mount namespace of its own.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::leases::whole_card;
use crate::node::Node;

/// Bytes of the disk.
const SIZE: usize = 256 << 10;

/// A namespace with the disk in it. Both end with the process that holds them.
pub(crate) struct SmallDisk {
    holder: Child,
    folder: TempDir,
}

impl SmallDisk {
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("gpupool-small-disk-").unwrap();
        let mount =
            format!("mount -t tmpfs -o size={SIZE} gpupool \"$0\" && echo ready && exec sleep infinity");
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &mount])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { holder, folder }
    }

    /// What starts a program that sees it.
    pub(crate) fn launcher(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--mount=/proc/{}/ns/mnt", self.holder.id())]
    }

    /// A file of it, as such a program finds it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same, as everybody finds it.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        let root = Path::new("/proc").join(self.holder.id().to_string()).join("root");
        root.join(self.path(name).strip_prefix("/").unwrap())
    }

    pub(crate) fn fill(&self) {
        let full = File::create(self.outside("filler")).unwrap().write_all(&vec![0; 2 * SIZE]);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }

    pub(crate) fn make_room(&self) {
        fs::remove_file(self.outside("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

/// A pod that uses no card.
fn run(node: &Node, command: &[&str]) -> Child {
    let gpupool = gpupool_dist::given_or_built().unwrap().join("bin/gpupool");
    let socket = node.socket();
    let mut run = Command::new(gpupool);
    run.args(["run", "--core", "1", "--memory", "1", "--socket"]).arg(socket).arg("--").args(command);
    run.spawn().unwrap()
}

#[test]
#[ignore = "needs root"]
fn an_agent_that_starts_on_a_full_disk_holds_what_its_journal_tells_and_loses_nothing_later() {
    let disk = SmallDisk::new();
    let journal = disk.path("agent.journal");
    let mut node = Node::begin_by(&disk.launcher(), &["--journal", journal.to_str().unwrap()]);
    node.wait_for_answer();
    let mut first = whole_card(&node, "first");
    let mut second = whole_card(&node, "second");
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut third = whole_card(&node, "third");
    node.wait_until("the third to wait", |status| status.queue.len() == 1);
    disk.fill();
    // There is room on the journal's last page for a little more. After that, what is written is half a record at most.
    let mut fourth = whole_card(&node, "fourth");
    node.wait_until("the fourth to wait", |status| status.queue.len() == 2);
    for number in 0.. {
        if node.log().contains("would not know the latest changes") {
            break;
        }
        assert!(number < 100, "the disk is not full");
        assert!(run(&node, &["true"]).wait().unwrap().success());
    }
    node.kill();
    node.start_again();
    let status = node.status();
    assert_eq!(status.leases.len(), 2, "{status:#?}");
    assert_eq!(status.queue.first().map(|waiting| waiting.pod.as_str()), Some("third"), "{status:#?}");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    node.wait_until("the third to be let in", |status| {
        status.leases.iter().any(|lease| lease.pod == "third")
    });
    disk.make_room();
    // The next that happens is written with all that was not.
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success());
    node.wait_until("the second to have gone", |status| {
        status.leases.iter().all(|lease| lease.pod != "second")
    });
    node.kill();
    node.start_again();
    assert!(node.status().leases.iter().any(|lease| lease.pod == "third"));
    for pod in [&mut third, &mut fourth] {
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
    }
}
