//! The card is chosen late: what a program sees before it holds one, when it asks for one, and which one it gets.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use gpupool_wire::message::RefusalReason;
use lab::agent::{Answer, Heard};
use lab::table::{uuid_hex, uuid_text};
use lab::{Lab, Running, finish};

#[test]
fn a_whole_program_runs_from_init_to_exit() {
    for how in ["dlsym", "proc"] {
        let lab = Lab::new("2xSim-4GB");
        let mut command = lab.gpu("init count retain alloc 1048576 info launch sync free release");
        command.env("GPU_RESOLVE", how);
        let said = finish(command);
        let limit = lab.agent.limits().memory_bytes;
        let free = limit - (64 << 20) - (1 << 20);
        let info = format!("info=0 {free} {limit}");
        let expected = [
            "init=0",
            "count=0 1",
            "retain=0",
            "alloc=0",
            &info,
            "launch=0",
            "sync=0",
            "free=0",
            "release=0",
        ];
        assert_eq!(said.out, expected, "{how}");
        assert_eq!(said.err, "");
    }
}

#[test]
fn a_program_that_is_linked_to_the_driver_is_held_as_well() {
    let lab = Lab::new("1xSim-4GB");
    let said = finish(lab.linked_gpu("init retain alloc 4000000000 alloc 1024 launch"));
    assert_eq!(said.out, ["init=0", "retain=0", "alloc=2", "alloc=0", "launch=0"]);
}

#[test]
fn looking_at_the_card_takes_no_lease() {
    let lab = Lab::new("2xSim-4GB");
    let card = &lab.agent.table().cards[0];
    let said =
        finish(lab.gpu("init count get 0 get 1 name uuid bus attribute 75 attribute 0 total current device"));
    let hex = uuid_hex(card);
    let expected = [
        "init=0".to_owned(),
        "count=0 1".to_owned(),
        "get=0 0".to_owned(),
        "get=101 -1".to_owned(),
        format!("name=0 {}", card.name()),
        format!("uuid=0 {hex}"),
        format!("bus=0 {:04X}:{:02X}:{:02X}.0", card.pci_domain, card.pci_bus, card.pci_device),
        format!("attribute=0 {}", card.cc_major),
        "attribute=1 0".to_owned(),
        format!("total=0 {}", card.total_memory / 2),
        "current=0 none".to_owned(),
        "device=201".to_owned(),
    ];
    assert_eq!(said.out, expected);
    assert!(!lab.agent.heard().iter().any(|heard| matches!(heard, Heard::Acquire { .. })));
}

#[test]
fn before_init_the_driver_itself_answers() {
    let lab = Lab::new("1xSim-4GB");
    let words = "version count total alloc 512 retain launch";
    let (held, bare) = (finish(lab.gpu(words)), finish(lab.bare_gpu(words)));
    assert_eq!(held.out, bare.out);
    assert!(
        lab.agent.heard().is_empty(),
        "a process that does not initialise the driver is no business of the agent"
    );
}

#[test]
fn the_granted_card_is_device_zero_whichever_it_is() {
    let lab = Lab::new("2xSim-4GB");
    lab.agent.answer(Answer::Grant(1));
    let card = &lab.agent.table().cards[1];
    let mut command = lab.gpu("init retain count uuid");
    command.env("CUDA_VISIBLE_DEVICES", "0,1");
    let said = finish(command);
    let hex = uuid_hex(card);
    assert_eq!(said.out, ["init=0", "retain=0", "count=0 1", &format!("uuid=0 {hex}")]);
}

#[test]
fn a_program_that_hides_every_card_finds_none() {
    let lab = Lab::new("2xSim-4GB");
    for list in ["", "-1", "7"] {
        let mut command = lab.gpu("init count");
        command.env("CUDA_VISIBLE_DEVICES", list);
        assert_eq!(finish(command).out, ["init=100", "count=3 -1"], "{list:?}");
    }
}

#[test]
fn the_environment_is_as_it_was_after_the_grant() {
    let lab = Lab::new("2xSim-4GB");
    for (list, expected) in [(Some("1"), "1"), (None, "unset")] {
        let mut command = lab.other("environment", lab::Link::Nothing);
        if let Some(list) = list {
            command.env("CUDA_VISIBLE_DEVICES", list);
        }
        assert_eq!(finish(command).out, [format!("retain=0 {expected}")]);
    }
}

#[test]
fn the_runtimes_private_tables_take_a_lease() {
    let lab = Lab::new("1xSim-4GB");
    finish(lab.gpu("init table"));
    assert!(lab.agent.heard().iter().any(|heard| matches!(heard, Heard::Acquire { .. })));
}

#[test]
fn a_waiting_program_is_told_how_long_and_at_which_place() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Later);
    lab.agent.change(|limits| limits.position = 4);
    let mut running = Running::start(lab.gpu("init retain"));
    assert_eq!(running.line(), "init=0");
    let mut error = std::io::BufReader::new(running.child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut error, &mut line).unwrap();
    assert_eq!(line, "You have been waiting for 3 seconds. Approximate position: 4\n");
    lab.agent.grant(0);
    assert_eq!(running.line(), "retain=0");
    assert_eq!(running.line(), "");
    running.child.wait().unwrap();
}

