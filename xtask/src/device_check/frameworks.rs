//! `PyTorch` and `CuPy`, unmodified, with and without gpupool: on real cards only, since NVIDIA's runtime library works
//! with NVIDIA's driver alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::kit::Kit;
use crate::machine::AgentNode;
use crate::step;

/// The package that is installed, the module that shows that it is there, and the script that uses it.
const FRAMEWORKS: [(&str, &str, &str); 2] =
    [("torch==2.15.0", "torch", "pytorch.py"), ("cupy-cuda13x==14.2.0", "cupy", "cupy_arrays.py")];

/// Where the frameworks come from.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Frameworks {
    /// A Python that has the frameworks already, or one of them [default: python3; what it lacks is installed]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Install them from the wheels in this folder, without a network
    #[arg(long, value_name = "FOLDER")]
    wheels: Option<PathBuf>,
    /// Leave them out
    #[arg(long = "no-frameworks")]
    left_out: bool,
}

impl Frameworks {
    /// Runs every framework's script bare and under gpupool; what is wrong, one sentence each.
    pub(super) fn check(&self, kit: &Kit, node: &AgentNode) -> Vec<String> {
        if self.left_out {
            eprintln!("PyTorch and CuPy: left out, as asked");
            return Vec::new();
        }
        let mut faults = Vec::new();
        for (package, module, script) in FRAMEWORKS {
            match self
                .python_with(package, module)
                .and_then(|python| compare(&python, &kit.file(script), node))
            {
                Ok(None) => eprintln!("{module}: the same with and without gpupool"),
                Ok(Some(difference)) => faults.push(format!("{module}: {difference}")),
                Err(failure) => faults.push(format!("{module}: {failure:#}")),
            }
        }
        faults
    }

    /// A Python with this module: the given one, or an environment that is made once and kept.
    fn python_with(&self, package: &str, module: &str) -> anyhow::Result<PathBuf> {
        let given = self.python.clone().unwrap_or_else(|| PathBuf::from("python3"));
        if has(&given, module) {
            return Ok(given);
        }
        let home = std::env::var_os("HOME").context("HOME is not set")?;
        let folder = PathBuf::from(home)
            .join(".cache/gpupool/envs")
            .join(format!("device-{}", package.replace('=', "-")));
        let python = folder.join("bin/python");
        if has(&python, module) {
            return Ok(python);
        }
        step::succeed(Command::new(&given).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        if let Some(wheels) = &self.wheels {
            pip.args(["--no-index", "--find-links"]).arg(wheels);
        }
        step::succeed(pip.args([package, "numpy"])).with_context(|| {
            format!("cannot install {package}; give --wheels or --python, or --no-frameworks")
        })?;
        Ok(python)
    }
}

fn has(python: &Path, module: &str) -> bool {
    let mut command = Command::new(python);
    command.args([
        "-c",
        &format!("import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"),
    ]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a script both ways: the first difference, if there is one.
fn compare(python: &Path, script: &Path, node: &AgentNode) -> anyhow::Result<Option<String>> {
    let bare = transcript(Command::new(python).arg(script))?;
    let mut pod = node.gpupool("run");
    pod.args(["--core", "100", "--memory", "100", "--"]).arg(python).arg(script);
    let held = transcript(&mut pod)?;
    let lines = bare.lines().zip(held.lines()).find(|(one, other)| one != other);
    Ok(match lines {
        Some((one, other)) => Some(format!("bare: {one}; under gpupool: {other}")),
        None if bare.lines().count() != held.lines().count() => {
            Some("one says more than the other".to_owned())
        }
        None => None,
    })
}

fn transcript(command: &mut Command) -> anyhow::Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = complaint.lines().last().unwrap_or_default();
        bail!("{command:?} ended with {}: {last}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
