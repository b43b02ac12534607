//! Programs that want more than their share, or do what misleads an agent. What they really hold is read from NVML, and
//! each attack has its control: the same program without it, or before it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::{Hold, WhyNotHeld};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use simgpu_device::{Machine, MachineSettings};

use crate::agent_node::{AgentNode, dist, wait_for};
use crate::card_holders::holders;

const MIB: u64 = 1 << 20;

/// A tenth of a card, in bytes: the pods' limit.
const TENTH: u64 = 8192 * MIB;

/// The program of `hostile.c`, beside an agent.
struct Hostile {
    node: AgentNode,
    cards: Machine,
    program: PathBuf,
}

impl Hostile {
    fn start(options: &[&str]) -> Self {
        let node = AgentNode::start(options);
        let settings = MachineSettings::new(node.folder().join("simgpu.state"), "2").unwrap();
        let cards = Machine::open(&settings).unwrap();
        let program = node.folder().join("hostile");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/hostile.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-pthread", "-o"]).arg(&program).arg(source).arg(dist().join("simgpu/libcuda.so.1"));
        assert!(gcc.status().unwrap().success(), "hostile.c does not compile");
        Self { node, cards, program }
    }

    /// A pod of a tenth of a card that runs this script, in which `$hostile` is the program.
    fn pod(&self, name: &str, script: &str) -> Child {
        let mut command = self.node.gpupool("run");
        command.args(["--core", "10", "--memory", "10", "--name", name, "--", "sh", "-c", script]);
        command.env("hostile", &self.program).current_dir(self.node.folder());
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    /// The numbers in a file that a script makes, once it is there.
    fn numbers(&self, file: &str) -> Vec<u64> {
        let path = self.node.folder().join(file);
        let text = wait_for(file, || std::fs::read_to_string(&path).ok().filter(|text| !text.is_empty()));
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Tells a script that waits for this file to go on.
    fn tell(&self, file: &str) {
        std::fs::write(self.node.folder().join(file), "").unwrap();
    }

    /// Device memory that NVML shows of all processes, in bytes.
    fn held(&self) -> u64 {
        holders(&self.cards).iter().map(|holder| holder.memory).sum()
    }

    /// Device memory that NVML shows of one process.
    fn held_by(&self, pid: u64) -> u64 {
        let mine = |holder: &&crate::card_holders::Holder| u64::from(holder.pid) == pid;
        holders(&self.cards).iter().filter(mine).map(|holder| holder.memory).sum()
    }
}

/// Shell for "until the file is there".
fn until(file: &str) -> String {
    format!("until [ -e {file} ]; do sleep 0.01; done")
}

/// A process that is held by its pidfd: the truth on whether it has ended.
struct Held(std::os::fd::OwnedFd);

impl Held {
    fn hold(pid: u64) -> Self {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        Self(rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
    }
}

#[test]
fn a_pod_that_closed_its_descriptors_has_one_limit_before_and_after_the_agents_restart() {
    let mut hostile = Hostile::start(&[]);
    let script = format!(
        "exec 3<&0; \"$hostile\" take 2048 close 512 ready first churn <&3 & \
         {}; \"$hostile\" fill ready second wait <&3 >before & {}; kill $!; wait $!; echo >ended; \
         {}; \"$hostile\" fill ready third wait <&3 >after & wait",
        until("first"),
        until("enough"),
        until("again"),
    );
    let mut pod = hostile.pod("greedy", &script);
    let first = hostile.numbers("first")[0];
    let second = hostile.numbers("second")[0];
    let filled = hostile.numbers("before")[0];
    assert!(filled > 4096, "the control: beside 2 GiB there is room for more than {filled} MiB");
    assert!(hostile.held_by(first) > 2048 * MIB && hostile.held_by(second) > filled * MIB);
    assert!(hostile.held() <= TENTH, "{}", hostile.held());
    hostile.tell("enough");
    wait_for("its end", || hostile.node.folder().join("ended").exists().then_some(()));

    hostile.node.kill();
    hostile.node.start_again();
    assert!(hostile.held_by(first) > 2048 * MIB, "it runs on");
    hostile.tell("again");
    hostile.numbers("third");
    let again = hostile.numbers("after")[0];
    assert!(hostile.held() <= TENTH, "the pod holds {} of {TENTH} bytes", hostile.held());
    if rustix::process::geteuid().is_root() {
        assert!(again.abs_diff(filled) <= 64, "all the room that there is: {again} and {filled} MiB");
    } else {
        // Without root's right to open mappings the ledger is lost: nobody else of the pod gets anything.
        assert_eq!(again, 0);
    }
    drop(pod.stdin.take());
    pod.wait().unwrap();
}

/// What a process past the shim takes in these tests, in MiB: five times its pod's limit.
const TAKEN: u64 = 40_960;

/// A process whose first thread has ended, and that takes memory past the shim.
fn past_the_shim(steps: &str) -> String {
    format!("exec env -u LD_PRELOAD \"$hostile\" {steps}")
}

#[test]
fn a_process_whose_first_thread_has_ended_is_seen_beside_nvml_like_any_other() {
    let hostile = Hostile::start(&[]);
    for (name, alone) in [("whole", ""), ("headless", "alone")] {
        let script = past_the_shim(&format!("{alone} take {TAKEN} ready {name} wait"));
        let mut pod = hostile.pod(name, &script);
        let pid = hostile.numbers(name)[0];
        assert!(hostile.held_by(pid) > TAKEN * MIB, "{name} holds what it says");
        let status = hostile.node.wait_until(name, |status| {
            status.pods.iter().any(|pod| pod.name == name && pod.hold.memory == Hold::Nothing)
        });
        let seen = &status.pods.iter().find(|pod| pod.name == name).unwrap().hold.not_held[0];
        assert_eq!((u64::from(seen.pid), seen.why), (pid, WhyNotHeld::ShimNotLoaded), "{name}");
        assert!(status.strangers.is_empty());
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_is_evicted_like_any_other() {
    let hostile = Hostile::start(&["--evict-unaccounted", "--grace", "50ms"]);
    for (name, alone) in [("whole", ""), ("headless", "alone")] {
        let mut pod =
            hostile.pod(name, &past_the_shim(&format!("{alone} deaf take {TAKEN} ready {name} wait")));
        let pid = hostile.numbers(name)[0];
        let held = Held::hold(pid);
        // Its standard input stays open: it does not end by itself. In its first minute an agent takes nobody without a lease
        // for somebody who has none: the journal may be lost.
        let doubt = Instant::now() + Duration::from_mins(1);
        while pod.try_wait().unwrap().is_none() && Instant::now() < doubt {
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = wait_for("the eviction", || pod.try_wait().unwrap());
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{name}");
        assert!(held.has_ended(), "{name}");
        wait_for("the memory to be free", || (hostile.held() == 0).then_some(()));
    }
}

#[test]
fn stop_ends_processes_whose_first_thread_has_ended_and_all_below_them_and_counts_them() {
    for grace in ["20s", "50ms"] {
        let hostile = Hostile::start(&["--grace", grace]);
        let deaf = if grace == "20s" { "" } else { "deaf" };
        for (name, alone) in [("whole", ""), ("headless", "alone")] {
            let script = format!("\"$hostile\" {deaf} child {alone} ready {name} wait; exit 7");
            let mut pod = hostile.pod(name, &script);
            let processes: Vec<Held> = hostile.numbers(name).into_iter().map(Held::hold).collect();
            assert_eq!(processes.len(), 2);
            let output = hostile.node.gpupool("stop").arg(name).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(processes.iter().all(Held::has_ended), "{name}: {said}");
            let killed = if deaf.is_empty() { "" } else { "2 processes killed" };
            assert!(said.contains("3 processes") && said.contains(killed), "{name}: {said}");
            assert!(pod.wait().is_ok());
        }
    }
}
