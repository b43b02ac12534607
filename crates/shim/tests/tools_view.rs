//! What tools see in a pod: one card under its own index and name, what the pod uses of its limit, its own processes.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::process::Command;
use std::time::{Duration, Instant};

use lab::table::uuid_text;
use lab::{Lab, Link, Running, dist, finish, program, simulated};

const MIB: u64 = 1 << 20;

/// The NVML program without the shim: the machine's own view.
fn machine(lab: &Lab, words: &str) -> Vec<String> {
    let mut command = lab.tools(words);
    simulated(&mut command, lab.folder.path(), &lab.cards);
    finish(command).out
}

fn smi(lab: &Lab, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new(dist().join("simgpu/nvidia-smi"));
    command.args(arguments);
    lab.prepare(&mut command);
    finish(command).out
}

/// A paused program with a context and `mebibytes`, and what `cuMemGetInfo` told it.
fn holder(command: Command) -> (Running, String) {
    let mut program = Running::start(command);
    let lines = program.until("paused");
    (program, lines.last().unwrap().clone())
}

fn words(mebibytes: u64) -> String {
    format!("init retain alloc {} info pause", mebibytes * MIB)
}

#[test]
fn a_pod_sees_its_own_processes_and_they_add_up_to_what_it_uses() {
    let lab = Lab::new("1xSim-4GB");
    let (stranger, _) = holder(lab.bare_gpu(&words(700)));
    let (first, _) = holder(lab.gpu(&words(100)));
    let (second, info) = holder(lab.gpu(&words(300)));
    let card = lab.agent.table().cards[0];
    let limit = lab.agent.limits().memory_bytes;
    let owners: Vec<_> = lab.agent.ledger().owners().map(|owner| (owner.pid, owner.bytes)).collect();
    assert_eq!(owners.iter().map(|owner| owner.0).collect::<Vec<_>>(), [first.child.id(), second.child.id()]);
    let used: u64 = owners.iter().map(|owner| owner.1).sum();
    assert_eq!(
        info,
        format!("info=0 {} {limit}", limit - used),
        "cuMemGetInfo and the ledger agree to the byte"
    );

    let list = |form: &str| {
        owners.iter().map(|(pid, bytes)| format!(" {pid}:{bytes}{form}")).collect::<Vec<_>>().concat()
    };
    let lists = [1, 2, 3].map(|version| match version {
        1 => "list nvmlDeviceGetComputeRunningProcesses".to_owned(),
        version => format!("list nvmlDeviceGetComputeRunningProcesses_v{version}"),
    });
    let asked = format!(
        "init at 0 index uuid memory memory2 {} details 0 details 3 details 1 details 2 \
         list nvmlDeviceGetGraphicsRunningProcesses_v3 list nvmlDeviceGetMPSComputeRunningProcesses_v3",
        lists.join(" ")
    );
    let said = finish(lab.tools(&asked)).out;
    let expected = [
        "init=0".to_owned(),
        "at=0".to_owned(),
        "index=0 0".to_owned(),
        format!("uuid=0 {}", uuid_text(&card)),
        format!("memory=0 {limit} {} {used}", limit - used),
        format!("memory2=0 {limit} 0 {} {used}", limit - used),
        format!("ComputeRunningProcesses=7/2 0{}", list("")),
        format!("ComputeRunningProcesses_v2=7/2 0{}", list(":-1")),
        format!("ComputeRunningProcesses_v3=7/2 0{}", list(":-1")),
        format!("details=7/2 0{}", list(":0")),
        format!("details=7/2 0{}", list(":0")),
        "details=0/0 0".to_owned(),
        "details=0/0 0".to_owned(),
        "GraphicsRunningProcesses_v3=0/0 0".to_owned(),
        "MPSComputeRunningProcesses_v3=0/0 0".to_owned(),
    ];
    assert_eq!(said, expected);

    // The machine sees everybody, and the whole card.
    let all = machine(&lab, "init at 0 memory list nvmlDeviceGetComputeRunningProcesses");
    assert!(
        all[2].starts_with(&format!("memory=0 {} ", card.total_memory + reserved(&all[2], &card))),
        "{all:?}"
    );
    for program in [&stranger, &first, &second] {
        assert!(all[3].contains(&format!(" {}:", program.child.id())), "{all:?}");
    }

    // So does nvidia-smi, each where it runs.
    let fields = ["--format=csv,noheader,nounits", "--query-compute-apps=pid,used_memory"];
    let rows: Vec<_> = owners.iter().map(|(pid, bytes)| format!("{pid}, {}", bytes / MIB)).collect();
    assert_eq!(smi(&lab, &fields), rows);
    let fields = ["--format=csv,noheader,nounits", "--query-gpu=index,uuid,memory.total,memory.used"];
    let row = format!("0, {}, {}, {}", uuid_text(&card), limit / MIB, used / MIB);
    assert_eq!(smi(&lab, &fields), [row]);
    lab.agent.bury(first.kill());
    let (pid, bytes) = owners[1];
    assert_eq!(finish(lab.tools("init at 0 details 3")).out[2], format!("details=7/1 0 {pid}:{bytes}:0"));
    second.end();
    stranger.end();
}

