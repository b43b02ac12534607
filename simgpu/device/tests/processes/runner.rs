//! Runs each scenario in a process of its own, with a state file of its own: what is tested is what processes do to
//! each other. A scenario may start more processes of itself, in other roles.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// Longest that a scenario may take. Nothing waits that long unless something is broken.
const LIMIT: Duration = Duration::from_mins(2);
const SCENARIO: &str = "SCENARIO";
const ROLE: &str = "ROLE";

/// One test: its name states the rule.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// Environment of its process, besides `SIMGPU_STATE`.
    pub env: &'static [(&'static str, &'static str)],
    pub run: fn(),
}

/// The role that this process was started in; empty for the scenario itself.
pub fn role() -> String {
    env::var(ROLE).unwrap_or_default()
}

/// A word that was handed down to this process.
#[allow(dead_code, reason = "not every suite hands words down")]
pub fn given(name: &str) -> String {
    env::var(name).unwrap()
}

/// The state file of the scenario.
#[allow(dead_code, reason = "not every suite looks at the file")]
pub fn state_path() -> PathBuf {
    env::var_os("SIMGPU_STATE").unwrap().into()
}

/// Runs every scenario whose name contains the first argument.
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    if let Ok(name) = env::var(SCENARIO) {
        (scenarios.iter().find(|scenario| scenario.name == name).unwrap().run)();
        return ExitCode::SUCCESS;
    }
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut failed = 0;
    let chosen: Vec<_> = scenarios.iter().filter(|scenario| scenario.name.contains(&filter)).collect();
    println!("\nrunning {} scenarios", chosen.len());
    for scenario in &chosen {
        match run(scenario) {
            Ok(()) => println!("scenario {} ... ok", scenario.name),
            Err(output) => {
                failed += 1;
                println!("scenario {} ... FAILED\n{output}", scenario.name);
            }
        }
    }
    println!("\nscenario result: {} passed; {failed} failed\n", chosen.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(scenario: &Scenario) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("CUDA_DEVICE_ORDER")
        .env("SIMGPU_STATE", directory.path().join("state"))
        .env(SCENARIO, scenario.name)
        .envs(scenario.env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if started.elapsed() > LIMIT => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut output = format!("{status}\n");
    child.stdout.unwrap().read_to_string(&mut output).unwrap();
    child.stderr.unwrap().read_to_string(&mut output).unwrap();
    Err(output)
}

/// Another process of the same scenario. It is killed when this goes out of scope.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Peer {
    /// Starts one in `role`, with more words in its environment.
    pub fn start(role: &str, env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .env(ROLE, role)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the peer ended without a word");
        line.trim().to_owned()
    }

    /// Waits for a line that must be `word`.
    pub fn expect(&mut self, word: &str) {
        assert_eq!(self.hear(), word);
    }

    /// Lets it go on from [`pause`].
    pub fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    /// Kills it the hard way and waits until it is gone.
    #[allow(dead_code, reason = "not every suite kills")]
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a peer: says a line to the process that started it.
pub fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// In a peer: waits for [`Peer::go_on`]; ends the process when the one that started it is gone.
pub fn pause() {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
}

/// Waits until `done`, with a limit that only a broken build reaches.
#[allow(dead_code, reason = "not every suite waits")]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_mins(1), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
