//! The machine itself behind the traits.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use gpupool_core::pool::{CardUuid, Timestamp};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::sync::mpsc;
use tokio_seqpacket::UnixSeqpacket;

use super::{Clock, JournalWriter, PeerSocket, ProcessHandle, Processes, UsageMeter, shared_file};
use crate::clock::BootClock;
use crate::core_limit::meter::Meter;
use crate::journal::{Journal, JournalError};
use crate::notice::Warrant;
use crate::peer::{self, HeldProcess, PeerError};
use crate::procfs::{Proc, ProcessKey};
use crate::registry::Record;
use crate::shared_memory::Inode;

/// Most descriptors of one message.
const DESCRIPTORS: usize = 3;

impl Clock for BootClock {
    fn now(&self) -> Timestamp {
        self.read()
    }
}

impl JournalWriter for Journal {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        Self::append(self, records)
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        Self::replace(self, records)
    }

    fn length(&self) -> u64 {
        Self::length(self)
    }
}

impl Processes for Proc {
    fn hold(&self, key: ProcessKey) -> Result<Box<dyn ProcessHandle>, PeerError> {
        Ok(Box::new(HeldProcess::by_key(self, key)?))
    }

    fn descendants(&self, ancestor: ProcessKey) -> Vec<ProcessKey> {
        Self::descendants(self, ancestor)
    }

    fn open_shared(&self, pid: u32, inode: Inode) -> Option<OwnedFd> {
        shared_file::open(self, pid, inode)
    }
}

impl ProcessHandle for HeldProcess {
    fn key(&self) -> ProcessKey {
        self.key
    }

    fn parent(&self) -> u32 {
        self.parent
    }

    fn has_ended(&self) -> bool {
        Self::has_ended(self)
    }

    fn signal(&self, warrant: &Warrant) -> std::io::Result<bool> {
        Self::signal(self, warrant.signal())
    }

    fn watch_exit(&self, exits: mpsc::UnboundedSender<ProcessKey>) -> std::io::Result<()> {
        Self::watch_exit(self, exits)
    }
}

impl PeerSocket for UnixSeqpacket {
    fn send(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let socket = self.as_async_fd();
        rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(frame)], &mut ancillary, flags)?;
        Ok(())
    }

    fn cut(&self) {
        // It may be gone at the other end already.
        let _ = self.shutdown(std::net::Shutdown::Both);
    }

    fn is_alive(&self) -> bool {
        !peer::hung_up(self.as_async_fd())
    }
}

impl UsageMeter for Meter {
    fn read_cards(&mut self, cards: BTreeSet<CardUuid>) {
        Self::read_cards(self, cards);
    }
}
