//! Memory that other processes hold as well: who of the pod made it, and how often this process holds it.
//!
//! Exported memory is charged beside the slots, once for all who hold it. An importer recognises it by what it was
//! passed: the bytes of a handle, or the file behind a descriptor and the position in it. A driver whose descriptors
//! are all of one device node leaves nothing to recognise; then it is the size, known when the memory is mapped, by
//! which a piece of the pod's own is found: pieces of one size are charged alike, whichever is meant.

use core::sync::atomic::{AtomicU32, Ordering};

use gpupool_wire::ledger::SHARED;

use super::account::Account;
use crate::lock::Lock;
use crate::sys;

/// What memory is recognised by: 48 bits, so that it can be kept as a note, and never 0.
pub(crate) type Key = u64;

/// The key of some words.
pub(crate) fn key_of(words: &[u64]) -> Key {
    let word = words.iter().fold(0, |hash: u64, &word| {
        (hash ^ word).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    (word >> 16) | 1
}

/// The key of the file behind a descriptor; nothing where other memory would have the same.
pub(crate) fn key_of_file(fd: i32) -> Option<Key> {
    let file = sys::identify(fd).ok().filter(|file| !file.is_device_node)?;
    Some(key_of(&[file.device, file.inode, sys::position(fd)]))
}

/// What this process holds together with others.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// By place: how many handles of this process stand for it. A bit in the ledger cannot count.
    counts: Lock<[u32; SHARED]>,
    held: AtomicU32,
}

impl SharedMemory {
    pub(crate) const fn new() -> Self {
        Self { counts: Lock::new([0; SHARED]), held: AtomicU32::new(0) }
    }

    /// Whether there is no such memory.
    pub(crate) fn none(&self) -> bool {
        self.held.load(Ordering::Acquire) == 0
    }

    /// One holder more of memory that somebody of the pod holds, or with `bytes` of such that nobody does yet: its
    /// place, if there is one.
    #[inline(never)]
    pub(crate) fn hold(&self, account: &Account, key: Key, bytes: Option<u64>) -> Option<usize> {
        let mut counts = self.counts.lock();
        let place = match bytes {
            None => account.join(key, |place| counts.get(place) == Some(&0)),
            Some(bytes) => account.share(key, bytes),
        }?;
        *counts.get_mut(place)? += 1;
        self.held.fetch_add(1, Ordering::AcqRel);
        Some(place)
    }

    /// One holder less.
    #[inline(never)]
    pub(crate) fn leave(&self, account: &Account, place: usize) {
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(place).filter(|count| **count > 0) else { return };
        *count -= 1;
        self.held.fetch_sub(1, Ordering::AcqRel);
        if *count == 0 {
            account.leave(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_key_is_never_zero_and_fits_into_a_note() {
        for words in [&[][..], &[0], &[u64::MAX; 8], &[1, 2, 3]] {
            assert!((1..1 << 48).contains(&key_of(words)), "{words:?}");
        }
        assert_ne!(key_of(&[0, 1]), key_of(&[1, 0]));
        assert_ne!(key_of(&[0]), key_of(&[0, 0]));
    }

    #[test]
    fn memory_is_known_by_its_descriptors_file_and_the_position_in_it() {
        let (mut file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let key = key_of_file(file.as_raw_fd()).unwrap();
        assert_ne!(Some(key), key_of_file(other.as_raw_fd()));
        assert_eq!(Some(key), key_of_file(file.try_clone().unwrap().as_raw_fd()));
        file.seek(std::io::SeekFrom::Start(7)).unwrap();
        assert_ne!(Some(key), key_of_file(file.as_raw_fd()));
        assert_eq!(key_of_file(-1), None);
    }

    #[test]
    fn a_device_node_does_not_tell_one_memory_from_another() {
        let node = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(key_of_file(node.as_raw_fd()), None);
    }
}
