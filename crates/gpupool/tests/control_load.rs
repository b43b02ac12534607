//! `gpupool control` under requests that are made to hurt it, as a process: its memory is the kernel's figure.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![cfg(feature = "kubernetes")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gpupool_testbed::{Cluster, spawn_tied};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const PATIENCE: Duration = Duration::from_mins(3);
const MIB: usize = 1 << 20;
/// What all of it together may add to the most memory that the process ever had, in KiB.
const BUDGET: u64 = 48 << 10;

struct Process(Child);

impl Process {
    /// The most memory that it ever had, in KiB.
    fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn is_ready(health: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(health) else { return false };
    let asked = stream.write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok_and(|_| answer.starts_with("HTTP/1.1 200"))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Posts a body to admission; gives the status code, or nothing where the connection is cut before that.
fn post(address: SocketAddr, client: &Arc<ClientConfig>, body: &str) -> Option<(u16, String)> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(client), name).unwrap(), stream);
    let length = body.len();
    let head = format!(
        "POST /mutate/pods HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    // It may be answered, and the connection closed, before all of the body is sent.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let code = answer.split(' ').nth(1)?.parse().ok()?;
    Some((code, answer))
}

fn review(object: &str, old: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"UPDATE",
            "name":"p","namespace":"default","kind":{{"group":"","version":"v1","kind":"Pod"}},
            "userInfo":{{"username":"somebody"}},"object":{object},"oldObject":{old}}}}}"#
    )
}

fn pod(padding: usize) -> String {
    let padding = "x".repeat(padding);
    format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"{padding}"}}]}}}}"#)
}

#[test]
fn whatever_is_sent_control_stays_small_and_answers_meanwhile() {
    let cluster = Cluster::builder().start().unwrap();
    let (admission, health) = (free(), free());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpupool"));
    command.args(["control", "--serve", &admission.to_string(), "--health-address", &health.to_string()]);
    command.env("KUBECONFIG", cluster.kubeconfig()).stderr(Stdio::null());
    let control = Process(spawn_tied(command).unwrap());
    until("control is not ready", || is_ready(health));
    let template = r#"--output=go-template={{index .data "ca.crt" | base64decode}}"#;
    let authority = cluster.kubectl(["get", "secret", "gpupool-control-certificate", template]).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let client = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());

    let proper = || {
        let (code, answer) = post(admission, &client, &review(&pod(3 << 9), "null")).unwrap();
        assert!(code == 200 && answer.contains(r#""allowed":true"#), "{answer}");
    };
    proper();
    let large = review(&pod(3 << 19), &pod(3 << 19));
    assert!(large.len() > 3 * MIB);
    let (code, answer) = post(admission, &client, &large).unwrap();
    assert!(code == 200 && answer.contains(r#""allowed":true"#), "{answer}");
    let before = control.most_memory();

    let zeros = |bytes: usize| "0,".repeat(bytes / 2);
    let sixteen = format!("[{}0]", zeros(16 * MIB));
    let inside = review(&format!(r#"{{"spec":{{"containers":[{}0]}}}}"#, zeros(3 * MIB / 2)), "null");
    let everywhere = format!(r#"{{"request":[{}0]}}"#, zeros(3 * MIB));
    // They connect and say nothing.
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(admission).unwrap()).collect();
    thread::scope(|scope| {
        let attacks = [&sixteen, &inside, &everywhere].repeat(4);
        let attackers: Vec<_> =
            attacks.iter().map(|body| scope.spawn(|| post(admission, &client, body))).collect();
        for _ in 0..10 {
            proper();
            assert!(is_ready(health));
        }
        for attacker in attackers {
            // Refused with a word, or cut while it was still sending.
            if let Some((code, answer)) = attacker.join().unwrap() {
                let refused = code >= 400 || answer.contains(r#""allowed":false"#);
                assert!(refused, "{answer}");
            }
        }
    });
    drop(silent);
    proper();
    let added = control.most_memory().saturating_sub(before);
    eprintln!("control: {before} KiB before, {added} KiB more at most under attack");
    assert!(added < BUDGET, "{added} KiB more than the {before} KiB before");
    drop(control);
    cluster.stop().unwrap();
}
