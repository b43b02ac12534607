//! Whoever reads the agent's log may stop (a pager, a container's log pipe): that is nothing to the programs.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::net::TcpListener;

use gpupool_agent::admin_api::Reply;
use rustix::fs::{OFlags, fcntl_setfl};

use crate::node::Node;

/// A pipe without room, and how much is in it.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter, usize) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut filled = 0;
    // First in pages, then to the last byte.
    for piece in [&[b'.'; 4096][..], b"."] {
        while let Ok(written) = writer.write(piece) {
            filled += written;
        }
    }
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer, filled)
}

/// What an agent wrote to the end, behind what was in the pipe before.
fn read_to_end(mut reader: PipeReader, before: usize) -> String {
    reader.read_exact(&mut vec![0; before]).unwrap();
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    log
}

#[test]
fn an_agent_whose_log_nobody_reads_starts_answers_and_ends() {
    let (_reader, writer, _) = full_pipe();
    let mut node = Node::begin_with_log(&[], writer.into());
    node.wait_for_answer();
    assert!(matches!(node.register("program", "50"), Reply::Registered(_)));
    node.wait_until("the program", |status| status.pods.len() == 1);
    node.terminate();
    assert!(node.wait_for_end().success());
}

#[test]
fn what_nobody_read_is_there_when_somebody_reads_again() {
    let (reader, writer, filled) = full_pipe();
    let mut node = Node::begin_with_log(&[], writer.into());
    node.wait_for_answer();
    let log = std::thread::spawn(move || read_to_end(reader, filled));
    node.terminate();
    assert!(node.wait_for_end().success());
    let log = log.join().unwrap();
    let (begin, end) = (log.find("listening on"), log.find("stopped; programs that hold cards go on"));
    assert!(begin.is_some() && begin < end, "{log}");
}

#[test]
fn an_agent_that_cannot_start_ends_though_nobody_reads_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = ["--metrics-address", address.as_str()];
    let (_reader, writer, _) = full_pipe();
    assert!(!Node::begin_with_log(&options, writer.into()).wait_for_end().success());
    let (reader, writer) = pipe().unwrap();
    assert!(!Node::begin_with_log(&options, writer.into()).wait_for_end().success());
    let log = read_to_end(reader, 0);
    assert!(log.contains("gpupool: cannot serve the metrics on"), "{log}");
}
