//! What is done to that on which the pods depend. Beside kills, the days that are worse: something stops without ending,
//! the agent's journal is lost or goes back to an earlier state, its disk is full when it starts, half of the cards fall
//! off, a node loses the API server.
//!
//! Each is over when its function returns, and what it changed is as it was.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use gpupool_testbed::{Cluster, STATE};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use simgpu_device::{Machine, MachineSettings};

use crate::NODES;
use crate::pods::{AGENTS, Pods};

/// Where the chart has the agent's files on a node.
const INSTALLED: &str = "/var/lib/gpupool";

/// The agent's journal, below that.
const JOURNAL: &str = "state/agent.journal";

/// Bytes of the disk that it lies on.
const DISK: u64 = 8 << 20;

/// Control among the pods of gpupool's own.
const CONTROL: &str = "app=gpupool-control";

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A component of the cluster ends and comes back.
    Kill,
    /// An agent ends.
    KillAgent,
    /// Control ends.
    KillControl,
    /// A pod is deleted, and another made.
    Replace,
    /// A component of the cluster stops for a while.
    Stop,
    /// An agent stops for a while.
    StopAgent,
    /// Nobody reads the agent's log for a while.
    StopReader,
    /// An agent ends, and its journal is empty.
    LoseJournal,
    /// An agent ends, and the last that it wrote is not in its journal.
    CutJournal,
    /// An agent ends, and another starts while the disk is full.
    FullDisk,
    /// Half of each node's cards are lost for a while.
    HalfOfTheCards,
    /// A node does not reach the API server for a while.
    NoNetwork,
}

/// All of them; what is there more than once happens more often.
const FAULTS: &[Fault] = &[
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::KillAgent,
    Fault::KillAgent,
    Fault::KillControl,
    Fault::Replace,
    Fault::Stop,
    Fault::StopAgent,
    Fault::StopReader,
    Fault::LoseJournal,
    Fault::CutJournal,
    Fault::FullDisk,
    Fault::HalfOfTheCards,
    Fault::NoNetwork,
];

/// What is done, and how often it was.
pub(crate) struct Faults {
    cards: Vec<Machine>,
    done: BTreeMap<Fault, u64>,
}

impl Faults {
    pub(crate) fn on(cluster: &Cluster) -> Self {
        let machine = |node: &&str| {
            let settings = MachineSettings::new(cluster.path_on(node, STATE).unwrap(), "2").unwrap();
            Machine::open(&settings).unwrap()
        };
        Self { cards: NODES.iter().map(machine).collect(), done: BTreeMap::new() }
    }

    /// Gives the node's agent a disk of its own, which can be full. Before gpupool is installed.
    pub(crate) fn small_disk(cluster: &Cluster, node: &str) {
        fs::create_dir_all(cluster.path_on(node, INSTALLED).unwrap()).unwrap();
        run_on(cluster, node, &["mount", "-t", "tmpfs", "-o", &format!("size={DISK}"), "gpupool", INSTALLED]);
    }

    /// Does one.
    pub(crate) fn one(&mut self, cluster: &mut Cluster, pods: &mut Pods, rng: &mut Rng) {
        let fault = FAULTS[rng.usize(0..FAULTS.len())];
        let node = NODES[rng.usize(0..NODES.len())];
        eprintln!("soak: {fault:?} on {node}");
        match fault {
            Fault::Kill => {
                let component = component(node, rng);
                cluster.kill(&component).unwrap_or_else(|failure| panic!("{failure}"));
                pause(rng, 4000);
                cluster.start_again(&component).unwrap_or_else(|failure| panic!("{failure}"));
            }
            Fault::KillAgent => pods.kill_one_of(AGENTS, rng),
            Fault::KillControl => pods.kill_one_of(CONTROL, rng),
            Fault::Replace => pods.replace_one(rng),
            Fault::Stop => {
                let component = component(node, rng);
                let parts = cluster.description().parts;
                let pid = parts.iter().find(|part| part.name == component).and_then(|part| part.pid);
                stopped(pid, || pause(rng, 15_000));
            }
            // Not longer: whoever asks an agent waits for it meanwhile.
            Fault::StopAgent => stopped(agent(node), || pause(rng, 5000)),
            Fault::StopReader => stopped(agent(node).and_then(parent), || pause(rng, 15_000)),
            Fault::LoseJournal => replace_agent(cluster, pods, node, |_| 0),
            Fault::CutJournal => replace_agent(cluster, pods, node, |length| rng.u64(0..=length)),
            Fault::FullDisk => full_disk(cluster, pods, node, rng),
            Fault::HalfOfTheCards => self.without_half_of_the_cards(rng),
            Fault::NoNetwork => without_network(cluster, node, || pause(rng, 15_000)),
        }
        *self.done.entry(fault).or_default() += 1;
    }

