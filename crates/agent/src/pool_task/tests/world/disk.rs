//! The disk that the journal lies on: bytes, of which a write may leave any part behind.

use super::kernel::Machine;
use crate::environment::JournalWriter;
use crate::journal::{self, JournalError};
use crate::registry::Record;

/// What is wrong with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sickness {
    /// Room for so many bytes more.
    Full(usize),
    /// Every write fails.
    Broken,
}

#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) content: Vec<u8>,
    pub(super) sickness: Option<Sickness>,
    /// A write failed, and none has made it good: the journal lacks something that was decided.
    pub(super) is_behind: bool,
    pub(super) snapshots: usize,
}

impl Disk {
    /// What is damaged is set aside by whoever opens the journal.
    pub(super) fn drop_damage(&mut self) {
        let whole = journal::read::<Record>(&self.content).whole;
        self.content.truncate(whole);
    }

    /// Writes at the end as far as there is room; says whether it was enough.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let room = match &mut self.sickness {
            None => bytes.len(),
            Some(Sickness::Broken) => 0,
            Some(Sickness::Full(room)) => {
                let taken = bytes.len().min(*room);
                *room -= taken;
                taken
            }
        };
        self.content.extend_from_slice(&bytes[..room]);
        room == bytes.len()
    }
}

impl JournalWriter for Machine {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let bytes = journal::encode(records).expect("JSON");
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let begun = self.effect().disk.write(first);
        let done = begun && self.effect().disk.write(rest);
        let mut kernel = self.effect();
        kernel.disk.is_behind |= !done;
        if done { Ok(()) } else { Err(no_room()) }
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let bytes = journal::encode(records).expect("JSON");
        let mut kernel = self.effect();
        let whole = std::mem::take(&mut kernel.disk.content);
        if kernel.disk.write(&bytes) {
            kernel.disk.is_behind = false;
            kernel.disk.snapshots += 1;
            drop(kernel);
            drop(self.effect());
            return Ok(());
        }
        (kernel.disk.content, kernel.disk.is_behind) = (whole, true);
        Err(no_room())
    }

    fn length(&self) -> u64 {
        // Enough of them that a long life writes it anew now and then.
        self.kernel().disk.content.len() as u64 * 64
    }
}

fn no_room() -> JournalError {
    let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
    JournalError::File { action: "write to", path: "in memory".into(), source }
}
