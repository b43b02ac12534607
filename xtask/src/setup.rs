//! What the machine must have before anything is built, and how it gets it.
//!
//! Rust, gcc, Python and Go are the reader's; what a plain Debian lacks beside them is installed by package name
//! where that is allowed, and named in one sentence where it is not.

use std::process::{Command, Stdio};

use anyhow::bail;

use crate::step;

/// A program or module that a step needs, how to see whether it is there, and the Debian package that brings it.
struct Need {
    what: &'static str,
    probe: &'static [&'static str],
    package: &'static str,
}

const NEEDS: &[Need] = &[
    Need { what: "a C compiler", probe: &["gcc", "--version"], package: "gcc" },
    Need { what: "Python", probe: &["python3", "--version"], package: "python3" },
    Need {
        what: "Python's virtual environments",
        probe: &["python3", "-c", "import ensurepip, venv"],
        package: "python3-venv",
    },
];

/// Checks every need and installs what is missing.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !answers(need.probe)).collect();
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
        step::succeed(Command::new(line[0]).args(&line[1..]).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    run(&["apt-get", "update", "-q"])?;
    run(&[&["apt-get", "install", "-q", "-y", "--no-install-recommends"], packages].concat())
}
