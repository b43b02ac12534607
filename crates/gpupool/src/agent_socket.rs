//! How subcommands reach the agent of this machine: the option that names its socket, and the exit code where there is
//! no agent.

use std::path::PathBuf;
use std::process::ExitCode;

use gpupool_agent::admin_api::client::{Client, ClientError};
use gpupool_agent::socket_path::Surroundings;

/// Ends a command that found no agent (`EX_UNAVAILABLE`).
pub(crate) const NO_AGENT: u8 = 69;

/// What `--help` says about `--socket`.
pub(crate) const SOCKET_HELP: &str = "The agent's socket [default: GPUPOOL_SOCKET, /run/gpupool/agent.sock for root, else \
    in $XDG_RUNTIME_DIR or /tmp]";

/// The option that says where the agent is.
#[derive(Debug, clap::Args)]
pub(crate) struct SocketArgs {
    #[arg(long, value_name = "PATH", help = SOCKET_HELP)]
    socket: Option<PathBuf>,
}

impl SocketArgs {
    /// The socket, as an absolute path.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        Ok(std::path::absolute(Surroundings::of_this_process(self.socket.clone()).socket()?)?)
    }

    /// Connects to the agent.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        Ok(Client::connect(&self.path()?)?)
    }
}

/// The exit code for a failure: [`NO_AGENT`] where no agent could be asked, else 1.
pub(crate) fn exit_code(failure: &anyhow::Error) -> ExitCode {
    match failure.downcast_ref() {
        Some(ClientError::NoAgent { .. } | ClientError::HungUp { .. }) => NO_AGENT.into(),
        _ => ExitCode::FAILURE,
    }
}
