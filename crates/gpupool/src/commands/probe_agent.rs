//! `gpupool probe-agent`: whether the agent on this machine still answers, for a liveness probe.
//!
//! Any answer is one, a refusal too: strangers who take all connections do not make the agent look dead. Where nobody
//! listens yet, the agent is still looking for its cards; if it had ended, whoever runs it would know by itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::bail;
use gpupool_agent::admin_api::Request;
use gpupool_agent::admin_api::client::{Client, ClientError};
use gpupool_agent::socket_path::Surroundings;

use crate::agent_socket::SOCKET_HELP;
use crate::option_values::parse_seconds;

/// Options of `gpupool probe-agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_name = "PATH", help = SOCKET_HELP)]
    socket: Option<PathBuf>,
    /// How long the agent may take to answer: seconds, or with a unit
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = parse_seconds)]
    within: Duration,
}

/// Asks once.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = Surroundings::of_this_process(args.socket.clone()).socket()?;
    let (answered, answer) = channel();
    let asked = socket.clone();
    // An agent that takes nothing in holds up whoever connects: that thread ends with this process.
    std::thread::Builder::new().spawn(move || answered.send(ask(&asked)))?;
    match answer.recv_timeout(args.within) {
        Ok(Ok(())) => Ok(ExitCode::SUCCESS),
        Ok(Err(failure)) => Err(failure.into()),
        Err(_) => bail!(
            "the agent on {} has not answered within {} seconds",
            socket.display(),
            args.within.as_secs_f64()
        ),
    }
}

fn ask(socket: &Path) -> Result<(), ClientError> {
    let answered = Client::connect(socket).and_then(|mut agent| agent.ask(&Request::Status {}));
    match answered {
        Ok(_) | Err(ClientError::NoAgent { .. } | ClientError::HungUp { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}
