//! The open connections: whose they are, how many each caller may have, and sending without ever waiting.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use gpupool_core::pool::PodId;

use crate::environment::{PeerSocket, ProcessHandle};
use crate::event::ConnectionId;
use crate::procfs::ProcessKey;

/// Connections of one process: its own, and a few for what it does in between.
const PER_PROCESS: usize = 8;

/// Connections of one pod: one for each slot of its ledger, and some that are just being replaced.
const PER_POD: usize = gpupool_wire::ledger::SLOTS + 64;

/// Connections of one user's processes outside all pods: `run`, `status`, strangers.
const PER_USER: usize = 512;

/// Whose share of the connections one takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Process(ProcessKey),
    Pod(PodId),
    User(u32),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Arc<dyn PeerSocket>,
    pub(super) user: u32,
    pub(super) key: ProcessKey,
    /// The caller, until a pod's or a process's entry takes it over.
    pub(super) held: Option<Box<dyn ProcessHandle>>,
    /// It has said hello.
    pub(super) introduced: bool,
    /// The pod that its caller was found to belong to when it connected.
    pub(super) pod: Option<PodId>,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    open: BTreeMap<ConnectionId, Connection>,
    counts: BTreeMap<Owner, usize>,
    next: u64,
    most: usize,
}

impl Connections {
    /// At most `most`, all callers together.
    pub(super) fn new(most: usize) -> Self {
        Self { open: BTreeMap::new(), counts: BTreeMap::new(), next: 1, most }
    }

    /// Takes in a connection, unless its caller or everybody together has too many.
    pub(super) fn add(
        &mut self,
        socket: Arc<dyn PeerSocket>,
        user: u32,
        held: Box<dyn ProcessHandle>,
        pod: Option<PodId>,
    ) -> Option<ConnectionId> {
        let connection =
            Connection { socket, user, key: held.key(), held: Some(held), introduced: false, pod };
        let full = connection.shares().iter().any(|(owner, most)| self.count(owner) >= *most);
        if full || self.open.len() >= self.most {
            return None;
        }
        for (owner, _) in connection.shares() {
            *self.counts.entry(owner).or_default() += 1;
        }
        let id = ConnectionId(self.next);
        self.next += 1;
        self.open.insert(id, connection);
        Some(id)
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.open.remove(&id)?;
        for (owner, _) in connection.shares() {
            if let Some(count) = self.counts.get_mut(&owner) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&owner);
                }
            }
        }
        Some(connection)
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.open.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.open.get_mut(&id)
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// True when the other end of this connection is still there.
    pub(super) fn is_alive(&self, id: ConnectionId) -> bool {
        self.open.get(&id).is_some_and(|connection| connection.socket.is_alive())
    }

    /// Cuts a connection: its task notices and takes it out.
    pub(super) fn cut(&self, id: ConnectionId) {
        if let Some(connection) = self.open.get(&id) {
            connection.socket.cut();
        }
    }

    /// Sends one message now. Whoever does not read what it is sent is cut: nobody waits for it here.
    pub(super) fn send(&self, id: ConnectionId, frame: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let Some(connection) = self.open.get(&id) else { return };
        if connection.socket.send(frame, descriptors).is_err() {
            self.cut(id);
        }
    }

    fn count(&self, owner: &Owner) -> usize {
        self.counts.get(owner).copied().unwrap_or(0)
    }
}

impl Connection {
    fn shares(&self) -> [(Owner, usize); 2] {
        let outer = match &self.pod {
            Some(pod) => (Owner::Pod(pod.clone()), PER_POD),
            None => (Owner::User(self.user), PER_USER),
        };
        [(Owner::Process(self.key), PER_PROCESS), outer]
    }
}