/// What NVML's total has beyond what CUDA says, in the machine's view.
fn reserved(line: &str, card: &gpupool_wire::cards::Card) -> u64 {
    let total: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    total - card.total_memory
}

#[test]
fn processes_are_named_as_the_pods_own_pid_namespace_does() {
    let lab = Lab::new("1xSim-4GB");
    let (program, _) = holder(lab.gpu(&words(10)));
    // As if the program ran in a container, where it is process 7, and the driver knew it by the machine's number.
    lab.agent.ledger().slot(0).unwrap().set_pid(7);
    let bytes = lab.agent.ledger().committed();
    let said = finish(lab.tools("init at 0 list nvmlDeviceGetComputeRunningProcesses")).out;
    assert_eq!(said[2], format!("ComputeRunningProcesses=7/1 0 7:{bytes}"));
    program.end();
}

#[test]
#[ignore = "needs root"]
fn in_a_pid_namespace_tools_name_processes_as_the_namespace_does() {
    let lab = Lab::new("1xSim-4GB");
    let folder = lab.folder.path();
    let (gpu, tools) = (program(folder, "gpu", Link::Nothing), program(folder, "tools", Link::Nothing));
    let (stranger, _) = holder(lab.bare_gpu(&words(20)));
    let script = format!(
        "{} init retain alloc 1000 sleep 60000 > /dev/null & \
         until line=$({} init at 0 list nvmlDeviceGetComputeRunningProcesses | tail -n 1); \
         case $line in *=7/1*) true;; *) false;; esac; do :; done; echo $!; echo $line; kill $!",
        gpu.display(),
        tools.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "/bin/sh", "-c", &script]);
    lab.prepare(&mut command);
    let said = finish(command).out;
    let owner = lab.agent.ledger().owners().next().unwrap();
    assert_eq!(said[0], owner.pid.to_string());
    assert_ne!(owner.pid, owner.agents_pid, "the agent is outside");
    assert_eq!(said[1], format!("ComputeRunningProcesses=7/1 0 {}:{}", owner.pid, owner.bytes));
    stranger.end();
}

/// Asks until the answer is as it should be; a card's utilisation is that of its last second.
fn until(lab: &Lab, right: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let line = finish(lab.tools("init at 0 busy")).out.remove(2);
        if right(&line) {
            return;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "still {line}");
    }
}

fn number(line: &str, after: &str) -> u32 {
    let rest = line.split_once(after).map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(u32::MAX)
}

#[test]
fn utilisation_is_the_pods_own_measured_by_its_limit() {
    let lab = Lab::new("1xSim-4GB");
    let busy = |mut command: Command| {
        command.env("SIMGPU_KERNEL_TIME", "600s");
        let mut program = Running::start(command);
        program.until("paused");
        program
    };
    // Nobody of the pod uses the card, however busy it is.
    let stranger = busy(lab.bare_gpu("init retain launch pause"));
    until(&lab, |line| line == "busy=0 0 samples=6 infos=6");

    // Two share it half and half: half of the card is half of the whole, and all of what half a card is.
    let own = busy(lab.gpu("init retain launch pause"));
    let pid = own.child.id();
    for (limit, percent) in [(100, 35..=65), (50, 75..=100)] {
        lab.agent.change(|limits| limits.core_percent = limit);
        until(&lab, |line| {
            ["busy=0 ".to_owned(), format!("samples=0 {pid}:"), format!("infos=0 {pid}:")]
                .iter()
                .all(|before| percent.contains(&number(line, before)))
        });
    }
    own.kill();
    stranger.kill();
}
