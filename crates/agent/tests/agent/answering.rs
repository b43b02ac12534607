//! The agent answers, whatever strangers do; and an agent that does not is noticed.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::client::Client;
use gpupool_wire::NO_CARD;
use gpupool_wire::message::{Acquire, Hello};
use zerocopy::IntoBytes as _;

use crate::node::Node;
use crate::passed::{lingering_briefly, pass};
use crate::program::{Answer, Program};

/// Goes round with a thread of this process: how long anybody has to wait for a turn on this machine now.
struct Echo {
    ours: UnixDatagram,
}

impl Echo {
    fn start() -> Self {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        std::thread::spawn(move || {
            let mut byte = [0];
            while theirs.recv(&mut byte).is_ok_and(|length| length == 1) && theirs.send(&byte).is_ok() {}
        });
        Self { ours }
    }

    fn round(&self) -> Duration {
        let begin = Instant::now();
        self.ours.send(&[1]).unwrap();
        self.ours.recv(&mut [0]).unwrap();
        begin.elapsed()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The thread ends with it.
        let _ = self.ours.send(&[]);
    }
}

#[test]
fn the_agent_answers_within_a_tenth_of_a_second_whatever_strangers_do() {
    for options in [&["--metrics-address", "0"][..], &["--metrics-address", "0", "--descriptors-arrive"]] {
        let node = Node::start(options);
        node.register("a", "50");
        let stop = AtomicBool::new(false);
        let echo = Echo::start();
        let (mut slowest, mut control) = (Duration::ZERO, Duration::ZERO);
        std::thread::scope(|scope| {
            let attacks: [fn(&Node); 5] = [connect, talk, read_nothing, pass_descriptors, scrape];
            for attack in attacks {
                let (node, stop) = (&node, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        attack(node);
                    }
                });
            }
            for _ in 0..300 {
                control = control.max(echo.round());
                slowest = slowest.max(node.slowest_answer(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // A turn of the agent's thread, and one of this one: each may have to wait for the processor.
        let limit = Duration::from_millis(100) + 10 * control;
        assert!(slowest < limit, "{slowest:?} with {options:?}; an echo took {control:?}");
    }
}

/// Makes connections and says nothing.
fn connect(node: &Node) {
    drop((0..16).map(|_| Program::connect(&node.socket())).collect::<Vec<_>>());
}

/// Says hello again and again.
fn talk(node: &Node) {
    let mut program = Program::connect(&node.socket());
    while program.send(Hello::fresh(NO_CARD).as_bytes(), None) {}
    while program.next() != Answer::HungUp {}
}

/// Asks for more than it reads.
fn read_nothing(node: &Node) {
    let program = Program::connect(&node.socket());
    program.send(Hello::fresh(NO_CARD).as_bytes(), None);
    for _ in 0..1000 {
        program.send(Acquire::new(NO_CARD).as_bytes(), None);
    }
}

/// Passes what is slow to close. Where the agent was the first to close it, it is this thread that waits.
fn pass_descriptors(node: &Node) {
    let mut peers = Vec::new();
    for _ in 0..16 {
        let program = Program::connect(&node.socket());
        peers.extend(pass(&program, Hello::fresh(NO_CARD).as_bytes(), lingering_briefly, 16, 2));
        // The agent has dealt with it before the peers go.
        node.slowest_answer(1);
    }
}

/// Asks for the metrics and does not wait for them.
fn scrape(node: &Node) {
    use std::io::Write as _;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut stream = std::net::TcpStream::connect(node.metrics_address()).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        open.push(stream);
    }
}

fn probe(node: &Node, within: &str) -> bool {
    let dist = gpupool_dist::given_or_built().unwrap();
    let mut command = Command::new(dist.join("bin/gpupool"));
    command.args(["probe-agent", "--within", within, "--socket"]).arg(node.socket());
    command.status().unwrap().success()
}

#[test]
fn the_probe_notices_an_agent_that_does_not_answer() {
    let node = Node::start(&[]);
    assert!(probe(&node, "60s"));
    node.freeze();
    assert!(!probe(&node, "300ms"));
    node.thaw();
    assert!(probe(&node, "60s"));
}

#[test]
fn strangers_who_take_all_connections_do_not_make_the_agent_look_dead() {
    let node = Node::start(&[]);
    let held: Vec<Program> = (0..64).map(|_| Program::connect(&node.socket())).collect();
    assert!(probe(&node, "60s"));
    drop(held);
}

#[test]
fn an_agent_that_still_looks_for_its_cards_is_no_dead_one() {
    let mut node = Node::start(&[]);
    node.kill();
    assert!(Client::connect(&node.socket()).is_err(), "nobody listens");
    assert!(probe(&node, "60s"));
    node.start_again();
}

/// A client certificate that is none: the agent finds its API server, and no way to speak with it.
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {"client-certificate-data": "bm9uZQ==", "client-key-data": "bm9uZQ=="}}]}"#;

#[test]
fn an_agent_one_of_whose_threads_has_ended_ends_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    std::fs::write(path("kubeconfig"), KUBECONFIG).unwrap();
    for name in ["kubelet", "cdi"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let [kubeconfig, kubelet, cdi, install] = ["kubeconfig", "kubelet", "cdi", "install"].map(path);
    let options = ["--kubernetes", "--kubeconfig", &kubeconfig, "--kubelet-dir", &kubelet, "--cdi-dir", &cdi];
    let more = ["--install-dir", &install, "--node-name", "n"];
    let mut node = Node::begin(&[&options[..], &more[..]].concat());
    assert!(!node.wait_for_end().success());
    let said = node.log();
    assert!(
        said.contains(r#"the agent's part "kubernetes" has ended: no client for the API server"#),
        "{said}"
    );
    assert!(said.lines().count() < 20 && said.contains("programs that hold cards go on"), "{said}");
}
