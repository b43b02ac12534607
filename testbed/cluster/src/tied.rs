//! Starts programs that cannot outlive this process, however it ends.
//!
//! The kernel is asked to kill the program when its parent dies. To the kernel the parent is the *thread* that
//! started it, and threads come and go (each test has its own), so all programs are started by one thread that
//! stays as long as the process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, set_parent_process_death_signal};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
    move_into_thread_name_spaces, unshare_unsafe,
};

use crate::place::Place;

/// A program to start, where, and where to say how that went.
type StartRequest = (Command, Place, mpsc::Sender<io::Result<Child>>);

static STARTER: LazyLock<mpsc::Sender<StartRequest>> = LazyLock::new(|| {
    let (orders, received) = mpsc::channel::<StartRequest>();
    thread::spawn(move || {
        for (command, place, answer) in received {
            // Nobody waits for the answer only when the asking thread has died; the child goes with the process.
            let _ = answer.send(start(command, &place));
        }
    });
    orders
});

/// Starts the program; it is killed (SIGKILL) when this process ends, in whatever way.
///
/// That does not reach programs which it starts in turn.
pub fn spawn(command: Command) -> io::Result<Child> {
    spawn_in(command, &Place::Here)
}

/// Starts the program as [`spawn`] does, in the namespaces of a place. Where that is a node, programs which it
/// starts in turn are reached too: they end with the node.
pub(crate) fn spawn_in(command: Command, place: &Place) -> io::Result<Child> {
    let (answer, answered) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts programs is gone");
    STARTER.send((command, place.clone(), answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

/// Runs in the starting thread.
fn start(mut command: Command, place: &Place) -> io::Result<Child> {
    let parent = pidfd_open(getpid(), PidfdFlags::empty())?;
    let inside = place.clone();
    let enter = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the kernel was asked: then nobody would ever kill us.
        if has_ended(&parent)? {
            return Err(Errno::SRCH.into());
        }
        enter(&inside).map_err(io::Error::from)
    };
    // SAFETY: the closure runs in the forked child before exec and makes system calls, without allocating, locking
    // or touching anything of the parent's.
    unsafe { command.pre_exec(enter) };
    let children = ChildrenElsewhere::of(place)?;
    let spawned = command.spawn();
    drop(children);
    spawned
}

fn has_ended(process: &OwnedFd) -> rustix::io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now))? > 0)
}

/// Enters what a process enters itself. Which process namespace it is in was settled when it was forked.
fn enter(place: &Place) -> rustix::io::Result<()> {
    let network =
        |network: BorrowedFd<'_>| move_into_link_name_space(network, Some(LinkNameSpaceType::Network));
    match place {
        Place::Here => Ok(()),
        Place::Network(namespace) => network(namespace.as_fd()),
        Place::NewNode(namespace) => {
            network(namespace.as_fd())?;
            // SAFETY: this process has one thread and shares neither descriptors nor memory with another.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
        }
        Place::Node(init) => {
            let types = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::NETWORK;
            move_into_thread_name_spaces(init.as_fd(), types)
        }
    }
}

/// While this lives, children of this thread are born into the place's process namespace.
struct ChildrenElsewhere {
    /// The namespace they belong in otherwise; `None` where nothing was changed.
    home: Option<File>,
}

impl ChildrenElsewhere {
    fn of(place: &Place) -> io::Result<Self> {
        match place {
            Place::Here | Place::Network(_) => return Ok(Self { home: None }),
            Place::NewNode(_) | Place::Node(_) => (),
        }
        let home = File::open("/proc/self/ns/pid")?;
        match place {
            Place::Node(init) => move_into_thread_name_spaces(init.as_fd(), ThreadNameSpaceType::PROCESS_ID)?,
            // SAFETY: only the namespace of future children changes: no descriptors or memory are unshared.
            _ => unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?,
        }
        Ok(Self { home: Some(home) })
    }
}

impl Drop for ChildrenElsewhere {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // One may always go back to one's own namespace.
            let _ = move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::ProcessID));
        }
    }
}
