//! Where a program runs: on the machine itself, in a cluster's network, or on a node.
//!
//! A cluster with kubelets has a network namespace of its own, each node another, and a namespace for mounts and one
//! for processes beside it. None of them has a name anywhere: they live by the processes in them and by descriptors of
//! the process that started the cluster. So they go when that process goes, however it ended, and with them all mounts,
//! bridges, addresses and firewall rules in them. A node's process namespace takes everything that ever ran on the
//! node with it, containers included.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Where a program runs.
#[derive(Clone, Debug, Default)]
pub(crate) enum Place {
    /// On the machine, as any other program.
    #[default]
    Here,
    /// In this network namespace, else on the machine.
    Network(Arc<File>),
    /// As the first process of a new node, with this network namespace.
    NewNode(Arc<File>),
    /// On the node whose first process this is.
    Node(Arc<OwnedFd>),
}

/// A new network namespace, with nothing but a loopback device that is down.
pub(crate) fn new_network() -> io::Result<Arc<File>> {
    let make = || {
        // SAFETY: only this short-lived thread changes its network namespace; descriptors and memory stay shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        File::open("/proc/thread-self/ns/net").map(Arc::new)
    };
    thread::spawn(make).join().map_err(|_| io::Error::other("the thread that makes namespaces is gone"))?
}
