//! A room to try the built library in: a simulated machine, a small agent of the tests' own, C programs.
//!
//! The agent here knows no pool and no policy; it grants when a test says so, and writes down what it is told. So
//! the shim is proven without the real agent.

#![allow(dead_code, reason = "each test file uses its own part of the room")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the room is part of the tests")]

pub(crate) mod agent;
pub(crate) mod every;
pub(crate) mod table;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use agent::Agent;
use rustix::process::{WaitId, WaitIdOptions};
use tempfile::TempDir;

/// Where the built artefacts are laid out.
pub(crate) fn dist() -> PathBuf {
    gpupool_dist::given_or_built().unwrap()
}

/// The built shim.
pub(crate) fn shim() -> PathBuf {
    dist().join("lib/libgpupool.so")
}

/// One simulated machine, with the agent of its pod.
pub(crate) struct Lab {
    pub(crate) folder: TempDir,
    pub(crate) agent: Agent,
    pub(crate) cards: String,
}

impl Lab {
    /// A machine with cards in the form of `SIMGPU_CARDS`; its pod may use half of the memory of the first.
    pub(crate) fn new(cards: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = table::probe(folder.path(), cards);
        let agent = Agent::start(&folder.path().join("agent.sock"), table);
        Self { folder, agent, cards: cards.to_owned() }
    }

    pub(crate) fn prepare(&self, command: &mut Command) {
        simulated(command, self.folder.path(), &self.cards);
        command.env("LD_PRELOAD", shim()).env("GPUPOOL_SOCKET", self.agent.socket());
    }

    /// The GPU program, doing what `words` say, under the shim.
    pub(crate) fn gpu(&self, words: &str) -> Command {
        let mut command = self.bare_gpu(words);
        self.prepare(&mut command);
        command
    }

    /// The same linked to the driver.
    pub(crate) fn linked_gpu(&self, words: &str) -> Command {
        let mut command = Command::new(program(self.folder.path(), "gpu", Link::Driver));
        command.args(words.split_whitespace());
        self.prepare(&mut command);
        command
    }

    /// The same without the shim.
    pub(crate) fn bare_gpu(&self, words: &str) -> Command {
        let mut command = Command::new(program(self.folder.path(), "gpu", Link::Nothing));
        command.args(words.split_whitespace());
        simulated(&mut command, self.folder.path(), &self.cards);
        command
    }

    /// The NVML program under the shim.
    pub(crate) fn tools(&self, words: &str) -> Command {
        let mut command = Command::new(program(self.folder.path(), "tools", Link::Nothing));
        command.args(words.split_whitespace());
        self.prepare(&mut command);
        command
    }

    /// Another program of the tests under the shim.
    pub(crate) fn other(&self, name: &str, link: Link) -> Command {
        let mut command = Command::new(program(self.folder.path(), name, link));
        self.prepare(&mut command);
        command
    }
}

/// The environment of a simulated machine.
pub(crate) fn simulated(command: &mut Command, folder: &Path, cards: &str) {
    command
        .env("LD_LIBRARY_PATH", dist().join("simgpu"))
        .env("SIMGPU_STATE", folder.join("state"))
        .env("SIMGPU_CARDS", cards)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("LD_PRELOAD")
        .env_remove("GPUPOOL_SOCKET");
}

/// What a C program is linked to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Nothing,
    Driver,
    Shared,
}

/// Compiles one of the C programs, once per folder.
pub(crate) fn program(folder: &Path, name: &str, link: Link) -> PathBuf {
    let suffix = match link {
        Link::Nothing => "",
        Link::Driver => "-linked",
        Link::Shared => ".so",
    };
    let to = folder.join(format!("{name}{suffix}"));
    if to.exists() {
        return to;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-pthread"]);
    match link {
        Link::Nothing => {}
        Link::Driver => {
            compiler.arg("-DDIRECT").arg("-L").arg(dist().join("simgpu"));
        }
        Link::Shared => {
            compiler.args(["-shared", "-fPIC"]);
        }
    }
    compiler.arg("-o").arg(&to).arg(source);
    if link == Link::Driver {
        compiler.arg("-l:libcuda.so.1");
    }
    compiler.arg("-ldl");
    let output = compiler.output().expect("the tests need gcc");
    assert!(output.status.success(), "{name}.c: {}", String::from_utf8_lossy(&output.stderr));
    to
}

/// What a finished program said.
pub(crate) struct Said {
    pub(crate) out: Vec<String>,
    pub(crate) err: String,
}

/// Runs a command to its end, which must be good.
pub(crate) fn finish(mut command: Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = Said {
        out: String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(output.status.success(), "{:?}: {:?} {}", output.status, said.out, said.err);
    said
}

/// What a program that was told to stop somewhere has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Stopped,
    Ended,
}

/// A program that runs beside the test.
pub(crate) struct Running {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The next line that it prints; waits for it.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads lines up to this one, which are returned without it.
    pub(crate) fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the program ended before it said {last}: {lines:?}");
            if line == last {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Lets a paused program go on.
    pub(crate) fn go_on(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Gives it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until it has stopped itself, or ended.
    pub(crate) fn next_step(&self) -> Step {
        let pid = rustix::process::Pid::from_child(&self.child);
        // Left for whoever waits for its end.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(pid), options).unwrap().unwrap();
        if status.stopped() { Step::Stopped } else { Step::Ended }
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(mut self) -> u32 {
        let pid = self.child.id();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        pid
    }

    /// Lets it go on wherever it pauses, and waits for its good end: the rest of what it printed, and all of its standard error.
    pub(crate) fn end(mut self) -> Said {
        // It may have ended already.
        let _ = self.input.take().unwrap().write_all(&[b'\n'; 8]);
        let mut out = String::new();
        self.output.read_to_string(&mut out).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status:?}: {out} {err}");
        Said { out: out.lines().map(str::to_owned).collect(), err }
    }
}
