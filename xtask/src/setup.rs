//! What the machine must have before anything is built, and how it gets it.
//!
//! Rust, gcc, Python and Go are the reader's; what a plain Debian lacks beside them is installed by package name
//! where that is allowed, and named in one sentence where it is not.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use anyhow::bail;

use crate::step;

/// A program or module that a step needs, how to see whether it is there, and the Debian package that brings it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    what: &'static str,
    probe: &'static [&'static str],
    package: &'static str,
}

const C_COMPILER: Need = Need { what: "a C compiler", probe: &["gcc", "--version"], package: "gcc" };
pub(crate) const PYTHON: Need = Need { what: "Python", probe: &["python3", "--version"], package: "python3" };
/// Only measured against, so only the measurement asks for it.
pub(crate) const JQ: Need = Need { what: "jq", probe: &["jq", "--version"], package: "jq" };

const NEEDS: &[Need] = &[
    C_COMPILER,
    PYTHON,
    Need {
        what: "Python's virtual environments",
        probe: &["python3", "-c", "import ensurepip, venv"],
        package: "python3-venv",
    },
    // The shim is also loaded into programs that it can do nothing for.
    Need {
        what: "a C library other than glibc",
        probe: &["musl-gcc", "-dumpversion"],
        package: "musl-tools",
    },
];

/// What nodes with a kubelet need of the machine, beside the programs that are built. Only root can have such nodes.
pub(crate) const NODES: &[Need] = &[
    Need { what: "runc", probe: &["runc", "--version"], package: "runc" },
    Need { what: "iproute2", probe: &["ip", "-V"], package: "iproute2" },
    Need { what: "iptables", probe: &["iptables", "--version"], package: "iptables" },
    Need {
        what: "plug-ins for container networks",
        probe: &["sh", "-c", "test -e /usr/lib/cni/bridge || test -e /opt/cni/bin/bridge"],
        package: "containernetworking-plugins",
    },
];

/// Checks every need and installs what is missing; for root, that of nodes with a kubelet too.
pub(crate) fn prepare() -> anyhow::Result<()> {
    provide(NEEDS)?;
    if rustix::process::geteuid().is_root() { provide(NODES) } else { Ok(()) }
}

/// Checks these needs and installs what is missing.
pub(crate) fn provide(needs: &[Need]) -> anyhow::Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !answers(need.probe)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
    eprintln!(
        "    missing: {}; installing {} (usually under a minute)",
        names.join(", "),
        packages.join(" ")
    );
    install(&packages)
}

fn answers(probe: &[&str]) -> bool {
    let Some((program, arguments)) = probe.split_first() else { return false };
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs Debian packages as root, or through a sudo that asks nothing; else says what to type.
fn install(packages: &[&str]) -> anyhow::Result<()> {
    let prefix: &[&str] = if answers(&["sh", "-c", "test $(id -u) = 0"]) {
        &[]
    } else if answers(&["sudo", "-n", "true"]) {
        &["sudo", "-n"]
    } else {
        bail!("please install these packages, then try again: apt-get install {}", packages.join(" "));
    };
    let run = |arguments: &[&str]| {
        let line: Vec<&str> = prefix.iter().chain(arguments).copied().collect();
        let mut installer = Command::new(line[0]);
        // Standard output is this program's own: a shell may evaluate it.
        installer.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        step::succeed(installer.args(&line[1..]).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    run(&["apt-get", "update", "-q"])?;
    run(&[&["apt-get", "install", "-q", "-y", "--no-install-recommends"], packages].concat())
}
