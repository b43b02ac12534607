//! `gpupool stop NAME`: ends a pod's processes and says what happened.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use gpupool_agent::admin_api::{Reply, Request, Stopped};

use crate::agent_socket::SocketArgs;

/// Options of `gpupool stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
    /// The pod's name, as gpupool status lists it
    name: String,
}

/// Stops the pod and waits until it is gone.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut agent = args.socket.connect()?;
    let stopped = match agent.ask(&Request::Stop { name: args.name.clone() })? {
        Reply::Stopped(stopped) => stopped,
        Reply::Refused(refused) => bail!("{}", refused.sentence),
        other => bail!("the agent answers something else: {other:?}"),
    };
    writeln!(std::io::stdout(), "{}: {}", args.name, words(stopped))?;
    Ok(ExitCode::SUCCESS)
}

fn words(stopped: Stopped) -> String {
    let processes =
        |count: u32| if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
    match stopped.killed {
        0 => format!("stopped, {} ended", processes(stopped.terminated)),
        killed => format!(
            "stopped, {} told to terminate, {} killed when the grace was over",
            processes(stopped.terminated),
            processes(killed)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_whether_somebody_had_to_be_killed() {
        assert_eq!(words(Stopped { terminated: 1, killed: 0 }), "stopped, 1 process ended");
        assert_eq!(
            words(Stopped { terminated: 3, killed: 1 }),
            "stopped, 3 processes told to terminate, 1 process killed when the grace was over"
        );
    }
}
