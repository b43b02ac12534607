//! Memory that the agent shares with a pod's processes: sealed memfds and their mappings.
//!
//! Thin FFI around `mmap`; what lies in the memory is the business of `gpupool_wire` and [`crate::pages`].

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};

/// Which file a descriptor stands for, whatever its number or owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    /// The file system.
    pub(crate) device: u64,
    /// The file in it.
    pub(crate) number: u64,
}

/// The file behind a descriptor.
pub(crate) fn inode(descriptor: BorrowedFd<'_>) -> std::io::Result<Inode> {
    let found = rustix::fs::fstat(descriptor)?;
    Ok(Inode { device: found.st_dev, number: found.st_ino })
}

/// A memfd, mapped writable by the agent for as long as this value lives.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    descriptor: OwnedFd,
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: through a shared reference only the descriptor, the start and the length can be had; who writes behind the
// start does so by its own promise, as with the processes that map the same memory.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes zeroed memory of `length` bytes, maps it, and then applies `seals` (with `SEAL` added).
    pub(crate) fn create(name: &str, length: usize, seals: SealFlags) -> std::io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 don't know the flag that says "never executable"; newer ones may insist on it.
        let descriptor = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create(name, flags))?;
        rustix::fs::ftruncate(&descriptor, length as u64)?;
        let memory = Self::map(descriptor, length)?;
        rustix::fs::fcntl_add_seals(&memory.descriptor, seals | SealFlags::SEAL)?;
        Ok(memory)
    }

    /// Maps memory that somebody hands back. It must be as long as `length` says, or longer (a newer agent made it), and sealed
    /// against resizing:
    /// otherwise its sender could cut it and have the agent killed at its next look.
    pub(crate) fn adopt(descriptor: OwnedFd, length: usize) -> std::io::Result<Self> {
        let size = rustix::fs::fstat(&descriptor)?.st_size;
        let seals = rustix::fs::fcntl_get_seals(&descriptor)?;
        let needed = SealFlags::SHRINK | SealFlags::GROW;
        if !u64::try_from(size).is_ok_and(|size| size >= length as u64) || !seals.contains(needed) {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Self::map(descriptor, length)
    }

    fn map(descriptor: OwnedFd, length: usize) -> std::io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice disturbs no other memory.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &descriptor,
                0,
            )
        }?;
        Ok(Self { descriptor, start: start.cast(), length })
    }

    /// Where the memory starts. It stays valid for as long as this value lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many bytes there are.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; nothing borrowed from this value outlives it.
        let unmapped = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Makes a file of fixed content that nobody can change any more.
pub(crate) fn sealed_content(name: &str, content: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::Write as _;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(name, flags)?);
    file.write_all(content)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

    #[test]
    fn a_page_with_future_writes_sealed_is_written_by_its_maker_only() {
        let page = SharedMemory::create("page", 4096, RESIZE | SealFlags::FUTURE_WRITE).unwrap();
        // SAFETY: the memory is this test's own.
        unsafe { page.start().write(7) };
        let other = page.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::map(other, 4096).is_err());
        assert!(rustix::io::pwrite(&page, &[1], 0).is_err());
        let mut read = [0];
        rustix::io::pread(&page, &mut read, 0).unwrap();
        assert_eq!(read, [7]);
    }

    #[test]
    fn memory_handed_back_must_have_its_size_and_seals() {
        let ledger = SharedMemory::create("ledger", 4096, RESIZE).unwrap();
        let again = || ledger.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::adopt(again(), 8192).is_err());
        assert!(SharedMemory::adopt(again(), 4096).is_ok());
        let unsealed = rustix::fs::memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(SharedMemory::adopt(unsealed, 4096).is_err());
    }

    #[test]
    fn sealed_content_can_be_read_and_never_changed() {
        let file = sealed_content("table", b"cards").unwrap();
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 1).is_err());
        let mut read = [0; 5];
        rustix::io::pread(&file, &mut read, 0).unwrap();
        assert_eq!(&read, b"cards");
    }
}
