//! `gpupool run`: what it refuses, and that it is a good stand-in for its command.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::agent_node::{AgentNode, gpupool, said, wait_for};

#[test]
fn a_wrong_share_is_a_usage_error_that_names_option_and_range_and_starts_nothing() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("started");
    for wrong in ["0", "101", "50:40", "half", "50%", "1:2:3", "", ":", "50:", "-5", "1.5", "0x10"] {
        for (option, other) in [("--core", "--memory"), ("--memory", "--core")] {
            let mut run = gpupool();
            run.arg("run").arg(format!("{option}={wrong}")).args([other, "50", "--", "touch"]).arg(&trace);
            let output = run.output().unwrap();
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{option} {wrong}: {said}");
            assert!(said.contains(option) && said.contains("1 to 100"), "{option} {wrong}: {said}");
            assert!(!trace.exists());
        }
    }
}

#[test]
fn without_an_agent_one_line_says_how_to_start_one() {
    let place = tempfile::tempdir().unwrap();
    for subcommand in [vec!["run", "--core", "5", "--memory", "5"], vec!["status"], vec!["stop"]] {
        let mut command = gpupool();
        command.args(&subcommand).arg("--socket").arg(place.path().join("none.sock"));
        command.arg("true");
        if subcommand == ["status"] {
            command = gpupool();
            command.arg("status").arg("--socket").arg(place.path().join("none.sock"));
        }
        let output = command.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(69), "{subcommand:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("gpupool agent"), "{said}");
    }
}

#[test]
fn an_agent_that_was_killed_is_waited_for_a_moment() {
    let mut node = AgentNode::start(&[]);
    node.agent().kill().unwrap();
    node.agent().wait().unwrap();
    let mut run = node.script("5", "exit 3").stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut words = BufReader::new(run.stderr.take().unwrap());
    words.read_line(&mut said).unwrap();
    assert!(said.contains("waiting for it"), "{said}");
    node.start_again();
    assert_eq!(run.wait().unwrap().code(), Some(3));
}

#[test]
fn the_environment_says_where_the_agent_is() {
    let node = AgentNode::start(&[]);
    let mut run = gpupool();
    run.env("GPUPOOL_SOCKET", node.socket()).args(["run", "--core", "5", "--memory", "5", "true"]);
    assert!(run.status().unwrap().success());
}

#[test]
fn requests_beyond_the_cards_are_refused_with_the_figures() {
    let node = AgentNode::start(&[]);
    let mut first = node.script("100", "read line").stdin(Stdio::piped()).spawn().unwrap();
    node.wait_until("the first pod", |status| status.pods.len() == 1);
    let mut second = node.script("60", "read line").stdin(Stdio::piped()).spawn().unwrap();
    node.wait_until("the second pod", |status| status.pods.len() == 2);
    let third = node.script("41", "true").output().unwrap();
    assert_eq!(third.status.code(), Some(75));
    assert!(said(&third).contains("160 of 200"), "{}", said(&third));
    assert!(node.script("40", "true").status().unwrap().success());
    for pod in [&mut first, &mut second] {
        drop(pod.stdin.take());
        pod.wait().unwrap();
    }
    node.wait_until("all pods to be gone", |status| status.pods.is_empty());
}

#[test]
fn a_name_is_used_once_at_a_time() {
    let node = AgentNode::start(&[]);
    let named = |name: &str| {
        let mut command = node.gpupool("run");
        command.args(["--core", "5", "--memory", "5", "--name", name, "--", "cat"]).stdin(Stdio::piped());
        command
    };
    let mut first = named("A").spawn().unwrap();
    node.wait_until("the pod", |status| status.pods.len() == 1);
    let second = named("A").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(said(&second).contains("`A`"), "{}", said(&second));
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    node.wait_until("the name to be free", |status| status.pods.is_empty());
    assert!(named("A").stdin(Stdio::null()).status().unwrap().success());
    assert_eq!(named("a\nb").output().unwrap().status.code(), Some(1));
}

