//! The open connections: whose they are, how many each caller may have, and sending without ever waiting.
//!
//! A connection counts until it is closed, which can take longer than it is used: whoever makes closing slow has fewer
//! of them. When all are taken, those who have most make room for others.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use gpupool_core::pool::PodId;
use tokio::sync::Semaphore;

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

/// Connections of one pod or user that may stand in line for the pool's task at the same time: however many it has,
/// others wait for these alone.
const TURNS: usize = 4;

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
    /// Its caller could not be served, and was told to run without a lease.
    pub(super) unheld: bool,
    /// The pod that its caller was found to belong to when it connected.
    pub(super) pod: Option<PodId>,
}

/// What one of them has.
#[derive(Debug)]
struct Share {
    count: usize,
    turns: Arc<Semaphore>,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    open: BTreeMap<ConnectionId, Connection>,
    /// Those that are over and not yet closed, with whose they were.
    closing: BTreeMap<ConnectionId, [Owner; 2]>,
    shares: BTreeMap<Owner, Share>,
    next: u64,
    most: usize,
}

impl Connections {
    /// At most `most`, all callers together.
    pub(super) fn new(most: usize) -> Self {
        Self { open: BTreeMap::new(), closing: BTreeMap::new(), shares: BTreeMap::new(), next: 1, most }
    }

    /// Takes in a connection, unless its caller has too many, or everybody together and its caller not fewer than
    /// others. Gives its number, and the turns of its pod or user.
    pub(super) fn add(
        &mut self,
        socket: Arc<dyn PeerSocket>,
        user: u32,
        held: Box<dyn ProcessHandle>,
        pod: Option<PodId>,
    ) -> Option<(ConnectionId, Arc<Semaphore>)> {
        let connection = Connection {
            socket,
            user,
            key: held.key(),
            held: Some(held),
            introduced: false,
            unheld: false,
            pod,
        };
        if connection.limits().iter().any(|(owner, most)| self.count(owner) >= *most) {
            return None;
        }
        let all = self.open.len() + self.closing.len();
        if all >= self.most + RESERVE || all >= self.most && !self.make_room(&connection) {
            return None;
        }
        let [_, turns] = connection.owners().map(|owner| self.take_share(owner));
        let id = ConnectionId(self.next);
        self.next += 1;
        self.open.insert(id, connection);
        Some((id, turns))
    }

    /// One more for this one; gives its turns.
    fn take_share(&mut self, owner: Owner) -> Arc<Semaphore> {
        let nothing = || Share { count: 0, turns: Arc::new(Semaphore::new(TURNS)) };
        let share = self.shares.entry(owner).or_insert_with(nothing);
        share.count += 1;
        Arc::clone(&share.turns)
    }

    /// Cuts the newest connection of the pod or user that has most, if that is more than the newcomer's would have.
    fn make_room(&self, newcomer: &Connection) -> bool {
        let [_, mine] = newcomer.owners();
        let greediest = self.shares.iter().filter(|(owner, _)| !matches!(owner, Owner::Process(_)));
        let Some((greedy, share)) = greediest.max_by_key(|(_, share)| share.count) else { return false };
        if share.count <= self.count(&mine) + 1 {
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
            if let Some(share) = self.shares.get_mut(&owner) {
                share.count -= 1;
                if share.count == 0 {
                    self.shares.remove(&owner);
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

    /// Whether a process was told to run without a lease.
    pub(super) fn is_unheld(&self, key: ProcessKey) -> bool {
        self.open.values().any(|connection| connection.unheld && connection.key == key)
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
        self.shares.get(owner).map_or(0, |share| share.count)
    }
}

impl Connection {
    fn limits(&self) -> [(Owner, usize); 2] {
        let outer = match &self.pod {
            Some(pod) => (Owner::Pod(pod.clone()), PER_POD),
            None => (Owner::User(self.user), PER_USER),
        };
        [(Owner::Process(self.key), PER_PROCESS), outer]
    }

    fn owners(&self) -> [Owner; 2] {
        self.limits().map(|(owner, _)| owner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::environment::LivingProcess;

    #[derive(Debug, Default)]
    struct Socket(AtomicBool);

    impl PeerSocket for Socket {
        fn send(&self, _frame: &[u8], _descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
            Ok(())
        }

        fn cut(&self) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn is_alive(&self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }
    }

    fn add(connections: &mut Connections, pid: u32, pod: &str) -> Option<ConnectionId> {
        let held = Box::new(LivingProcess(ProcessKey { pid, start: 1 }));
        connections.add(Arc::new(Socket::default()), 0, held, Some(pod.into())).map(|(id, _)| id)
    }

    fn cut(connections: &Connections) -> Vec<ConnectionId> {
        connections.open.keys().filter(|id| !connections.is_alive(**id)).copied().collect()
    }

    #[test]
    fn a_connection_counts_until_it_is_closed_and_not_only_until_it_is_over() {
        let mut connections = Connections::new(100);
        let ids: Vec<_> = (0..PER_PROCESS).map(|_| add(&mut connections, 7, "a").unwrap()).collect();
        assert_eq!(add(&mut connections, 7, "a"), None);
        assert!(connections.over(ids[0]).is_some() && connections.over(ids[0]).is_none());
        assert_eq!(add(&mut connections, 7, "a"), None, "it is still being closed");
        connections.closed(ids[0]);
        assert!(add(&mut connections, 7, "a").is_some());
        assert!(add(&mut connections, 8, "a").is_some(), "another process has its own");
    }

    #[test]
    fn when_all_are_taken_whoever_has_most_makes_room_for_others_and_for_nobody_like_itself() {
        let mut connections = Connections::new(10);
        let greedy: Vec<_> = (0..10).map(|pid| add(&mut connections, pid, "greedy").unwrap()).collect();
        assert_eq!(add(&mut connections, 99, "greedy"), None);
        assert_eq!(cut(&connections), []);
        assert!(add(&mut connections, 99, "modest").is_some());
        assert_eq!(cut(&connections), [greedy[9]]);
        assert!(add(&mut connections, 98, "modest").is_some());
        assert_eq!(cut(&connections), [greedy[8], greedy[9]], "one for each");
    }

    #[test]
    fn all_connections_of_a_pod_stand_in_line_by_the_same_turns() {
        let mut connections = Connections::new(10);
        let turns = |connections: &mut Connections, pid, pod: &str| {
            let held = Box::new(LivingProcess(ProcessKey { pid, start: 1 }));
            connections.add(Arc::new(Socket::default()), 0, held, Some(pod.into())).unwrap().1
        };
        let first = turns(&mut connections, 1, "a");
        assert!(Arc::ptr_eq(&first, &turns(&mut connections, 2, "a")));
        assert!(!Arc::ptr_eq(&first, &turns(&mut connections, 3, "b")));
    }
}
