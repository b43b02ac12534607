//! The agent ends in every way, and starts again.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use gpupool_agent::admin_api::Reply;

use crate::leases::whole_card;
use crate::node::Node;
use crate::program::{Answer, Program};

#[test]
fn a_killed_agent_knows_its_leases_again() {
    let mut node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    let granted = program.granted();
    program.ledger().charge_anyway(0, 1 << 20);
    let before = node.status();
    node.kill();
    node.start_again();
    let after = node.status();
    assert_eq!(after.leases[0].lease, before.leases[0].lease);
    assert_eq!(after.leases[0].card_uuid, before.leases[0].card_uuid);
    assert_eq!(after.leases[0].memory_used_bytes, Some(1 << 20));
    assert!(after.leases[0].age_seconds >= before.leases[0].age_seconds);
    let mut back = Program::connect(&node.socket());
    assert!(matches!(back.resume(&granted, 0), Answer::Welcome { slot: 0, .. }));
    assert_eq!(back.limits().memory_bytes, after.leases[0].memory_limit_bytes);
}

#[test]
fn the_queue_has_the_same_order_and_waiting_programs_go_on_by_themselves() {
    let mut node = Node::start(&[]);
    let mut pods: Vec<Child> = Vec::new();
    for (count, name) in ["one", "two", "three", "four", "five"].into_iter().enumerate() {
        pods.push(whole_card(&node, name));
        node.wait_until(name, |status| status.leases.len() + status.queue.len() == count + 1);
    }
    let order = |node: &Node| -> Vec<String> {
        node.status().queue.iter().map(|waiting| waiting.pod.clone()).collect()
    };
    assert_eq!(order(&node), ["three", "four", "five"]);
    node.kill();
    node.start_again();
    assert_eq!(order(&node), ["three", "four", "five"]);
    assert_eq!(node.status().leases.len(), 2);
    // One after the other lets go, and the next in line gets its card.
    for mut pod in pods {
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
    }
    node.wait_until("all to be gone", |status| status.pods.is_empty());
}

#[test]
fn who_died_while_the_agent_was_away_has_lost_its_lease_and_the_next_has_it() {
    let mut node = Node::start(&[]);
    let mut first = whole_card(&node, "first");
    let mut second = whole_card(&node, "second");
    node.wait_until("both cards to be taken", |status| status.leases.len() == 2);
    let mut third = whole_card(&node, "third");
    node.wait_until("the third to wait", |status| status.queue.len() == 1);
    let holder = node.status().pods.iter().find(|pod| pod.name == "first").unwrap().pids[0];
    node.kill();
    let holder = rustix::process::Pid::from_raw(holder.cast_signed()).unwrap();
    rustix::process::kill_process(holder, rustix::process::Signal::KILL).unwrap();
    assert!(!first.wait().unwrap().success());
    node.start_again();
    // Not before it has looked at the cards.
    let status = node.wait_until("the third to be let in", |status| status.queue.is_empty());
    assert!(status.leases.iter().any(|lease| lease.pod == "third"));
    for pod in [&mut second, &mut third] {
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
    }
}

#[test]
fn of_a_cut_journal_the_whole_records_are_used_and_the_rest_is_reported() {
    let mut node = Node::start(&[]);
    let mut pod = whole_card(&node, "held");
    node.wait_until("the card to be taken", |status| status.leases.len() == 1);
    node.kill();
    let mut journal = std::fs::read(node.journal()).unwrap();
    journal.extend_from_slice(b"0123abcd {\"half\":");
    std::fs::write(node.journal(), journal).unwrap();
    node.start_again();
    assert_eq!(node.status().leases[0].pod, "held");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("damaged")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("are used") && line.contains("agent.journal.damaged-1"), "{line}");
    let aside = node.journal().with_file_name("agent.journal.damaged-1");
    assert_eq!(std::fs::read(aside).unwrap(), b"0123abcd {\"half\":");
    drop(pod.stdin.take());
    assert!(pod.wait().unwrap().success());
}

#[test]
fn a_record_of_a_newer_agent_is_a_refusal_to_start_that_changes_nothing() {
    let mut node = Node::start(&[]);
    let mut pod = whole_card(&node, "held");
    node.wait_until("the card to be taken", |status| status.leases.len() == 1);
    node.kill();
    let before = std::fs::read(node.journal()).unwrap();
    let body = br#"{"leaseLent":{"pod":"held","to":"another"}}"#;
    let newer =
        [before.as_slice(), format!("{:08x} ", crc32fast::hash(body)).as_bytes(), body, b"\n"].concat();
    std::fs::write(node.journal(), &newer).unwrap();
    assert_eq!(node.start_in_vain().code(), Some(1));
    let log = node.log();
    let said = log.lines().last().unwrap();
    assert!(said.contains("unknown variant `leaseLent`"), "{log}");
    assert!(said.contains("start the version that wrote it again"), "{log}");
    assert!(said.contains(node.journal().to_str().unwrap()), "{log}");
    assert_eq!(std::fs::read(node.journal()).unwrap(), newer);
    // The version that can read it is back.
    std::fs::write(node.journal(), &before).unwrap();
    node.start_again();
    assert_eq!(node.status().leases[0].pod, "held");
    drop(pod.stdin.take());
    assert!(pod.wait().unwrap().success());
}

#[test]
fn a_journal_of_another_boot_holds_nothing() {
    let mut node = Node::start(&[]);
    node.register("a", "50");
    node.kill();
    let journal = std::fs::read_to_string(node.journal()).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let body = format!(r#"{{"opened":{{"version":1,"boot":"{}"}}}}"#, "another boot");
    let first = journal.lines().next().unwrap();
    assert!(first.contains(boot.trim()), "{first}");
    let changed =
        format!("{:08x} {body}\n{}", crc32fast::hash(body.as_bytes()), journal.split_once('\n').unwrap().1);
    std::fs::write(node.journal(), changed).unwrap();
    node.start_again();
    assert!(node.status().pods.is_empty());
    assert!(node.log().contains("earlier boot"), "{}", node.log());
}

#[test]
fn a_second_agent_on_the_same_socket_or_journal_is_refused_in_one_line() {
    let node = Node::start(&[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let same_socket = vec![node.socket(), elsewhere.path().join("journal")];
    let same_journal = vec![elsewhere.path().join("agent.sock"), node.journal()];
    for paths in [same_socket, same_journal] {
        let output = second_agent(&paths).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("another agent uses"), "{said}");
    }
    assert!(node.status().pods.is_empty(), "the first one still serves");
}

fn second_agent(paths: &[PathBuf]) -> Command {
    let dist = gpupool_dist::given_or_built().unwrap();
    let mut command = Command::new(dist.join("bin/gpupool"));
    command.args(["agent", "--simulated-cards", "2", "--socket"]).arg(&paths[0]);
    command.arg("--journal").arg(&paths[1]).arg("--state-dir").arg(paths[0].parent().unwrap());
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_run_whose_answer_was_lost_registers_once_when_it_asks_again() {
    let mut node = Node::start(&[]);
    assert!(matches!(node.register("a", "60"), Reply::Registered(_)));
    node.kill();
    node.start_again();
    assert!(matches!(node.register("a", "60"), Reply::Registered(_)));
    assert_eq!(node.status().pods.len(), 1);
    // Asking for something else is another matter.
    assert!(matches!(node.register("a", "50"), Reply::Refused(_)));
    assert!(matches!(node.register("b", "60"), Reply::Refused(_)));
}
