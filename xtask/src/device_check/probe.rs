//! The probe, started and read.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::kit::Kit;
use crate::machine::AgentNode;

/// The sections of a record beside `driver`, in the order in which they are asked.
pub(super) const SECTIONS: [&str; 8] =
    ["errors", "resolver", "bytes", "pools", "contexts", "graphs", "nvml", "timing"];

/// How long one section may take: a driver that hangs must not cost the rest.
const PATIENCE: Duration = Duration::from_secs(45);

/// The probe and the way in which it is started.
pub(super) struct Probe<'a> {
    kit: &'a Kit,
    command: Box<dyn Fn(&Path) -> Command + 'a>,
}

impl<'a> Probe<'a> {
    /// On the driver alone: the machine's own, or the simulated one with the cards in this file.
    pub(super) fn bare(kit: &'a Kit, simulated: Option<PathBuf>) -> Self {
        let command = move |program: &Path| {
            let mut command = Command::new(program);
            if let Some(state) = &simulated {
                command.env("LD_LIBRARY_PATH", kit.file("simgpu"));
                command.env("SIMGPU_STATE", state).env("SIMGPU_CARDS", "1");
            }
            command
        };
        Self { kit, command: Box::new(command) }
    }

    /// As a pod of an agent, with so many percent of the card's memory.
    pub(super) fn pod(kit: &'a Kit, node: &'a AgentNode, memory: u8) -> Self {
        let command = move |program: &Path| {
            let mut command = node.gpupool("run");
            command.args(["--name", "probe", "--core", "100", "--memory", &memory.to_string(), "--"]);
            command.arg(program);
            command
        };
        Self { kit, command: Box::new(command) }
    }

    /// Asks one section.
    pub(super) fn section(&self, name: &str) -> anyhow::Result<Value> {
        let mut command = (self.command)(&self.kit.file("probe"));
        command.arg(name);
        if name == "resolver" {
            command.arg(self.kit.file("lookups.tsv"));
        }
        let (output, errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let child = start(command, &output, &errors)?;
        let status = wait(child)?;
        let complaint = text(errors)?;
        if !status.success() {
            bail!("ended with {}: {}", words(status), complaint.trim());
        }
        serde_json::from_str(&text(output)?).with_context(|| format!("{name} printed no JSON"))
    }

    /// The command that takes memory of a family and keeps it.
    pub(super) fn taker(&self, family: &str, step: u64, most: u64) -> Command {
        let mut command = (self.command)(&self.kit.file("probe"));
        command.args(["limit", family, &step.to_string(), &most.to_string()]);
        command
    }
}

fn start(mut command: Command, output: &File, errors: &File) -> anyhow::Result<Child> {
    // What the caller's own shell says must not reach the driver.
    for variable in ["LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "SIMGPU_FAULTS", "GPUPOOL_SOCKET"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors.try_clone()?);
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}

fn wait(mut child: Child) -> anyhow::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("took longer than {} s and was killed", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(mut file: File) -> anyhow::Result<String> {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn words(status: ExitStatus) -> String {
    status.signal().map_or_else(|| status.to_string(), |signal| format!("signal {signal}"))
}
