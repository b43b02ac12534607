//! The open connections: whose they are, how many each caller may have, and sending without ever waiting.
//!
//! A connection counts until it is closed, which can take longer than it is used: whoever makes closing slow has fewer
//! of them. When all are taken, those who have most make room for others.

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

/// Connections beyond the most of all callers: for those who come while others are being cut for them.
pub(crate) const RESERVE: usize = 64;

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
    /// Those that are over and not yet closed, with whose they were.
    closing: BTreeMap<ConnectionId, [Owner; 2]>,
    counts: BTreeMap<Owner, usize>,
    next: u64,
    most: usize,
}

impl Connections {
    /// At most `most`, all callers together.
    pub(super) fn new(most: usize) -> Self {
        Self { open: BTreeMap::new(), closing: BTreeMap::new(), counts: BTreeMap::new(), next: 1, most }
    }

    /// Takes in a connection, unless its caller has too many, or everybody together and its caller not fewer than
    /// others.
    pub(super) fn add(
        &mut self,
        socket: Arc<dyn PeerSocket>,
        user: u32,
        held: Box<dyn ProcessHandle>,
        pod: Option<PodId>,
    ) -> Option<ConnectionId> {
        let connection =
            Connection { socket, user, key: held.key(), held: Some(held), introduced: false, pod };
        if connection.shares().iter().any(|(owner, most)| self.count(owner) >= *most) {
            return None;
        }
        let all = self.open.len() + self.closing.len();
        if all >= self.most + RESERVE || all >= self.most && !self.make_room(&connection) {
            return None;
        }
        for owner in connection.owners() {
            *self.counts.entry(owner).or_default() += 1;
        }
        let id = ConnectionId(self.next);
        self.next += 1;
        self.open.insert(id, connection);
        Some(id)
    }

    /// Cuts the newest connection of the pod or user that has most, if that is more than the newcomer's would have.
    fn make_room(&self, newcomer: &Connection) -> bool {
        let [_, mine] = newcomer.owners();
        let greediest = self.counts.iter().filter(|(owner, _)| !matches!(owner, Owner::Process(_)));
        let Some((greedy, count)) = greediest.max_by_key(|(_, count)| **count) else { return false };
        if *count <= self.count(&mine) + 1 {
            return false;
        }
        let newest = self
            .open
            .values()
            .rev()
            .find(|connection| connection.owners().contains(greedy) && connection.socket.is_alive());
        if let Some(connection) = newest {
            connection.socket.cut();
        }
        newest.is_some()
    }

    /// A connection is over. Its share is taken until it is closed.
    pub(super) fn over(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.open.remove(&id)?;
        self.closing.insert(id, connection.owners());
        Some(connection)
    }

    /// A connection that was over is closed.
    pub(super) fn closed(&mut self, id: ConnectionId) {
        for owner in self.closing.remove(&id).into_iter().flatten() {
            if let Some(count) = self.counts.get_mut(&owner) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&owner);
                }
            }
        }
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

    fn owners(&self) -> [Owner; 2] {
        self.shares().map(|(owner, _)| owner)
    }
}
