//! Programs that end, are killed, are pre-empted or stopped; an agent that is told to end.

use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::agent_node::{AgentNode, said, wait_for};

fn kill(id: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
}

fn holder(node: &AgentNode, name: &str) -> u32 {
    let status = node.status();
    status.pods.iter().find(|pod| pod.name == name).unwrap().pids[0]
}

#[test]
fn a_killed_programs_share_is_back_and_the_next_in_line_runs() {
    let node = AgentNode::start(&[]);
    let mut pods: Vec<_> = ["A", "B"].map(|name| node.program(name, "1:100")).into();
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    pods.push(node.program("C", "1:100"));
    node.wait_until("C to wait", |status| status.queue.len() == 1);
    kill(holder(&node, "A"), Signal::KILL);
    let status = node.wait_until("C to run", |status| status.leases.iter().any(|lease| lease.pod == "C"));
    assert!(status.queue.is_empty());
    for mut pod in pods {
        drop(pod.stdin.take());
        pod.wait().unwrap();
    }
    let status = node.wait_until("everything to be gone", |status| status.pods.is_empty());
    assert!(status.cards.iter().all(|card| card.core_used_percent == 0));
}

#[test]
fn a_pod_that_held_its_card_for_its_time_makes_room_for_one_that_waits() {
    let node = AgentNode::start(&["--pod-max-duration", "300ms", "--grace", "20s"]);
    let mut old = node.program("old", "1:100");
    node.wait_until("the old one to run", |status| status.leases.len() == 1);
    let mut other = node.program("other", "1:100");
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut young = node.program("young", "1:100");
    node.wait_until("the young one to run", |status| status.leases.iter().any(|lease| lease.pod == "young"));
    // The one that had its card longest went, by SIGTERM, which its run passes on.
    let ended = wait_for("the old one's end", || old.try_wait().unwrap());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15));
    assert!(node.log().contains("old on card 0 is pre-empted by young"), "{}", node.log());
    for pod in [&mut other, &mut young] {
        drop(pod.stdin.take());
        pod.wait().unwrap();
    }
}

#[test]
fn without_preemption_nobody_is_ended() {
    let node = AgentNode::start(&["--pod-max-duration", "1ms", "--grace", "1ms", "--preempt", "false"]);
    let mut pods: Vec<_> = ["A", "B", "C"].map(|name| node.program(name, "1:100")).into();
    node.wait_until("two to run and one to wait", |status| {
        status.leases.len() == 2 && status.queue.len() == 1
    });
    let before = node.status();
    node.wait_until("a second of waiting", |status| status.queue[0].waiting_seconds > 1.5);
    assert_eq!(node.status().leases.len(), before.leases.len());
    assert!(node.status().leases.iter().all(|lease| lease.ending.is_none()));
    for pod in &mut pods {
        drop(pod.stdin.take());
    }
    for mut pod in pods {
        assert!(pod.wait().unwrap().success());
    }
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_when_its_grace_is_over_and_only_it() {
    let node = AgentNode::start(&["--pod-max-duration", "200ms", "--grace", "200ms"]);
    let program = crate::agent_node::gpupool().get_program().to_owned();
    // The shell ignores SIGTERM, and so does the program that it starts; the shell itself uses no card.
    let script = format!("trap '' TERM; {} demo-program; exit 21", program.display());
    let mut stubborn = node.script("1:100", &script).stdin(Stdio::piped()).spawn().unwrap();
    node.wait_until("the stubborn one to run", |status| status.leases.len() == 1);
    let mut other = node.program("other", "1:100");
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut young = node.program("young", "1:100");
    let ended = wait_for("the stubborn one's end", || stubborn.try_wait().unwrap());
    assert_eq!(ended.code(), Some(21), "the shell lives, its GPU program was killed\n{}", node.log());
    node.wait_until("the young one to run", |status| status.leases.iter().any(|lease| lease.pod == "young"));
    for pod in [&mut other, &mut young] {
        drop(pod.stdin.take());
        pod.wait().unwrap();
    }
}

#[test]
fn stop_ends_all_processes_of_a_pod_and_says_so() {
    let node = AgentNode::start(&["--grace", "20s"]);
    let mut pod = node.program("A", "50");
    node.wait_until("the program to run", |status| status.leases.len() == 1);
    let output = node.gpupool("stop").arg("A").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "A: stopped, 1 process ended\n");
    assert!(node.status().pods.is_empty());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&pod.wait().unwrap()), Some(15));
}

#[test]
fn stop_kills_what_does_not_go_by_itself() {
    let node = AgentNode::start(&["--grace", "100ms"]);
    let mut command = node.gpupool("run");
    command.args(["--core", "5", "--memory", "5", "--name", "deaf", "--"]);
    command.args(["sh", "-c", "trap '' TERM; sleep 1000 & wait; wait; sleep 1000"]);
    let mut pod = command.spawn().unwrap();
    node.wait_until("the pod", |status| status.pods.len() == 1);
    let children = format!("/proc/{0}/task/{0}/children", pod.id());
    let shell: u32 = wait_for("the shell", || std::fs::read_to_string(&children).ok()?.trim().parse().ok());
    let below = format!("/proc/{shell}/task/{shell}/children");
    wait_for("the sleeper", || std::fs::read_to_string(&below).ok()?.trim().parse::<u32>().ok());
    let output = node.gpupool("stop").arg("deaf").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("killed when the grace was over"), "{text}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&pod.wait().unwrap()), Some(9));
    // Whoever inherits a killed orphan may take a moment to lay it to rest.
    wait_for("the shell to be gone", || (!std::path::Path::new(&below).exists()).then_some(()));
}

