//! Control whose log nobody reads goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is all test code, its helpers included")]

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};

/// How long anything may take. Generous: nothing here measures speed.
const PATIENCE: Duration = Duration::from_mins(1);

/// An API server that nobody has started: control says so again and again.
const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"#;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe without room, and how much is in it.
fn full_pipe() -> (PipeReader, PipeWriter, usize) {
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

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn metrics(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

#[test]
fn control_goes_on_while_nobody_reads_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let (mut reader, writer, filled) = full_pipe();
    let address = free_address();
    let mut control = Command::new(env!("CARGO_BIN_EXE_gpupool"));
    control.arg("control").arg("--kubeconfig").arg(&kubeconfig);
    control.arg("--metrics-address").arg(address.to_string()).stderr(writer);
    let mut control = Running(control.spawn().unwrap());
    // What held the writer open is the command.
    let deadline = Instant::now() + PATIENCE;
    let answer = loop {
        assert_eq!(control.0.try_wait().unwrap(), None);
        // Its first lines, about the API server, come before it serves this.
        if let Some(answer) = metrics(address) {
            break answer;
        }
        assert!(Instant::now() < deadline, "control stands still");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(answer.contains("gpupool_control_log_lines_lost_total 0"), "{answer}");
    let mut before = vec![0; filled];
    reader.read_exact(&mut before).unwrap();
    let mut log = String::new();
    while !log.contains("cannot watch the nodes") {
        let mut some = [0; 512];
        let length = reader.read(&mut some).unwrap();
        assert_ne!(length, 0, "control has ended: {log}");
        log.push_str(&String::from_utf8_lossy(&some[..length]));
    }
}
