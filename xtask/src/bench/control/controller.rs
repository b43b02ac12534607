//! The running `gpupool control`: its figures, its memory, its log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use gpupool_testbed::spawn_tied;
use rustix::process::{Pid, Signal, kill_process};

use super::fleet::Use;

/// How long the controller may take to serve its figures, and for one answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running controller; ends with this value at the latest.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Controller {
    /// Starts it and waits until it serves its figures.
    pub(crate) fn start(dist: &Path, kubeconfig: &Path, log: &Path) -> anyhow::Result<Self> {
        // Free now, and nobody else is likely to take it meanwhile: then the controller says so and ends.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let mut command = Command::new(dist.join("bin/gpupool"));
        command.args(["control", "--sandbox-workloads", "--kubeconfig"]).arg(kubeconfig);
        command.args(["--metrics-address", &address.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?);
        let child = spawn_tied(command).context("cannot start gpupool control")?;
        let mut controller = Self { child, address, log: log.to_owned() };
        let start = Instant::now();
        while controller.page().is_err() {
            if let Some(status) = controller.child.try_wait()? {
                bail!("gpupool control ended with {status}: {}", fs::read_to_string(log)?.trim_end());
            }
            ensure!(start.elapsed() < PATIENCE, "gpupool control does not serve its figures on {address}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(controller)
    }

    /// Its figures now. One question needs no HTTP library.
    pub(crate) fn page(&self) -> anyhow::Result<Page> {
        let mut stream = TcpStream::connect(self.address).context("cannot ask gpupool control")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: control\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head and a body")?;
        ensure!(head.split(' ').nth(1) == Some("200"), "gpupool control answered {head}");
        Ok(Page::read(body))
    }

    /// The most memory that it had resident so far, in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("the kernel does not say VmHWM")? * 1024.0)
    }

    /// Asks it to end and waits for that; gives the warnings and errors in its log.
    pub(crate) fn end(mut self) -> anyhow::Result<Vec<String>> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has a number")?, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "gpupool control ended with {status}");
        let log = fs::read_to_string(&self.log)?;
        let bad = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        Ok(log.lines().filter(bad).map(str::to_owned).collect())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended already; nothing is left to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The controller's figures at one moment: series with their labels, as printed, and their values.
#[derive(Debug, Default)]
pub(crate) struct Page {
    series: BTreeMap<String, u64>,
}

impl Page {
    fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.strip_prefix("gpupool_control_")?.to_owned(), value.parse().ok()?))
        });
        Self { series: series.collect() }
    }

    /// Whether so many nodes are valid in a use, by its own account, and none waits for anything.
    pub(crate) fn says_all_right(&self, node_use: Use, nodes: usize) -> bool {
        let valid = format!(r#"nodes{{use="{}",reason="Valid"}}"#, node_use.label());
        let valid = self.series.get(&valid).and_then(|count| usize::try_from(*count).ok());
        valid == Some(nodes) && self.series.get("pending") == Some(&0)
    }

    /// The writes between two moments, by kind and outcome.
    pub(crate) fn writes_since(&self, before: &Self) -> String {
        let writes = self.series.iter().filter_map(|(series, count)| {
            let labels = series.strip_prefix("writes_total")?;
            let more = count - before.series.get(series).unwrap_or(&0);
            let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
            (more > 0).then(|| format!("{more} {}", values.join(" ")))
        });
        writes.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Page {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.series.iter().try_for_each(|(series, value)| write!(formatter, "{series} {value}; "))
    }
}
