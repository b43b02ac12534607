//! Whoever is asked how much memory a pod uses says the same, to the byte: the driver in the program, NVML in the pod,
//! `gpupool status`, the metrics page, and NVML outside of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::agent_node::{AgentNode, dist};

/// What a context of the simulated cards takes, and what the program takes beside it, in MiB: plain, managed, an array, a
/// pool, physical memory.
const USED: u64 = (256 + 100 + 7 + 16 + 50 + 30) << 20;

/// What NVML says of the first card outside of every pod.
fn used_on_card(node: &AgentNode) -> u64 {
    let mut smi = Command::new(dist().join("simgpu/nvidia-smi"));
    smi.args(["--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]);
    smi.env("LD_LIBRARY_PATH", dist().join("simgpu"));
    smi.env("SIMGPU_STATE", node.folder().join("simgpu.state")).env("SIMGPU_CARDS", "2");
    let output = smi.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{output:?}")) << 20
}

fn metric(node: &AgentNode, start: &str) -> u64 {
    let log = node.log();
    let address = log.split("http://").nth(1).unwrap().split("/metrics").next().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find(|line| line.starts_with(start) && line.contains("pod=\"views\""));
    let line = line.unwrap_or_else(|| panic!("{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn everybody_says_the_same_of_a_pods_memory() {
    let node = AgentNode::start(&["--metrics-address", "0"]);
    let program = node.folder().join("views");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/views.c");
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(&program).arg(source).arg("-ldl");
    assert!(gcc.status().unwrap().success(), "views.c does not compile");
    let mut run = node.gpupool("run");
    run.args(["--core", "50", "--memory", "50", "--name", "views", "--"]).arg(program);
    let mut pod = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(pod.stdout.take().unwrap()).lines();
    let mut numbers = || -> Vec<u64> {
        let line = lines.next().unwrap().unwrap();
        line.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{line}"))).collect()
    };
    let limit = 40 << 30;
    assert_eq!(numbers(), [limit, USED, limit, limit, USED, USED, USED]);
    assert_eq!(numbers(), [USED, USED]);
    let status = node.status();
    assert_eq!(status.leases[0].memory_used_bytes, Some(USED));
    assert_eq!(metric(&node, "DCGM_FI_DEV_FB_USED{") << 20, USED);
    assert_eq!(used_on_card(&node), USED);
    drop(pod.stdin.take());
    assert!(pod.wait().unwrap().success());
}
