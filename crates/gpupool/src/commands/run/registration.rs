//! The pod's registration with the agent: made before the command starts, and made again with every agent that takes the
//! place of the one before, for as long as the command runs. An agent that has kept its journal knows the pod anyway; to one
//! that has not it is news, and the pod's programs go on.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::client::{Client, ClientError};
use gpupool_agent::admin_api::{Register, Reply, Request};

use super::say;

/// How long a registration waits for an agent that left its socket behind.
const AGENT_RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two attempts to reach the agent.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How long each step of the last question may take: the command's end is known already.
const ASKING_WHY_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two looks whether another agent listens. An agent does not turn anybody away as unknown for longer than it has
/// been there for this.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Asks the agent. One that just went away, and left its socket because it was killed, may be on its way back: for a
/// few seconds it is tried again. Asking twice registers once.
pub(super) fn register(socket: &Path, register: &Register) -> Result<Reply, ClientError> {
    let deadline = Instant::now() + AGENT_RETURN_TIMEOUT;
    let mut said = false;
    loop {
        match ask(socket, register) {
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

/// Registers with every other agent that comes to listen on the socket, until this process ends. What it answers concerns
/// the agent alone: the command runs already.
pub(super) fn keep(socket: &Path, register: &Register) {
    let mut known = identity(socket);
    loop {
        std::thread::sleep(LOOK_INTERVAL);
        let now = identity(socket);
        // An agent that does not answer yet is asked again.
        if now.is_some() && now != known && ask(socket, register).is_ok() {
            known = now;
        }
    }
}

/// Where the agent has ended programs of the pod: why, in the sentence that their owner reads. An agent that is away says
/// nothing.
pub(super) fn why_it_was_ended(socket: &Path, pod: &str) -> Option<String> {
    let agent = Client::connect_with_patience(socket, ASKING_WHY_TIMEOUT);
    let Reply::Status(status) = agent.and_then(|mut agent| agent.ask(&Request::Status {})).ok()? else {
        return None;
    };
    let mine = status.pods.iter().find(|candidate| candidate.name == pod)?;
    mine.termination.as_ref().map(ToString::to_string)
}

fn ask(socket: &Path, register: &Register) -> Result<Reply, ClientError> {
    Client::connect(socket)?.ask(&Request::Register(register.clone()))
}

/// What tells this socket from one that another agent makes there: numbers alone are used again.
fn identity(socket: &Path) -> Option<(u64, u64, i64, i64)> {
    let file = std::fs::symlink_metadata(socket).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}
