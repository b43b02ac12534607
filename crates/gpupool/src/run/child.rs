//! The command's life: started with every signal as this process was given it, told of the signals that come, waited
//! for. Other children than the command itself are orphans that a subreaper inherits; they are only laid to rest.
//!
//! Command and stand-in share a process group. So what a terminal sends (^C, ^\, ^Z) reaches the command by itself, and
//! is not passed on a second time; what somebody sends to the stand-in alone is.

use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::disposition;

/// The signals that are passed on, and whether a terminal sends them to the whole group.
const PASSED_ON: [(Signal, bool); 8] = [
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
pub(super) enum End {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
    /// It never began.
    NotStarted(std::io::Error),
}

/// Starts the command and lives until it has ended.
pub(super) fn live_through(command: Command) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    Ok(runtime.block_on(start_and_wait(command))?)
}

async fn start_and_wait(mut command: Command) -> std::io::Result<End> {
    let mut children = signal(SignalKind::child())?;
    let mut signals = listen()?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(failure) => return Ok(End::NotStarted(failure)),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Err(std::io::ErrorKind::InvalidData.into()) };
    loop {
        if let Some(end) = lay_to_rest(pid)? {
            return Ok(end);
        }
        tokio::select! {
            _ = children.recv() => {}
            Some((signal, from_terminal)) = signals.recv() => pass_on(pid, signal, from_terminal),
        }
    }
}

/// Hears all signals that are passed on, but for those that whoever started this process wants ignored: the command
/// inherits that.
fn listen() -> std::io::Result<mpsc::UnboundedReceiver<(Signal, bool)>> {
    let (heard, signals) = mpsc::unbounded_channel();
    let ignored = disposition::ignored();
    for (wanted, from_terminal) in PASSED_ON {
        if ignored & (1 << (wanted.as_raw() - 1)) != 0 {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(wanted.as_raw()))?;
        let heard = heard.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && heard.send((wanted, from_terminal)).is_ok() {}
        });
    }
    Ok(signals)
}

fn pass_on(child: Pid, signal: Signal, from_terminal: bool) {
    if !(from_terminal && in_foreground()) {
        // It may have ended this moment: that is noticed next.
        let _ = rustix::process::kill_process(child, signal);
    }
    if signal == Signal::TSTP {
        // The shell sees this process stop, as it would the command alone.
        disposition::suffer(Signal::TSTP);
    }
}

/// Whether this process's group is the one that a terminal sends its signals to.
fn in_foreground() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Takes the exit status of every child that has ended, and gives back the command's own.
fn lay_to_rest(command: Pid) -> std::io::Result<Option<End>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(signal) = status.terminating_signal() {
                    return Ok(Some(End::Killed(signal)));
                }
                let code = status.exit_status().unwrap_or(1);
                return Ok(Some(End::Exited(u8::try_from(code).unwrap_or(1))));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}