#[test]
fn the_commands_own_end_is_passed_on() {
    let node = AgentNode::start(&[]);
    for code in [0, 1, 42, 255] {
        assert_eq!(node.script("5", &format!("exit {code}")).status().unwrap().code(), Some(code));
    }
    for signal in [2, 6, 9, 11, 15] {
        let status = node.script("5", &format!("ulimit -c 0; kill -{signal} $$")).status().unwrap();
        assert_eq!(status.signal(), Some(signal));
    }
    for (command, code) in
        [("/no/such/command", 127), ("no-such-command", 127), ("/etc/passwd", 126), ("/", 126)]
    {
        let output =
            node.gpupool("run").args(["--core", "5", "--memory", "5", "--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {}", said(&output));
        assert_eq!(said(&output).lines().count(), 1);
    }
}

#[test]
fn signals_reach_the_command() {
    let node = AgentNode::start(&[]);
    let place = tempfile::tempdir().unwrap();
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
        let ready = place.path().join(name);
        let script =
            format!("trap 'exit 33' {name}; touch {}; while :; do sleep 0.01; done", ready.display());
        let mut run = node.script("5", &script).spawn().unwrap();
        wait_for("the trap", || ready.exists().then_some(()));
        send(run.id(), name);
        assert_eq!(run.wait().unwrap().code(), Some(33), "{name}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored_in_the_command() {
    let node = AgentNode::start(&[]);
    // As nohup does it.
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg("trap '' HUP; exec \"$0\" \"$@\"").arg(gpupool().get_program());
    shell.args(["run", "--core", "5", "--memory", "5", "--socket"]).arg(node.socket());
    shell.args(["--", "sh", "-c", "kill -HUP $$; kill -HUP $PPID; exit 7"]);
    assert_eq!(shell.status().unwrap().code(), Some(7));
}

#[test]
fn a_command_that_stops_and_goes_on_takes_its_stand_in_along() {
    let node = AgentNode::start(&[]);
    // A group of its own, as a shell with job control gives it: the kernel stops nobody in a group without a keeper.
    let mut run =
        node.script("5", "read line; exit 5").process_group(0).stdin(Stdio::piped()).spawn().unwrap();
    let state = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim().chars().next().unwrap()
    };
    let child = wait_for("the command", || {
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).ok()?.trim().parse().ok()
    });
    send(run.id(), "TSTP");
    wait_for("both to stop", || (state(run.id()) == 'T' && state(child) == 'T').then_some(()));
    send(run.id(), "CONT");
    wait_for("both to go on", || (state(run.id()) != 'T' && state(child) != 'T').then_some(()));
    drop(run.stdin.take());
    assert_eq!(run.wait().unwrap().code(), Some(5));
}

#[test]
fn programs_find_shim_agent_and_cards_and_the_users_own_variables_stay() {
    let node = AgentNode::start(&[]);
    let script = "printf '%s\\n' \"$LD_PRELOAD\" \"$LD_LIBRARY_PATH\" \"$GPUPOOL_SOCKET\" \"$SIMGPU_STATE\"; nvidia-smi -L";
    let mut run = node.script("5", script);
    run.env("LD_PRELOAD", "/users/own.so").env("LD_LIBRARY_PATH", "/users/libraries");
    let output = run.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("/lib/by-platform/$PLATFORM/libgpupool.so:/users/own.so"), "{text}");
    assert!(lines[1].ends_with("/simgpu:/users/libraries"), "{text}");
    assert_eq!(lines[2], node.socket().to_str().unwrap());
    assert_eq!(lines[3], node.folder().join("simgpu.state").to_str().unwrap());
    assert!(lines[4].contains("simulated"), "{text}");
}

#[test]
fn a_program_whose_parents_have_ended_still_belongs_to_its_pod() {
    let node = AgentNode::start(&[]);
    let program = gpupool().get_program().to_owned();
    // The shell in between ends at once: the program is an orphan by the time it asks for a card.
    let script = format!("(setsid {} demo-program <&3 &) 3<&0; cat", program.display());
    let mut run = node.script("50", &script).stdin(Stdio::piped()).spawn().unwrap();
    let status = node.wait_until("the orphan to get its card", |status| status.leases.len() == 1);
    assert_eq!(status.pods.len(), 1);
    drop(run.stdin.take());
    run.wait().unwrap();
    node.wait_until("everything to be gone", |status| status.pods.is_empty());
}

#[test]
fn a_pod_lives_on_as_long_as_its_programs_when_its_run_is_killed() {
    let node = AgentNode::start(&[]);
    let mut run = node.program("A", "50");
    node.wait_until("the program to run", |status| status.leases.len() == 1);
    let stdin = run.stdin.take();
    run.kill().unwrap();
    run.wait().unwrap();
    let status = node.wait_until("the run to be missed", |status| status.pods[0].run_pid.is_none());
    assert_eq!(status.leases.len(), 1, "its program still holds the card");
    drop(stdin);
    node.wait_until("the pod to be gone", |status| status.pods.is_empty());
}

fn send(id: u32, signal: &str) {
    let signal = match signal {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "QUIT" => Signal::QUIT,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "TSTP" => Signal::TSTP,
        "CONT" => Signal::CONT,
        other => panic!("{other}"),
    };
    rustix::process::kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
}