#[test]
fn a_wait_with_closed_standard_error_goes_on() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Later);
    let mut running = Running::start(lab.gpu("closestderr init retain"));
    drop(running.child.stderr.take());
    assert_eq!(running.line(), "init=0");
    lab.agent.wait_for(1, |heard| matches!(heard, Heard::Acquire { .. }));
    std::thread::sleep(std::time::Duration::from_millis(3_500));
    lab.agent.grant(0);
    assert_eq!(running.line(), "retain=0");
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn a_reader_of_standard_error_that_went_away_kills_nobody() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Later);
    let mut running = Running::start(lab.gpu("init retain"));
    drop(running.child.stderr.take());
    assert_eq!(running.line(), "init=0");
    lab.agent.wait_for(1, |heard| matches!(heard, Heard::Acquire { .. }));
    std::thread::sleep(std::time::Duration::from_millis(3_500));
    lab.agent.grant(0);
    assert_eq!(running.line(), "retain=0");
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn of_several_threads_one_asks_and_all_go_on() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Later);
    let mut running = Running::start(lab.gpu("init threads"));
    assert_eq!(running.line(), "init=0");
    lab.agent.grant(0);
    assert_eq!(running.line(), "threads=0");
    let acquires = lab.agent.heard().iter().filter(|heard| matches!(heard, Heard::Acquire { .. })).count();
    assert_eq!(acquires, 1);
    running.end();
}

#[test]
fn a_process_that_is_turned_away_finds_no_device_and_is_told_why_once() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.turn_away(RefusalReason::NotRegistered);
    let said = finish(lab.gpu("init init count retain"));
    assert_eq!(said.out, ["init=100", "init=100", "count=3 -1", "retain=3"]);
    assert_eq!(said.err, "gpupool: This process belongs to no pod.\n");
}

#[test]
fn a_process_that_its_agent_cannot_understand_finds_no_device_unless_it_is_let_go() {
    let lab = Lab::new("2xSim-4GB");
    lab.agent.turn_away(RefusalReason::Version);
    let said = finish(lab.gpu("init retain"));
    assert_eq!(said.out, ["init=100", "retain=3"]);
    assert_eq!(said.err, "gpupool: This process belongs to no pod.\n");
    // Let go, it is as if there were no gpupool, but for what it was told.
    lab.agent.turn_away(RefusalReason::Unheld);
    let calls = "init init count retain alloc 3000000000 info launch sync";
    for how in ["dlsym", "proc"] {
        let mut command = lab.gpu(calls);
        command.env("GPU_RESOLVE", how);
        let said = finish(command);
        assert_eq!(said.out, finish(lab.bare_gpu(calls)).out, "{how}");
        assert_eq!(said.err, "gpupool: This process belongs to no pod.\n");
    }
    assert_eq!(lab.agent.ledger().charged(), 0);
}

#[test]
fn a_refused_card_is_an_unavailable_device() {
    let lab = Lab::new("1xSim-4GB");
    lab.agent.answer(Answer::Refuse);
    let said = finish(lab.gpu("init retain"));
    assert_eq!(said.out, ["init=0", "retain=46"]);
    assert_eq!(said.err, "gpupool: The card of this process is lost.\n");
}

#[test]
fn without_an_agent_nothing_is_done_at_all() {
    let lab = Lab::new("2xSim-4GB");
    let mut command = lab.gpu("init count retain alloc 3000000000 info launch");
    command.env_remove("GPUPOOL_SOCKET");
    assert_eq!(
        finish(command).out,
        finish(lab.bare_gpu("init count retain alloc 3000000000 info launch")).out
    );
    assert!(lab.agent.heard().is_empty());
}

#[test]
fn tools_see_one_card_with_the_pods_memory_and_take_no_lease() {
    let lab = Lab::new("2xSim-4GB");
    lab.agent.change(|limits| limits.card = 1);
    let card = &lab.agent.table().cards[1];
    let uuid = uuid_text(card);
    let other = uuid_text(&lab.agent.table().cards[0]);
    let limit = lab.agent.limits().memory_bytes;
    let words =
        format!("count init count at 0 index uuid at 1 index at 2 of {uuid} of {other} at 0 memory memory2");
    let said = finish(lab.tools(&words));
    let expected = [
        "count=1 99".to_owned(),
        "init=0".to_owned(),
        "count=0 1".to_owned(),
        "at=0".to_owned(),
        "index=0 1".to_owned(),
        format!("uuid=0 {uuid}"),
        "at=0".to_owned(),
        "index=0 1".to_owned(),
        "at=2".to_owned(),
        "of=0".to_owned(),
        "of=6".to_owned(),
        "at=0".to_owned(),
        format!("memory=0 {limit} {limit} 0"),
        format!("memory2=0 {limit} 0 {limit} 0"),
    ];
    assert_eq!(said.out, expected);
    assert!(!lab.agent.heard().iter().any(|heard| matches!(heard, Heard::Acquire { .. })));
}

#[test]
fn tools_do_not_wait_for_an_agent_that_is_away() {
    let lab = Lab::new("2xSim-4GB");
    lab.agent.die();
    let said = finish(lab.tools("init count at 1"));
    assert_eq!(said.out, ["init=0", "count=0 2", "at=0"]);
    assert_eq!(said.err, "");
}

#[test]
fn what_needs_a_context_fails_without_one_and_keeps_no_card() {
    let lab = Lab::new("1xSim-4GB");
    let words = "init stream sync alloc 512 info device";
    assert_eq!(finish(lab.gpu(words)).out, finish(lab.bare_gpu(words)).out);
    // Only memory asks for a card, which goes back at once.
    let heard = lab.agent.wait_for(1, |heard| matches!(heard, Heard::Release { .. }));
    let acquired = heard.iter().filter(|heard| matches!(heard, Heard::Acquire { .. })).count();
    assert_eq!(acquired, 1);
}
