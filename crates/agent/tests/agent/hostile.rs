//! Strangers, rubbish, floods and forged descriptors: they hurt nobody but who sends them.

use std::sync::atomic::{AtomicBool, Ordering};

use gpupool_agent::admin_api::client::Client;
use gpupool_agent::admin_api::{RefusalReason, Reply, Request};
use gpupool_wire::NO_CARD;
use gpupool_wire::ledger;
use gpupool_wire::message::{Acquire, FrameKind, Granted, Header, Hello, MAX_FRAME, Release};
use rustix::fs::{MemfdFlags, SealFlags};
use zerocopy::IntoBytes as _;

use crate::node::Node;
use crate::program::{Answer, Program};

#[test]
fn a_stranger_is_refused_with_a_sentence() {
    let node = Node::start(&[]);
    let Answer::Refused(sentence) = Program::connect(&node.socket()).hello() else { panic!("not refused") };
    assert!(sentence.contains("gpupool run"), "{sentence}");
}

#[test]
fn rubbish_ends_the_connection_and_not_the_agent() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let long = vec![0; MAX_FRAME + 1];
    let hello = Hello::fresh(NO_CARD);
    let half = &hello.as_bytes()[..20];
    let mut granted = Header::new(FrameKind::Granted).as_bytes().to_vec();
    granted.resize(size_of::<Granted>(), 0);
    let (asking, releasing) = (Acquire::new(NO_CARD), Release::new());
    let cases: [(&str, &[u8]); 7] = [
        ("three bytes", b"abc"),
        ("noise", &[0xa5; 100]),
        ("a packet that is too long", &long),
        ("half of a hello", half),
        ("the agent's own words", &granted),
        ("asking before hello", asking.as_bytes()),
        ("releasing before hello", releasing.as_bytes()),
    ];
    for (what, packet) in cases {
        let mut program = Program::connect(&node.socket());
        program.send(packet, None);
        assert_eq!(program.next(), Answer::HungUp, "{what}");
    }
    let mut twice = Program::welcomed(&node.socket());
    twice.send(Hello::fresh(NO_CARD).as_bytes(), None);
    assert_eq!(twice.next(), Answer::HungUp, "hello twice");
    assert_eq!(node.status().pods.len(), 1);
}

#[test]
fn who_speaks_no_version_that_is_spoken_here_is_told_so_in_a_form_that_everybody_can_read() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let told = |packet: &[u8], theirs: &str| {
        let mut program = Program::connect(&node.socket());
        program.send(packet, None);
        let Answer::Refused(sentence) = program.next() else { panic!("not refused") };
        assert!(sentence.contains(theirs) && sentence.contains("start its container anew"), "{sentence}");
        program.acquire();
        assert_eq!(program.next(), Answer::HungUp, "it is not taken in");
    };
    told(Hello::fresh(NO_CARD).speaking(900, 901).as_bytes(), "versions 900 to 901");
    told(Hello::fresh(NO_CARD).speaking(5, 2).as_bytes(), "versions 5 to 2");
    // From a release that does not keep to it that a hello can always be read.
    let mut packet = Hello::fresh(NO_CARD).as_bytes().to_vec();
    packet[4] = 99;
    told(&packet, "version 99");
    assert_eq!(node.status().leases.len(), 0);
}

#[test]
fn a_newer_program_that_still_speaks_this_version_is_served_whatever_else_it_says() {
    let node = Node::start(&[]);
    node.register("a", "50");
    drop(Program::welcomed(&node.socket()));
    let mut program = Program::connect(&node.socket());
    let unknown = [&b"GPOL\x01\0\x63\0"[..], b"something new"].concat();
    program.send(&unknown, None);
    let longer = [Hello::fresh(NO_CARD).speaking(1, 900).as_bytes(), b"more"].concat();
    program.send(&longer, None);
    assert!(matches!(program.next(), Answer::Welcome { .. }));
    program.send(&unknown, None);
    program.acquire();
    program.granted();
    // Nobody has as much to say.
    for _ in 0..100 {
        program.send(&unknown, None);
    }
    assert_eq!(program.next(), Answer::HungUp);
}

