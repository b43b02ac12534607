//! Device memory by its address: what a `free` must give back.
//!
//! Constant time however much is live: sixteen open-addressing tables, each with its own lock of one word, in memory
//! mapped directly. All zero is an empty map, as a forked child finds it.

use core::ptr;

use crate::lock::{Guard, Lock};
use crate::sys;

const SHARDS: usize = 16;
/// First size of a shard's table in entries: one page.
const FIRST_CAPACITY: usize = 256;

/// Who has to be gone for memory to be gone with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u16);

impl Owner {
    /// A context that has no place in the list of contexts.
    pub(crate) const UNKNOWN: Self = Self(0x7fff);
    /// Nothing: the entry is a note about something else.
    pub(crate) const NOBODY: Self = Self(0x7ffe);
    const POOL: u16 = 0x8000;
    const ARRAY: u16 = 0x4000;
    const SHARED: u16 = 0x2000;

    /// The context at a place of the list.
    pub(crate) fn context(place: usize) -> Self {
        u16::try_from(place).ok().filter(|&place| place < Self::POOL).map_or(Self::UNKNOWN, Self)
    }

    /// The sparse array with a number, of which 13 bits must do: two that share them are let go of together.
    pub(crate) fn array(number: u64) -> Self {
        Self(Self::ARRAY | (u16::try_from(number & 0x1fff).unwrap_or(0)))
    }

    /// Memory of this owner that others may have opened.
    pub(crate) const fn shared(self) -> Self {
        Self(self.0 | Self::SHARED)
    }

    /// The pool at a place of the list.
    pub(crate) fn pool(place: usize) -> Self {
        Self(Self::POOL | (u16::try_from(place).unwrap_or(0) & !Self::POOL))
    }

    /// The pool's place, if it is one.
    pub(crate) const fn as_pool(self) -> Option<usize> {
        if self.0 & Self::POOL == 0 { None } else { Some((self.0 & !Self::POOL) as usize) }
    }
}

/// What an entry is about. Addresses have fewer than 60 bits, so the kind of thing is told by the bits above. A handle may
/// have any, but then it is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An array, or a mipmapped one: what it takes.
    Array = 1,
    /// A sparse array: its number.
    Number = 2,
    /// Physical memory: its bytes.
    Physical = 3,
    /// Physical memory: how many handles and mappings there are of it.
    References = 4,
    /// Memory that is shared: its place in the ledger, plus 1.
    Place = 5,
    /// Physical memory from outside, of unknown size: its key.
    Foreign = 6,
    /// An address where physical memory is mapped: how much of it.
    Length = 7,
    /// An address, or a tile of an array, where physical memory is mapped: which one.
    Mapping = 8,
    /// Code that was loaded, or what else takes memory of unknown size: what it was measured to take.
    Measured = 9,
    /// Memory of another API: its bytes.
    External = 10,
    /// A graph that was made ready: what its nodes allocate.
    Graph = 11,
    /// Memory that another process has let this one open.
    Opened = 12,
}

impl Kind {
    /// The key of a thing of this kind.
    pub(crate) fn of(self, handle: u64) -> u64 {
        handle ^ ((self as u64) << 60)
    }
}

/// A piece of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// What it is charged, in bytes; below 2^48.
    pub(crate) bytes: u64,
    /// What it goes with.
    pub(crate) owner: Owner,
}

impl Allocation {
    /// A number that is kept about something.
    pub(crate) const fn note(number: u64) -> Self {
        Self { bytes: number, owner: Owner::NOBODY }
    }

    fn pack(self) -> u64 {
        (u64::from(self.owner.0) << 48) | (self.bytes & ((1 << 48) - 1))
    }

    fn unpack(word: u64) -> Self {
        Self { bytes: word & ((1 << 48) - 1), owner: Owner(u16::try_from(word >> 48).unwrap_or(0)) }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    /// 0 for a free entry: no memory lies at address 0.
    address: u64,
    piece: u64,
}

struct Shard {
    entries: *mut Entry,
    /// A power of two, or 0 before the first entry.
    capacity: usize,
    used: usize,
}

// SAFETY: the entries belong to the shard alone.
unsafe impl Send for Shard {}

/// There was no memory for the map itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Shard {
    fn entries(&mut self) -> &mut [Entry] {
        if self.entries.is_null() {
            return &mut [];
        }
        // SAFETY: a mapping of that many entries, which any bytes are valid for.
        unsafe { core::slice::from_raw_parts_mut(self.entries, self.capacity) }
    }

    /// The place of an address, or of the free entry where it belongs.
    fn place(&mut self, address: u64) -> Option<usize> {
        let mask = self.capacity.checked_sub(1)?;
        let mut place = home(address) & mask;
        loop {
            match self.entries().get(place) {
                Some(entry) if entry.address != 0 && entry.address != address => place = (place + 1) & mask,
                Some(_) => return Some(place),
                None => return None,
            }
        }
    }

    fn insert(&mut self, address: u64, piece: u64) -> Result<Option<u64>, NoRoom> {
        if self.used * 4 >= self.capacity * 3 {
            self.rebuild((self.capacity * 2).max(FIRST_CAPACITY), |_, _| true)?;
        }
        let place = self.place(address).ok_or(NoRoom)?;
        let Some(entry) = self.entries().get_mut(place) else { return Err(NoRoom) };
        let before = (entry.address != 0).then_some(entry.piece);
        *entry = Entry { address, piece };
        self.used += usize::from(before.is_none());
        Ok(before)
    }

