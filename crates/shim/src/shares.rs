//! Memory that other processes hold as well: who of the pod made it, and how often this process holds it.
//!
//! Exported memory is charged beside the slots, once for all who hold it. An importer recognises it by what it was
//! passed: the file behind a descriptor, or the bytes of a handle. A driver whose descriptors are all of one file (a
//! device node) leaves nothing to recognise; then memory is known only to come from within the pod, and stays charged
//! to the process that made it.

use core::sync::atomic::{AtomicU32, Ordering};

use gpupool_wire::ledger::SHARED;

use crate::account::Account;
use crate::lock::Lock;
use crate::sys;

/// Keys have 48 bits, so that they can be kept as notes.
const KEY: u64 = (1 << 48) - 1;

/// What memory is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) word: u64,
    /// No other memory has it.
    pub(crate) unique: bool,
}

impl Key {
    /// Of the bytes of a handle.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let word = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // Never 0, which stands for no key.
        Self { word: (word ^ (word >> 32)) & KEY | 1, unique: true }
    }

    /// Of the file behind a descriptor.
    pub(crate) fn of_file(fd: i32) -> Option<Self> {
        let file = sys::identify(fd).ok()?;
        let mut bytes = [0; 16];
        let (device, inode) = bytes.split_at_mut(8);
        device.copy_from_slice(&file.device.to_ne_bytes());
        inode.copy_from_slice(&file.inode.to_ne_bytes());
        Some(Self { unique: !file.is_device_node, ..Self::of_bytes(&bytes) })
    }
}

/// What this process holds together with others.
#[derive(Debug)]
pub(crate) struct Shares {
    /// By place: how many handles of this process stand for it. A bit in the ledger cannot count.
    counts: Lock<[u32; SHARED]>,
    held: AtomicU32,
    /// Sparse arrays that were given a number.
    numbers: AtomicU32,
}

impl Shares {
    pub(crate) const fn new() -> Self {
        Self { counts: Lock::new([0; SHARED]), held: AtomicU32::new(0), numbers: AtomicU32::new(0) }
    }

    /// A number for a sparse array, so that its tiles can be found.
    pub(crate) fn next_number(&self) -> u64 {
        u64::from(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether there is no such memory.
    pub(crate) fn none(&self) -> bool {
        self.held.load(Ordering::Acquire) == 0
    }

    /// One holder more of memory that somebody of the pod holds: its place and bytes.
    pub(crate) fn join(&self, account: &Account, key: u64) -> Option<(usize, u64)> {
        let mut counts = self.counts.lock();
        let (place, bytes) = account.join(key)?;
        self.count(&mut counts, place);
        Some((place, bytes))
    }

    /// Memory of `bytes` that others may come to hold: its place, if there is room.
    pub(crate) fn share(&self, account: &Account, key: u64, bytes: u64) -> Option<usize> {
        let mut counts = self.counts.lock();
        let place = account.share(key, bytes)?;
        self.count(&mut counts, place);
        Some(place)
    }

    fn count(&self, counts: &mut [u32; SHARED], place: usize) {
        if let Some(count) = counts.get_mut(place) {
            *count += 1;
            self.held.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// One holder less.
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
    use super::*;

    #[test]
    fn a_key_is_never_zero_and_fits_into_a_note() {
        for bytes in [&[][..], &[0; 64], &[0xff; 64], b"handle"] {
            let key = Key::of_bytes(bytes);
            assert!(key.word != 0 && key.word <= KEY && key.unique, "{bytes:?}");
        }
        assert_ne!(Key::of_bytes(b"one"), Key::of_bytes(b"two"));
    }

    #[test]
    fn a_device_node_does_not_tell_one_memory_from_another() {
        use std::os::fd::AsRawFd;
        let node = std::fs::File::open("/dev/null").unwrap();
        let (file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        assert!(!Key::of_file(node.as_raw_fd()).unwrap().unique);
        let key = Key::of_file(file.as_raw_fd()).unwrap();
        assert!(key.unique);
        assert_ne!(Some(key), Key::of_file(other.as_raw_fd()));
        assert_eq!(Some(key), Key::of_file(file.try_clone().unwrap().as_raw_fd()));
        assert_eq!(Key::of_file(-1), None);
    }
}
