//! Starts programs that cannot outlive this process, however it ends.
//!
//! The kernel is asked to kill the program when its parent dies. To the kernel the parent is the *thread* that
//! started it, and threads come and go (each test has its own), so all programs are started by one thread that
//! stays as long as the process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::thread;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// A program to start, and where to say how that went.
type Order = (Command, mpsc::Sender<io::Result<Child>>);

static STARTER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
    let (orders, received) = mpsc::channel::<Order>();
    thread::spawn(move || {
        for (mut command, answer) in received {
            // Nobody waits for the answer only when the asking thread has died; the child goes with the process.
            let _ = answer.send(command.spawn());
        }
    });
    orders
});

/// Starts the program; it is killed (SIGKILL) when this process ends, in whatever way.
///
/// That does not reach programs which it starts in turn.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the kernel was asked: then nobody would ever kill us.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: the closure runs in the forked child before exec and makes two system calls, without allocating,
    // locking or touching anything of the parent's.
    unsafe { command.pre_exec(tie) };
    let (answer, answered) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts programs is gone");
    STARTER.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}
