//! What the pool's task reaches outside itself: the clock, the journal, processes, sockets and NVML's meter. Each is a
//! narrow trait, so that the whole task can run in memory with a clock that is set and a journal that fails.
//!
//! Nothing here knows the pool or decides anything. What the system's own implementations do stands with them
//! (`journal`, `peer`, `procfs`, `core_limit::meter`).

#[cfg(test)]
mod living_process;
mod shared_file;
mod system;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};

use gpupool_core::pool::{CardUuid, Timestamp};
use tokio::sync::mpsc;

use crate::cards::Cards;
use crate::identity::Identify;
use crate::journal::JournalError;
use crate::notice::Warrant;
use crate::peer::PeerError;
use crate::procfs::ProcessKey;
use crate::registry::Record;
use crate::shared_memory::Inode;
use crate::usage_audit::observe::{Ledgers, LookRequests};

#[cfg(test)]
pub(crate) use living_process::LivingProcess;

/// The clock that moments of the pool are read from.
pub(crate) trait Clock: Debug {
    /// Milliseconds since the machine started, time asleep included.
    fn now(&self) -> Timestamp;
}

/// Where records are kept for an agent that starts again.
pub(crate) trait JournalWriter: Debug {
    /// Adds records, in one write.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Puts `records` in the place of everything written so far; either all of it holds afterwards, or nothing changed.
    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Bytes in the journal.
    fn length(&self) -> u64;
}

/// The node's processes.
pub(crate) trait Processes: Debug {
    /// Holds a process by its id, if it is the one that started then and still lives.
    fn hold(&self, key: ProcessKey) -> Result<Box<dyn ProcessHandle>, PeerError>;

    /// All processes that descend from `ancestor` at this moment, itself not included; also those that have ended and
    /// wait for their parent to look.
    fn descendants(&self, ancestor: ProcessKey) -> Vec<ProcessKey>;

    /// Opens the file `inode` in memory for reading and writing, if process `pid` has it mapped.
    fn open_shared(&self, pid: u32, inode: Inode) -> Option<OwnedFd>;
}

/// A process that is held: its id can't come to mean another one unnoticed.
pub(crate) trait ProcessHandle: Debug + Send {
    /// Which process.
    fn key(&self) -> ProcessKey;

    /// Its parent's id at the moment it was held.
    fn parent(&self) -> u32;

    /// True once all threads of the process have ended, whether or not its parent has looked.
    fn has_ended(&self) -> bool;

    /// Sends the signal that the warrant allows; false when the process has ended already.
    fn signal(&self, warrant: &Warrant) -> std::io::Result<bool>;

    /// Tells `exits` once the process has ended. Must be called inside the runtime.
    fn watch_exit(&self, exits: mpsc::UnboundedSender<ProcessKey>) -> std::io::Result<()>;
}

/// The agent's end of a connection, for what goes out.
pub(crate) trait PeerSocket: Debug + Send + Sync {
    /// Sends one message now, never waiting for its reader.
    fn send(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()>;

    /// Ends the connection in both directions.
    fn cut(&self);

    /// True when the other end is still there.
    fn is_alive(&self) -> bool;
}

/// Who asks NVML how much of a card each process used.
pub(crate) trait UsageMeter: Debug {
    /// From now on these cards are read.
    fn read_cards(&mut self, cards: BTreeSet<CardUuid>);
}

/// Everything outside the pool's task.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The node's cards and the table of them that programs read.
    pub(crate) cards: Cards,
    /// The time.
    pub(crate) clock: Box<dyn Clock>,
    /// What a restarted agent will know.
    pub(crate) journal: Box<dyn JournalWriter>,
    /// The node's processes.
    pub(crate) processes: Box<dyn Processes>,
    /// Which pod a process belongs to.
    pub(crate) identity: Box<dyn Identify>,
    /// Told which cards' use by each process matters.
    pub(crate) meter: Box<dyn UsageMeter>,
    /// The ledgers that are held against what NVML shows.
    pub(crate) ledgers: Ledgers,
    /// Asks NVML who is on the cards, before it is their turn.
    pub(crate) looks: LookRequests,
    /// Told of processes that ended.
    pub(crate) exits: mpsc::UnboundedSender<ProcessKey>,
}