#[test]
fn requests_that_are_none_are_refused_with_what_is_wrong() {
    let node = Node::start(&[]);
    for text in ["", "{", "[]", r#"{"request":"dance"}"#, r#"{"request":"status","more":1}"#] {
        let mut packet = Header::new(FrameKind::Control).as_bytes().to_vec();
        packet.push(0);
        packet.extend_from_slice(text.as_bytes());
        let program = Program::connect(&node.socket());
        program.send(&packet, None);
        // The answer is JSON: enough to see that there is one, and that the agent lives.
        while !program.has_answer() {
            std::thread::yield_now();
        }
    }
    assert!(matches!(
        node.client().ask(&Request::Stop { name: "nobody".to_owned() }).unwrap(),
        Reply::Refused(refused) if refused.reason == RefusalReason::UnknownPod
    ));
}

#[test]
fn one_process_can_hold_only_a_few_connections() {
    let node = Node::start(&[]);
    node.register("a", "50");
    // The connection that registered counts until it is closed.
    let mut open: Vec<Client> = Vec::new();
    node.wait_for("eight connections", || {
        let mut client = node.client();
        let taken_in = client.ask(&Request::Status {}).is_ok();
        open.extend(taken_in.then_some(client));
        open.len() == 8
    });
    let over: Vec<Program> = (0..56).map(|_| Program::connect(&node.socket())).collect();
    for mut program in over {
        assert_eq!(program.next(), Answer::HungUp);
    }
    assert!(open.iter_mut().all(|client| client.ask(&Request::Status {}).is_ok()));
    drop(open);
    // All of them gone, there is room again.
    node.wait_for("room for another connection", || {
        matches!(Program::connect(&node.socket()).hello(), Answer::Welcome { .. })
    });
}

#[test]
fn a_flood_on_one_connection_does_not_keep_others_waiting() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    program.granted();
    let socket = node.socket();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A program that says hello again and again, and reads nothing.
            while !stop.load(Ordering::Relaxed) {
                let mut flood = Program::connect(&socket);
                while flood.send(Hello::fresh(NO_CARD).as_bytes(), None) {}
                while flood.next() != Answer::HungUp {}
            }
        });
        for _ in 0..200 {
            program.acquire();
            program.granted();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn whoever_reads_nothing_is_cut_and_holds_nobody_up() {
    let node = Node::start(&[]);
    node.register("a", "50");
    let mut deaf = Program::welcomed(&node.socket());
    deaf.acquire();
    deaf.granted();
    // Each is answered with another grant; the answers pile up until they fit nowhere any more.
    for _ in 0..20_000 {
        deaf.acquire();
    }
    while deaf.next() != Answer::HungUp {}
    assert_eq!(node.status().leases.len(), 1, "the lease is the process's, not the connection's");
}

#[test]
fn a_ledger_that_the_agent_did_not_make_is_not_taken() {
    let mut node = Node::start(&[]);
    node.register("a", "50");
    let mut program = Program::welcomed(&node.socket());
    program.acquire();
    let granted = program.granted();
    program.ledger().charge_anyway(0, 12345);
    // Of the same name, length, seals and beginning, and mapped by the same process.
    let forged = rustix::fs::memfd_create("gpupool-ledger", MemfdFlags::ALLOW_SEALING).unwrap();
    let mut content = vec![0; ledger::FILE_LENGTH];
    assert_eq!(rustix::io::pread(&program.descriptors[1], &mut content, 0).unwrap(), content.len());
    assert_eq!(rustix::io::pwrite(&forged, &content, 0).unwrap(), content.len());
    rustix::fs::fcntl_add_seals(&forged, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    let true_one = std::mem::replace(&mut program.descriptors[1], forged);
    program.ledger().charge_anyway(0, 99);
    drop(true_one);
    node.kill();
    node.start_again();
    let mut back = Program::connect(&node.socket());
    assert!(matches!(back.resume(&granted, 0), Answer::Welcome { .. }));
    let counted = node.status().leases[0].memory_used_bytes;
    // Only root may open a mapping; others don't find the true one any more, and take nothing in its place.
    let expected = rustix::process::geteuid().is_root().then_some(12345);
    assert_eq!(counted, expected);
}