    /// How often each was done.
    pub(crate) fn told(&self) -> String {
        let counts: Vec<String> =
            self.done.iter().map(|(fault, count)| format!("{fault:?} {count}")).collect();
        counts.join(", ").to_lowercase()
    }

    fn without_half_of_the_cards(&self, rng: &mut Rng) {
        let lost: Vec<_> = self.cards.iter().filter_map(|cards| cards.card(rng.usize(0..2))).collect();
        for card in &lost {
            card.lose();
        }
        pause(rng, 10_000);
        for card in &lost {
            card.recover();
        }
    }
}

fn component(node: &str, rng: &mut Rng) -> String {
    match rng.u32(0..4) {
        0 => format!("kubelet@{node}"),
        1 => format!("containerd@{node}"),
        2 => "kube-apiserver".to_owned(),
        _ => "kube-scheduler".to_owned(),
    }
}

fn pause(rng: &mut Rng, most: u64) {
    thread::sleep(Duration::from_millis(rng.u64(100..most)));
}

/// Stops the process while something happens; where there is none at this moment, it only happens.
fn stopped(pid: Option<u32>, meanwhile: impl FnOnce()) {
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap()));
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let send = |signal| {
        if let Some(process) = &process {
            // It may have ended, which is as good.
            let _ = pidfd_send_signal(process, signal);
        }
    };
    send(Signal::STOP);
    meanwhile();
    send(Signal::CONT);
}

/// The process of a node's agent; none while it starts.
fn agent(node: &str) -> Option<u32> {
    let name = format!("--node-name={node}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next() == Some(b"gpupool") && words.any(|word| word == name.as_bytes())
    })
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// Where a file of the agent's is that has its own disk on the node.
fn installed(cluster: &Cluster, node: &str, file: &str) -> PathBuf {
    let name = format!("init@{node}");
    let parts = cluster.description().parts;
    let init = parts.iter().find(|part| part.name == name).and_then(|part| part.pid).unwrap();
    Path::new("/proc").join(init.to_string()).join(format!("root{INSTALLED}")).join(file)
}

/// Another agent starts on a journal that is no longer than `length` says, given how long it is.
fn replace_agent(cluster: &Cluster, pods: &Pods, node: &str, length: impl FnOnce(u64) -> u64) {
    stopped(agent(node), || {
        // An agent that starts for the first time may have none yet.
        if let Ok(journal) = OpenOptions::new().write(true).open(installed(cluster, node, JOURNAL)) {
            let whole = journal.metadata().unwrap().len();
            journal.set_len(length(whole)).unwrap();
        }
        pods.kill_agent_of(node);
    });
}

/// Another agent starts while there is no room for a byte.
fn full_disk(cluster: &Cluster, pods: &Pods, node: &str, rng: &mut Rng) {
    let path = installed(cluster, node, "filler");
    let mut filler = File::create(&path).unwrap();
    let full = filler.write_all(&vec![0; 2 * usize::try_from(DISK).unwrap()]);
    assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    pods.kill_agent_of(node);
    pause(rng, 15_000);
    fs::remove_file(path).unwrap();
}

/// The node's way to the API server leads nowhere meanwhile.
fn without_network(cluster: &Cluster, node: &str, meanwhile: impl FnOnce()) {
    let address = format!("{}/32", cluster.machine_address().unwrap());
    run_on(cluster, node, &["ip", "route", "add", "blackhole", &address]);
    meanwhile();
    run_on(cluster, node, &["ip", "route", "del", "blackhole", &address]);
}

fn run_on(cluster: &Cluster, node: &str, words: &[&str]) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let status = cluster.spawn_on(node, command).unwrap().wait().unwrap();
    assert!(status.success(), "{words:?} on {node}: {status}");
}
