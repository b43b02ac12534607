//! The command's life: it is started with the signal actions that this process was started with, gets the signals that
//! this process gets, and is waited for. Other children are orphans that a subreaper inherits; they are only reaped.
//!
//! Command and stand-in share a process group. So what a terminal sends (^C, ^\, ^Z) reaches the command by itself, and
//! is not forwarded a second time; what somebody sends to the stand-in alone is.

use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::signal_actions;

/// The signals that are forwarded, and whether a terminal sends them to the whole process group by itself.
const FORWARDED: [(Signal, bool); 8] = [
    (Signal::TERM, false),
    (Signal::INT, true),
    (Signal::HUP, true),
    (Signal::QUIT, true),
    (Signal::USR1, false),
    (Signal::USR2, false),
    (Signal::TSTP, true),
    (Signal::CONT, false),
];

/// How the command ended.
#[derive(Debug)]
pub(super) enum CommandEnd {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
    /// It could not be started.
    NotStarted(std::io::Error),
}

/// Starts the command and waits until it has ended.
pub(super) fn run_to_end(command: Command) -> anyhow::Result<CommandEnd> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    Ok(runtime.block_on(start_and_wait(command))?)
}

async fn start_and_wait(mut command: Command) -> std::io::Result<CommandEnd> {
    let mut children = signal(SignalKind::child())?;
    let mut signals = listen()?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(failure) => return Ok(CommandEnd::NotStarted(failure)),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Err(std::io::ErrorKind::InvalidData.into()) };
    loop {
        if let Some(end) = reap(pid)? {
            return Ok(end);
        }
        tokio::select! {
            _ = children.recv() => {}
            Some((signal, from_terminal)) = signals.recv() => forward(pid, signal, from_terminal),
        }
    }
}

/// Listens for the signals that are forwarded, except those that this process was started to ignore: the command
/// inherits that.
fn listen() -> std::io::Result<mpsc::UnboundedReceiver<(Signal, bool)>> {
    let (sender, signals) = mpsc::unbounded_channel();
    let ignored = signal_actions::ignored();
    for (wanted, from_terminal) in FORWARDED {
        if ignored & (1 << (wanted.as_raw() - 1)) != 0 {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(wanted.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send((wanted, from_terminal)).is_ok() {}
        });
    }
    Ok(signals)
}

fn forward(child: Pid, signal: Signal, from_terminal: bool) {
    if !(from_terminal && in_foreground()) {
        // It may have ended this moment: that is noticed next.
        let _ = rustix::process::kill_process(child, signal);
    }
    if signal == Signal::TSTP {
        // The shell sees this process stop, as it would the command alone.
        signal_actions::take_default_action(Signal::TSTP);
    }
}

/// Whether this process's group is the one that a terminal sends its signals to.
fn in_foreground() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Takes the exit status of every child that has ended, and gives back the command's own.
fn reap(command: Pid) -> std::io::Result<Option<CommandEnd>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(signal) = status.terminating_signal() {
                    return Ok(Some(CommandEnd::Killed(signal)));
                }
                let code = status.exit_status().unwrap_or(1);
                return Ok(Some(CommandEnd::Exited(u8::try_from(code).unwrap_or(1))));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}
