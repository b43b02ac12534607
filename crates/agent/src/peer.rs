//! The process at the other end of a socket, held so that it can't be mistaken for another.
//!
//! Thin FFI around `SO_PEERPIDFD`, which rustix does not have, and waiting on a pidfd. Whose pod it is, is decided in `identity`, above.

use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::procfs::{Proc, ProcessKey};

/// `SO_PEERPIDFD` of `<asm-generic/socket.h>`, Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// Why a peer can't be known.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    /// It lives in a pid namespace that the agent does not see into.
    #[error(
        "the caller is outside the agent's view of processes: the agent needs the host's pid namespace (hostPID: true)"
    )]
    Unseen,
    /// It ended before it was held.
    #[error("the caller has ended")]
    Gone,
    /// The kernel says something else.
    #[error("the kernel does not say who is calling: {0}")]
    Kernel(#[from] std::io::Error),
}

/// A process that is held: its id can't come to mean another one unnoticed.
#[derive(Debug)]
pub(crate) struct HeldProcess {
    /// Which process.
    pub(crate) key: ProcessKey,
    /// Its parent's id at the moment it was held.
    pub(crate) parent: u32,
    /// Its pidfd; readable once it has ended.
    pub(crate) pidfd: OwnedFd,
}

impl HeldProcess {
    /// Holds a process by its id, if it is the one that started then and still lives.
    pub(crate) fn by_key(proc: &Proc, key: ProcessKey) -> Result<Self, PeerError> {
        Self::by_id(proc, key.pid)
            .and_then(|held| if held.key == key { Ok(held) } else { Err(PeerError::Gone) })
    }

    /// Holds whatever process has this id now, if it still lives.
    pub(crate) fn by_id(proc: &Proc, pid: u32) -> Result<Self, PeerError> {
        Self::check(proc, open(pid)?, pid)
    }

    /// The start time is read after the pidfd is held, and the process looked at after that: while it lives, its
    /// id is its own, so what was read is about this process.
    fn check(proc: &Proc, pidfd: OwnedFd, pid: u32) -> Result<Self, PeerError> {
        let stat = proc.stat(pid).ok_or(PeerError::Gone)?;
        let held = Self { key: stat.key, parent: stat.parent, pidfd };
        if held.has_ended() { Err(PeerError::Gone) } else { Ok(held) }
    }

    /// True once all threads of the process have ended, whether or not its parent has looked. The state that `/proc`
    /// shows is the first thread's alone.
    pub(crate) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        !matches!(rustix::event::poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    /// The pidfd for a task to wait on: readable once the process has ended. Must be called inside the runtime.
    fn awaitable(&self) -> std::io::Result<AsyncFd<OwnedFd>> {
        let pidfd = self.pidfd.try_clone()?;
        // SAFETY: the descriptor is owned, so it is open and the same one until the answer is dropped.
        unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }
            .map_err(|failure| failure.into_parts().1)
    }

    /// Tells `exits` once the process has ended. Must be called inside the runtime.
    pub(crate) fn watch_exit(&self, exits: mpsc::UnboundedSender<ProcessKey>) -> std::io::Result<()> {
        let key = self.key;
        let pidfd = self.awaitable()?;
        tokio::spawn(async move {
            // The other end is gone when the agent goes down. An error of the reactor means the same.
            let _ = pidfd.readable().await.map(|_| exits.send(key));
        });
        Ok(())
    }

    /// Sends a signal; false when the process has ended already.
    pub(crate) fn signal(&self, signal: Signal) -> std::io::Result<bool> {
        signal_by(&self.pidfd, signal)
    }
}

/// Sends a signal by pidfd; false when the process has ended already.
pub(crate) fn signal_by(pidfd: impl AsFd, signal: Signal) -> std::io::Result<bool> {
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The user and the held process that called `connect()` on the other end of this socket.
pub(crate) fn of_socket(proc: &Proc, socket: impl AsFd) -> Result<(u32, HeldProcess), PeerError> {
    let credentials = rustix::net::sockopt::socket_peercred(&socket).map_err(std::io::Error::from)?;
    let pid = u32::try_from(credentials.pid.as_raw_pid()).unwrap_or(0);
    if pid == 0 {
        return Err(PeerError::Unseen);
    }
    let pidfd = if let Ok(pidfd) = peer_pidfd(&socket) {
        pidfd
    } else {
        // An older kernel: the id may have been given out again meanwhile, so the socket must still be open at
        // its other end after the process is held. Whoever called connect() normally holds that end.
        let pidfd = open(pid)?;
        if hung_up(&socket) {
            return Err(PeerError::Gone);
        }
        pidfd
    };
    Ok((credentials.uid.as_raw(), HeldProcess::check(proc, pidfd, pid)?))
}

/// True when the other end of a socket is closed.
pub(crate) fn hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
        Ok(_) => polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
        Err(_) => true,
    }
}

fn open(pid: u32) -> Result<OwnedFd, PeerError> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(PeerError::Gone)?;
    match rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(pidfd) => Ok(pidfd),
        Err(rustix::io::Errno::SRCH) => Err(PeerError::Gone),
        Err(errno) => Err(PeerError::Kernel(errno.into())),
    }
}

fn peer_pidfd(socket: impl AsFd) -> std::io::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: both pointers are to live values of the types and the size that this option writes.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if answer != 0 || descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (user, held) = of_socket(&Proc::default(), &ours).unwrap();
        assert_eq!(held.key.pid, std::process::id());
        assert_eq!(user, rustix::process::geteuid().as_raw());
        assert!(!held.has_ended());
    }

    #[test]
    fn a_killed_process_is_seen_as_ended_before_its_parent_looks() {
        let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
        let proc = Proc::default();
        let key = proc.stat(child.id()).unwrap().key;
        let held = HeldProcess::by_key(&proc, key).unwrap();
        assert!(held.signal(Signal::KILL).unwrap());
        let mut polled = [PollFd::new(&held.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap();
        assert!(held.has_ended());
        assert!(matches!(HeldProcess::by_key(&proc, key), Err(PeerError::Gone)));
        child.wait().unwrap();
        assert!(!held.signal(Signal::KILL).unwrap());
    }

    #[test]
    fn a_start_time_that_differs_is_another_process() {
        let proc = Proc::default();
        let mine = proc.stat(std::process::id()).unwrap().key;
        let other = ProcessKey { start: mine.start + 1, ..mine };
        assert!(matches!(HeldProcess::by_key(&proc, other), Err(PeerError::Gone)));
    }

    #[test]
    fn a_closed_end_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(!hung_up(&ours));
        drop(theirs);
        assert!(hung_up(&ours));
    }
}
