//! Whoever reaches the metrics' port may be anybody: it costs the agent little, and others read the page.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit};

use crate::node::{Node, PATIENCE};

/// Unfinished requests.
const MANY: usize = 4000;

/// Connections that the page takes at the same time.
const MOST: usize = 64;

/// Connects from one of this machine's own addresses.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(node: &Node, from: Ipv4Addr, path: &str) -> String {
    let mut stream = connect_from(from, node.metrics_address());
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn assert_page(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn unfinished_requests_take_little_and_others_read_the_page() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let more = Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, more).unwrap();
    let node = Node::start(&["--metrics-address", "0"]);
    let scraper = Ipv4Addr::new(127, 0, 0, 2);
    assert_page(&ask(&node, scraper, "/metrics"));
    node.status();
    let (descriptors, memory) = (node.descriptors(), node.resident_bytes());
    let unfinished = format!("GET /metrics HTTP/1.1\r\nHost: agent\r\nX-Filler: {}", "x".repeat(6000));
    let mut held = Vec::new();
    for number in 0..MANY {
        let mut stream = connect_from(Ipv4Addr::LOCALHOST, node.metrics_address());
        // It may be cut already, for one that came later.
        let _ = stream.write_all(unfinished.as_bytes());
        held.push(stream);
        if number % 1000 == 999 {
            assert_page(&ask(&node, scraper, "/metrics"));
        }
    }
    assert!(node.descriptors() <= descriptors + MOST + 8, "{} after {descriptors}", node.descriptors());
    let grown = node.resident_bytes().saturating_sub(memory);
    assert!(grown < 8 << 20, "{grown} bytes for {MANY} unfinished requests");
    assert_page(&ask(&node, scraper, "/metrics"));
    assert!(ask(&node, scraper, "/healthz").ends_with("ok\n"));
    drop(held);
    node.wait_for("their connections to be closed", || node.descriptors() <= descriptors);
}

#[test]
fn a_request_has_few_headers_of_few_bytes() {
    let node = Node::start(&["--metrics-address", "0"]);
    let long = format!("X: {}\r\n", "x".repeat(32 << 10));
    let many = "X: x\r\n".repeat(100);
    for headers in [long, many] {
        let mut stream = connect_from(Ipv4Addr::LOCALHOST, node.metrics_address());
        // It may be refused before all of it is written.
        let _ = write!(stream, "GET /metrics HTTP/1.1\r\n{headers}\r\n");
        let mut answer = Vec::new();
        // The rest of what was sent may be answered with a reset.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_page(&ask(&node, Ipv4Addr::LOCALHOST, "/metrics"));
}

#[test]
fn a_request_that_does_not_come_is_not_waited_for() {
    let node = Node::start(&["--metrics-address", "0"]);
    let mut stream = connect_from(Ipv4Addr::LOCALHOST, node.metrics_address());
    stream.write_all(b"GET /metrics").unwrap();
    // The end of the connection, with or without a word: a time-out of this read would be an error of another kind.
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    assert!(
        end.as_ref().is_ok()
            || end.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset),
        "{end:?}"
    );
}
