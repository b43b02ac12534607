//! Where device memory lies: anonymous memory of this process that costs nothing until it is touched. So device
//! addresses are real addresses that no host pointer can equal.
//!
//! Small blocks share large mappings, because a process may have 65,530 mappings and a program has more allocations
//! than that; large blocks have a mapping each. How much a program may have is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};

/// Blocks begin and end on multiples of this many bytes: whole pages, so that another process can be given them.
const ALIGNMENT: u64 = PAGE;
/// Size of a shared mapping in bytes.
const CHUNK: u64 = 1 << 30;
/// The same where addresses have 32 bits.
const LOW_CHUNK: u64 = 128 << 20;
/// Blocks from this size on have a mapping of their own.
const LARGE: u64 = 64 << 20;
/// A freed block from this size on gives its pages back.
const WORTH_RETURNING: u64 = 64 << 10;
const PAGE: u64 = 4096;

/// Free and mapped ranges. The blocks in use are known to the caller.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Free ranges: start → length.
    by_start: BTreeMap<u64, u64>,
    /// The same as (length, start).
    by_length: BTreeSet<(u64, u64)>,
    /// Shared mappings: starts.
    chunks: Vec<u64>,
    /// Whether its addresses have 32 bits.
    low: bool,
}

const fn block_size(size: u64) -> u64 {
    size.next_multiple_of(ALIGNMENT)
}

impl Arena {
    pub(crate) const fn new(low: bool) -> Self {
        Self { by_start: BTreeMap::new(), by_length: BTreeSet::new(), chunks: Vec::new(), low }
    }

    const fn chunk(&self) -> u64 {
        if self.low { LOW_CHUNK } else { CHUNK }
    }

    /// The address of a new block of at least `size` bytes; `None` where the system has no room.
    pub(crate) fn allocate(&mut self, size: u64) -> Option<u64> {
        if size >= LARGE {
            return map(size.checked_next_multiple_of(PAGE)?, self.low);
        }
        let size = block_size(size);
        if let Some(&(length, start)) = self.by_length.range((size, 0)..).next() {
            self.take_free(start, length);
            if length > size {
                self.add_free(start + size, length - size);
            }
            return Some(start);
        }
        let chunk = map(self.chunk(), self.low)?;
        self.chunks.push(chunk);
        self.add_free(chunk + size, self.chunk() - size);
        Some(chunk)
    }

    /// Takes back the block of `size` bytes at `start`, as [`Self::allocate`] gave it.
    pub(crate) fn free(&mut self, start: u64, size: u64) {
        if size >= LARGE {
            unmap(start, size.next_multiple_of(PAGE));
            return;
        }
        let size = block_size(size);
        if size >= WORTH_RETURNING {
            return_pages(start.next_multiple_of(PAGE), (start + size) / PAGE * PAGE);
        }
        let (mut start, mut length) = (start, size);
        if let Some((&before, &its_length)) = self.by_start.range(..start).next_back()
            && before + its_length == start
            && !self.chunks.contains(&start)
        {
            self.take_free(before, its_length);
            (start, length) = (before, length + its_length);
        }
        let end = start + length;
        if let Some(&its_length) = self.by_start.get(&end)
            && !self.chunks.contains(&end)
        {
            self.take_free(end, its_length);
            length += its_length;
        }
        self.add_free(start, length);
    }

    /// Whether `address` lies in a shared mapping, in use or not.
    pub(crate) fn covers(&self, address: u64) -> bool {
        self.chunks.iter().any(|&chunk| (chunk..chunk + self.chunk()).contains(&address))
    }

    fn add_free(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn take_free(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

/// Asks for an address of 32 bits, where a system can be asked.
#[cfg(target_arch = "x86_64")]
const LOW: libc::c_int = libc::MAP_32BIT;
/// See above.
#[cfg(not(target_arch = "x86_64"))]
const LOW: libc::c_int = 0;

fn map(size: u64, low: bool) -> Option<u64> {
    let size = usize::try_from(size).ok()?;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let kind = if low { kind | LOW } else { kind };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start as u64;
    if low && start + size as u64 > u64::from(u32::MAX) {
        unmap(start, size as u64);
        return None;
    }
    Some(start)
}

fn unmap(start: u64, size: u64) {
    if let (Ok(address), Ok(size)) = (usize::try_from(start), usize::try_from(size)) {
        // SAFETY: the mapping was made by `map` for one block, which nobody uses any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), size) };
    }
}

fn return_pages(from: u64, to: u64) {
    if let (Ok(address), Ok(size)) = (usize::try_from(from), usize::try_from(to.saturating_sub(from)))
        && size > 0
    {
        // SAFETY: whole pages of a block that nobody uses any more.
        unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(address), size, libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_neighbours_become_one_block_again() {
        let mut arena = Arena::new(false);
        let blocks: Vec<_> = (0..64).map(|_| arena.allocate(1 << 20).unwrap()).collect();
        for block in blocks.iter().step_by(2).chain(blocks.iter().skip(1).step_by(2)) {
            arena.free(*block, 1 << 20);
        }
        assert_eq!(arena.by_start.len(), 1);
        assert_eq!(arena.by_length.iter().next().unwrap().0, CHUNK);
        assert_eq!(arena.chunks.len(), 1);
    }

    #[test]
    fn blocks_never_overlap() {
        let mut arena = Arena::new(false);
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for round in 0..4000_u64 {
            if round % 3 == 2 {
                let place = usize::try_from(round * 7919).unwrap() % blocks.len();
                let (start, size) = blocks.swap_remove(place);
                arena.free(start, size);
            } else {
                let size = 1 + (round * 2_654_435_761) % 200_000;
                blocks.push((arena.allocate(size).unwrap(), size));
            }
        }
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
        }
    }
}