    fn remove(&mut self, address: u64) -> Option<u64> {
        let mut hole = self.place(address)?;
        let found = *self.entries().get(hole)?;
        if found.address == 0 {
            return None;
        }
        // Entries behind the hole move up where their way from home leads over it.
        let mask = self.capacity - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let Some(&entry) = self.entries().get(place) else { break };
            if entry.address == 0 {
                break;
            }
            let way = place.wrapping_sub(home(entry.address)) & mask;
            if way >= (place.wrapping_sub(hole) & mask) {
                self.put(hole, entry);
                hole = place;
            }
        }
        self.put(hole, Entry { address: 0, piece: 0 });
        self.used -= 1;
        Some(found.piece)
    }

    fn put(&mut self, place: usize, entry: Entry) {
        if let Some(slot) = self.entries().get_mut(place) {
            *slot = entry;
        }
    }

    /// Moves the entries that `keep` wants to a table of `capacity`.
    fn rebuild(&mut self, capacity: usize, mut keep: impl FnMut(u64, u64) -> bool) -> Result<(), NoRoom> {
        let bytes = capacity * size_of::<Entry>();
        let entries = sys::map_private(bytes).map_err(|_| NoRoom)?.cast::<Entry>();
        let mut fresh = Self { entries, capacity, used: 0 };
        for entry in self.entries() {
            if entry.address != 0
                && keep(entry.address, entry.piece)
                && let Some(place) = fresh.place(entry.address)
            {
                fresh.put(place, *entry);
                fresh.used += 1;
            }
        }
        if !self.entries.is_null() {
            // SAFETY: nobody but this shard knows the old table.
            unsafe { sys::unmap(self.entries.cast(), self.capacity * size_of::<Entry>()) };
        }
        *self = fresh;
        Ok(())
    }
}

/// Spreads addresses, which are multiples of large powers of two, over 64 bits.
fn mix(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where an address would like to lie in its shard; the bits below those that choose the shard.
fn home(address: u64) -> usize {
    usize::try_from((mix(address) >> 24) & 0xffff_ffff).unwrap_or(0)
}

/// The map.
#[derive(Debug)]
pub(crate) struct PointerMap {
    shards: [Lock<Shard>; SHARDS],
}

impl PointerMap {
    /// An empty map.
    pub(crate) const fn new() -> Self {
        Self {
            shards: [const { Lock::new(Shard { entries: ptr::null_mut(), capacity: 0, used: 0 }) }; SHARDS],
        }
    }

    fn shard(&self, address: u64) -> Option<Guard<'_, Shard>> {
        let index = usize::try_from(mix(address) >> 60).unwrap_or(0);
        self.shards.get(index).map(Lock::lock)
    }

    /// Remembers a piece. What was remembered at that address before is gone (its context died), and is returned.
    pub(crate) fn insert(&self, address: u64, piece: Allocation) -> Result<Option<Allocation>, NoRoom> {
        if address == 0 {
            return Err(NoRoom);
        }
        let mut shard = self.shard(address).ok_or(NoRoom)?;
        shard.insert(address, piece.pack()).map(|before| before.map(Allocation::unpack))
    }

    /// Forgets the piece at an address and returns it.
    pub(crate) fn remove(&self, address: u64) -> Option<Allocation> {
        if address == 0 {
            return None;
        }
        self.shard(address)?.remove(address).map(Allocation::unpack)
    }

    /// What is remembered at a key.
    pub(crate) fn get(&self, key: u64) -> Option<Allocation> {
        let mut shard = self.shard(key)?;
        let place = shard.place(key)?;
        let entry = shard.entries().get(place).filter(|entry| entry.address != 0)?;
        Some(Allocation::unpack(entry.piece))
    }

    /// Forgets one piece of an owner and returns it.
    pub(crate) fn take_one(&self, owner: Owner) -> Option<Allocation> {
        self.shards.iter().find_map(|shard| {
            let mut shard = shard.lock();
            let theirs =
                |entry: &&mut Entry| entry.address != 0 && Allocation::unpack(entry.piece).owner == owner;
            let address = shard.entries().iter_mut().find(theirs)?.address;
            shard.remove(address).map(Allocation::unpack)
        })
    }

    /// Forgets every piece of an owner; their bytes together.
    pub(crate) fn remove_owner(&self, owner: Owner) -> u64 {
        let mut bytes = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let theirs = |word: u64| Allocation::unpack(word).owner == owner;
            if !shard.entries().iter().any(|entry| entry.address != 0 && theirs(entry.piece)) {
                continue;
            }
            let capacity = shard.capacity;
            let mut sum = 0;
            let rebuilt = shard.rebuild(capacity, |_, word| {
                if theirs(word) {
                    sum += Allocation::unpack(word).bytes;
                }
                !theirs(word)
            });
            // Without memory for a new table the entries stay, charged for nothing; an address that is used again
            // gives its charge back then.
            if rebuilt.is_ok() {
                bytes += sum;
            }
        }
        bytes
    }

    /// Bytes of every piece of an owner together.
    pub(crate) fn owned_by(&self, owner: Owner) -> u64 {
        let mut bytes = 0;
        for shard in &self.shards {
            for entry in shard.lock().entries() {
                let piece = Allocation::unpack(entry.piece);
                if entry.address != 0 && piece.owner == owner {
                    bytes += piece.bytes;
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
