//! A pod's shared memory: the limits page that only the agent writes, and the memory ledger that its processes keep.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use gpupool_wire::ledger::{self, Ledger};
use gpupool_wire::limits::{self, Limits, LimitsPage};
use rustix::fs::SealFlags;

use crate::shared_memory::{self, Inode, SharedMemory};

const RESIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The limits page of one pod.
#[derive(Debug)]
pub(crate) struct LimitsFile {
    memory: SharedMemory,
    said: Limits,
}

impl LimitsFile {
    /// A page that says `limits`. Programs can read it and never write it.
    pub(crate) fn create(limits: Limits) -> std::io::Result<Self> {
        let seals = RESIZE | SealFlags::FUTURE_WRITE;
        let memory = SharedMemory::create("gpupool-limits", limits::FILE_LENGTH, seals)?;
        // SAFETY: the mapping is that long, lives as long as `memory`, and everybody else maps it read-only.
        unsafe { LimitsPage::create(memory.start().cast(), memory.length(), &limits) }.map_err(invalid)?;
        Ok(Self { memory, said: limits })
    }

    /// Says something new; true when it was new.
    pub(crate) fn say(&mut self, limits: Limits) -> bool {
        if self.said == limits {
            return false;
        }
        // SAFETY: as in `create`, which has made this memory a limits page.
        if let Ok(page) = unsafe { LimitsPage::open(self.memory.start().cast(), self.memory.length()) } {
            page.publish(&limits);
        }
        self.said = limits;
        true
    }

    /// The descriptor to pass to programs.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The memory ledger of one pod.
#[derive(Debug)]
pub(crate) struct LedgerFile {
    memory: SharedMemory,
    inode: Inode,
}

impl LedgerFile {
    /// An empty ledger.
    pub(crate) fn create() -> std::io::Result<Self> {
        let memory = SharedMemory::create("gpupool-ledger", ledger::FILE_LENGTH, RESIZE)?;
        // SAFETY: the mapping is that long, lives as long as `memory`, and is changed through atomics only.
        unsafe { Ledger::create(memory.start().cast(), memory.length()) }.map_err(invalid)?;
        let inode = shared_memory::inode(memory.as_fd())?;
        Ok(Self { memory, inode })
    }

    /// Takes a ledger back from a program, if it is the very file that the agent once made.
    pub(crate) fn adopt(descriptor: OwnedFd, made: Inode) -> std::io::Result<Self> {
        if shared_memory::inode(descriptor.as_fd())? != made {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let memory = SharedMemory::adopt(descriptor, ledger::FILE_LENGTH)?;
        Ok(Self { memory, inode: made })
    }

    /// Which file it is.
    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }

    /// The account itself. A program may have made rubbish of its first bytes; they are written anew each time.
    pub(crate) fn with<T>(&self, look: impl FnOnce(Ledger<'_>) -> T) -> Option<T> {
        // SAFETY: the mapping is that long, lives as long as `self`, and is changed through atomics only.
        let ledger = unsafe { Ledger::create(self.memory.start().cast(), self.memory.length()) };
        ledger.ok().map(look)
    }

    /// The descriptor to pass to programs.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

fn invalid(failure: impl std::error::Error + Send + Sync + 'static) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, failure)
}

#[cfg(test)]
mod tests {
    use gpupool_wire::bucket::Rate;
    use gpupool_wire::limits::PodState;

    use super::*;

    fn limits(position: u32) -> Limits {
        Limits {
            core_percent: 50,
            core_rate: Rate::UNLIMITED,
            memory_bytes: 1 << 30,
            context_reserve_bytes: 1 << 28,
            state: PodState::Ready,
            position,
            card: 0,
        }
    }

    #[test]
    fn a_page_says_what_it_was_told_last() {
        let mut page = LimitsFile::create(limits(2)).unwrap();
        assert!(!page.say(limits(2)));
        assert!(page.say(limits(1)));
        let mut bytes = [0; 48];
        rustix::io::pread(page.descriptor(), &mut bytes, 0).unwrap();
        // Where the page keeps the position.
        assert_eq!(bytes[40..44], 1_u32.to_ne_bytes());
    }

    #[test]
    fn a_ledger_that_a_newer_agent_made_longer_comes_back_too() {
        let memory = SharedMemory::create("gpupool-ledger", ledger::FILE_LENGTH + 4096, RESIZE).unwrap();
        let made = shared_memory::inode(memory.as_fd()).unwrap();
        let copy = memory.as_fd().try_clone_to_owned().unwrap();
        LedgerFile::adopt(copy, made).unwrap().with(|ledger| ledger.charge_anyway(3, 4096)).unwrap();
        let short = SharedMemory::create("gpupool-ledger", ledger::FILE_LENGTH - 4096, RESIZE).unwrap();
        let made = shared_memory::inode(short.as_fd()).unwrap();
        assert!(LedgerFile::adopt(short.as_fd().try_clone_to_owned().unwrap(), made).is_err());
    }

    #[test]
    fn a_ledger_comes_back_with_its_account_and_no_other_file_does() {
        let ledger = LedgerFile::create().unwrap();
        let hold = |ledger: Ledger<'_>| {
            ledger.assign(3);
            ledger.charge_anyway(3, 4096);
        };
        ledger.with(hold).unwrap();
        let copy = || ledger.descriptor().try_clone_to_owned().unwrap();
        let back = LedgerFile::adopt(copy(), ledger.inode()).unwrap();
        assert_eq!(back.with(|ledger| ledger.committed()), Some(4096));
        let other = LedgerFile::create().unwrap();
        assert!(LedgerFile::adopt(copy(), other.inode()).is_err());
    }
}
