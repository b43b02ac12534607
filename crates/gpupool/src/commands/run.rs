//! `gpupool run`: starts a command whose programs share the cards, and stands in for it until it ends: forwards signals to
//! it and ends with its exit status.

mod command_life;
mod signal_actions;
mod taken_in;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::bail;
use gpupool_agent::admin_api::client::{Client, ClientError};
use gpupool_agent::admin_api::{RefusalReason, Register, Registered, Reply, Request};
use gpupool_core::share::Share;

use crate::agent_socket::SocketArgs;
use crate::installation::Installation;

/// Exit code: the pod was refused for lack of room (`EX_TEMPFAIL`: later there may be some).
const NO_ROOM: u8 = 75;

/// Exit codes of shells: the command can't be executed; there is no such command.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How long a registration waits for an agent that left its socket behind.
const AGENT_RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long each step of the last question may take: the command's end is known already.
const ASKING_WHY_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two attempts to reach the agent.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Options of `gpupool run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Share of a card's computing time, in percent: what is asked for, and the most that may be used
    #[arg(long, value_name = "REQUEST[:LIMIT]")]
    core: Share,
    /// Share of a card's memory, in percent
    #[arg(long, value_name = "REQUEST[:LIMIT]")]
    memory: Share,
    /// The pod's name, unique on this machine [default: the command's name and a number]
    #[arg(long)]
    name: Option<String>,
    /// Higher goes first in the queue
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    #[command(flatten)]
    socket: SocketArgs,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Registers the pod, starts the command and ends as it ends.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let preload = Installation::find()?.preload()?;
    let socket = args.socket.path()?;
    let Some((program, arguments)) = args.command.split_first() else { bail!("no command was given") };
    let name = args.name.unwrap_or_else(|| default_name(program));
    let pod = name.clone();
    let register = Register { name, core: args.core, memory: args.memory, priority: args.priority };
    // Before it is registered: its programs are found by their ancestors, also those whose parents have ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let registered = match ask_with_retries(&socket, &Request::Register(register))? {
        Reply::Registered(registered) => registered,
        Reply::Refused(refused) => {
            say(&refused.sentence);
            let no_room = refused.reason == RefusalReason::NoRoom;
            return Ok(if no_room { NO_ROOM.into() } else { ExitCode::FAILURE });
        }
        other => bail!("the agent answers something else: {other:?}"),
    };
    let mut command = Command::new(program);
    command.args(arguments);
    set_environment(&mut command, &preload, &socket, &registered);
    if let Some(why) = taken_in::why_not(program, &search_path(&command)) {
        say(&format!("{} is not held to its share: {why}", program.display()));
    }
    let end = command_life::run_to_end(command)?;
    if !matches!(end, command_life::CommandEnd::Exited(0) | command_life::CommandEnd::NotStarted(_)) {
        say_why_it_was_ended(&socket, &pod);
    }
    match end {
        command_life::CommandEnd::Exited(code) => Ok(code.into()),
        command_life::CommandEnd::Killed(signal) => Ok(signal_actions::die_by(signal)),
        command_life::CommandEnd::NotStarted(failure) => {
            say(&format!("cannot run {}: {failure}", program.display()));
            let missing = failure.kind() == std::io::ErrorKind::NotFound;
            Ok(if missing { NOT_FOUND } else { NOT_EXECUTABLE }.into())
        }
    }
}

/// Where the agent has ended programs of the pod, its owner reads why. An agent that is away says nothing.
fn say_why_it_was_ended(socket: &Path, pod: &str) {
    let agent = Client::connect_with_patience(socket, ASKING_WHY_TIMEOUT);
    let answer = agent.and_then(|mut agent| agent.ask(&Request::Status {}));
    let Ok(Reply::Status(status)) = answer else { return };
    let mine = status.pods.iter().find(|candidate| candidate.name == pod);
    if let Some(termination) = mine.and_then(|pod| pod.termination.as_ref()) {
        say(&termination.to_string());
    }
}

/// Asks the agent. One that just went away, and left its socket because it was killed, may be on its way back: for a
/// few seconds it is tried again. Asking twice registers once.
fn ask_with_retries(socket: &Path, request: &Request) -> Result<Reply, ClientError> {
    let deadline = Instant::now() + AGENT_RETURN_TIMEOUT;
    let mut said = false;
    loop {
        let answer = Client::connect(socket).and_then(|mut agent| agent.ask(request));
        match answer {
            Err(ClientError::NoAgent { .. } | ClientError::HungUp { .. })
                if socket.exists() && Instant::now() < deadline =>
            {
                if !std::mem::replace(&mut said, true) {
                    say("the agent went away, waiting for it …");
                }
                std::thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// The last part of the command's path, and this process's id, which nobody else has now.
fn default_name(program: &OsStr) -> String {
    let last = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let printable: String = last.chars().filter(|letter| !letter.is_control()).take(60).collect();
    format!("{printable}-{}", std::process::id())
}

/// What the command's programs need to find the shim, the agent and, where they are simulated, the cards.
fn set_environment(command: &mut Command, preload: &Path, socket: &Path, registered: &Registered) {
    command.env("LD_PRELOAD", prepended("LD_PRELOAD", preload));
    command.env(gpupool_agent::socket_path::SOCKET_VARIABLE, socket);
    if let Some(simulated) = &registered.simulated {
        command.env("LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", &simulated.directory));
        command.env("PATH", prepended("PATH", &simulated.directory));
        command.env("SIMGPU_STATE", &simulated.state);
    }
}

/// Where the command is looked for.
fn search_path(command: &Command) -> OsString {
    let changed =
        command.get_envs().find_map(|(name, value)| (name == "PATH").then(|| value.map(OsStr::to_owned)));
    changed.flatten().or_else(|| std::env::var_os("PATH")).unwrap_or_default()
}

/// `first`, a colon, and what the variable holds, unless that begins with `first` already.
fn prepended(variable: &str, first: &Path) -> OsString {
    let first = first.as_os_str();
    let mut list = first.to_owned();
    let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) else { return list };
    if rest.as_encoded_bytes().split(|byte| *byte == b':').next() == Some(first.as_encoded_bytes()) {
        return rest;
    }
    list.push(":");
    list.push(rest);
    list
}

fn say(line: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "gpupool run: {line}");
}