#[test]
fn stopping_a_pod_that_waits_takes_it_out_of_the_queue() {
    let node = AgentNode::start(&[]);
    let mut pods: Vec<_> = ["A", "B"].map(|name| node.program(name, "1:100")).into();
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut waiting = node.program("C", "1:100");
    node.wait_until("C to wait", |status| status.queue.len() == 1);
    assert!(node.gpupool("stop").arg("C").status().unwrap().success());
    let status = node.status();
    assert!(status.queue.is_empty() && status.leases.len() == 2);
    waiting.wait().unwrap();
    for pod in &mut pods {
        drop(pod.stdin.take());
        pod.wait().unwrap();
    }
}

#[test]
fn stopping_nobody_is_a_clear_error() {
    let node = AgentNode::start(&[]);
    let output = node.gpupool("stop").arg("nobody").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("`nobody`"), "{}", said(&output));
}

#[test]
fn an_agent_that_is_told_to_end_takes_its_socket_and_leaves_the_programs() {
    let mut node = AgentNode::start(&[]);
    let mut pod = node.program("A", "50");
    node.wait_until("the program to run", |status| status.leases.len() == 1);
    let agent = node.agent().id();
    kill(agent, Signal::TERM);
    assert!(node.agent().wait().unwrap().success());
    assert!(!node.socket().exists());
    assert!(pod.try_wait().unwrap().is_none(), "the program goes on");
    drop(pod.stdin.take());
    assert!(pod.wait().unwrap().success());
}

#[test]
fn a_lost_card_loses_its_programs_and_is_given_out_again_when_it_is_back() {
    let node = AgentNode::start(&["--grace", "5s"]);
    let mut victim = node.program("A", "50");
    node.wait_until("the program to run", |status| status.leases.len() == 1);
    let simulate = |what: &str| {
        let dist = gpupool_dist::given_or_built().unwrap();
        let mut command = std::process::Command::new(dist.join("simgpu/nvidia-smi"));
        command.env("SIMGPU_STATE", node.folder().join("simgpu.state")).args([what, "0"]);
        assert!(command.status().unwrap().success());
    };
    simulate("--simulate-lost");
    let status = node.wait_until("the card to be lost and empty", |status| {
        status.cards[0].lost && status.leases.is_empty()
    });
    assert!(!status.cards[1].lost);
    victim.wait().unwrap();
    let mut next = node.program("B", "50");
    let status = node.wait_until("B to run", |status| status.leases.len() == 1);
    assert_eq!(status.leases[0].card, 1, "nobody gets a lost card");
    simulate("--simulate-recovered");
    node.wait_until("the card to be back", |status| !status.cards[0].lost);
    drop(next.stdin.take());
    next.wait().unwrap();
}

#[test]
fn run_and_status_say_why_a_program_was_ended() {
    let node = AgentNode::start(&["--pod-max-duration", "200ms", "--grace", "200ms"]);
    let program = crate::agent_node::gpupool().get_program().to_owned();
    // A shell that lives on after its first program, and ends badly when it is told to.
    let script = format!("trap '' TERM; {} demo-program; read word; exit 21", program.display());
    let mut stubborn = node.gpupool("run");
    stubborn.args(["--core", "1:100", "--memory", "1:100", "--name", "stubborn", "--", "sh", "-c", &script]);
    let mut stubborn =
        stubborn.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    node.wait_until("the stubborn one to run", |status| status.leases.len() == 1);
    let mut other = node.program("other", "1:100");
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut young = node.program("young", "1:100");
    node.wait_until("the young one to run", |status| status.leases.iter().any(|lease| lease.pod == "young"));
    let why = "its GPU programs did not end when told to and were killed: pre-empted for `young`";
    let table = String::from_utf8(node.gpupool("status").output().unwrap().stdout).unwrap();
    assert!(table.contains(&format!("ago: {why}")), "{table}");
    drop(stubborn.stdin.take());
    let output = stubborn.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(21));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(&format!("gpupool run: {why}")) && told.contains("(GPUSharePreempted)"), "{told}");
    for pod in [&mut other, &mut young] {
        drop(pod.stdin.take());
        pod.wait().unwrap();
    }
}

#[test]
fn the_end_of_a_command_waits_for_no_agent_that_does_not_answer() {
    let mut node = AgentNode::start(&[]);
    let mut command = node.gpupool("run");
    command.args(["--core", "5", "--memory", "5", "--name", "bad", "--", "sh", "-c", "read word; exit 3"]);
    let mut pod = command.stdin(Stdio::piped()).spawn().unwrap();
    node.wait_until("the pod", |status| status.pods.len() == 1);
    let agent = node.agent().id();
    kill(agent, Signal::STOP);
    drop(pod.stdin.take());
    let ended = wait_for("the end", || pod.try_wait().unwrap());
    kill(agent, Signal::CONT);
    assert_eq!(ended.code(), Some(3));
}
