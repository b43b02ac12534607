//! A map from words to words, which every table is a typed face of: one piece of code for all of them.
//!
//! Constant time however much is kept: sixteen open-addressing shards, each with its own lock of one word, in memory
//! mapped directly. All zero is an empty map, as a forked child finds it. It knows nothing of what its words mean, but
//! for one: a value may have a tag in its upper 16 bits, by which values are found and let go of together.

use core::ptr;

use crate::lock::{Guard, Lock};
use crate::sys;

const SHARDS: usize = 16;
/// First size of a shard's table in entries: one page.
const FIRST_CAPACITY: usize = 256;
/// Bits of a value below its tag.
const TAG_SHIFT: u32 = 48;

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    /// 0 for a free entry: no memory lies at address 0, and no handle of the driver's is 0.
    key: u64,
    value: u64,
}

impl Entry {
    /// Whether a value with this tag is kept here.
    fn has(&self, tag: u16) -> bool {
        self.key != 0 && self.value >> TAG_SHIFT == u64::from(tag)
    }

    /// The value without its tag.
    const fn untagged(&self) -> u64 {
        self.value & ((1 << TAG_SHIFT) - 1)
    }
}

struct Shard {
    entries: *mut Entry,
    /// A power of two, or 0 before the first entry.
    capacity: usize,
    used: usize,
}

// SAFETY: the entries belong to the shard alone.
unsafe impl Send for Shard {}

/// There was no memory for the map itself, or no key to keep something at.
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

    /// The place of a key, or of the free entry where it belongs.
    fn place(&mut self, key: u64) -> Option<usize> {
        let mask = self.capacity.checked_sub(1)?;
        let mut place = home(key) & mask;
        loop {
            match self.entries().get(place) {
                Some(entry) if entry.key != 0 && entry.key != key => place = (place + 1) & mask,
                Some(_) => return Some(place),
                None => return None,
            }
        }
    }

    fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>, NoRoom> {
        if self.used * 4 >= self.capacity * 3 {
            self.rebuild((self.capacity * 2).max(FIRST_CAPACITY), |_| true)?;
        }
        let place = self.place(key).ok_or(NoRoom)?;
        let Some(entry) = self.entries().get_mut(place) else { return Err(NoRoom) };
        let before = (entry.key != 0).then_some(entry.value);
        *entry = Entry { key, value };
        self.used += usize::from(before.is_none());
        Ok(before)
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let mut hole = self.place(key)?;
        let found = *self.entries().get(hole)?;
        if found.key == 0 {
            return None;
        }
        // Entries behind the hole move up where their way from home leads over it.
        let mask = self.capacity - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let Some(&entry) = self.entries().get(place) else { break };
            if entry.key == 0 {
                break;
            }
            let way = place.wrapping_sub(home(entry.key)) & mask;
            if way >= (place.wrapping_sub(hole) & mask) {
                self.put(hole, entry);
                hole = place;
            }
        }
        self.put(hole, Entry { key: 0, value: 0 });
        self.used -= 1;
        Some(found.value)
    }

    fn put(&mut self, place: usize, entry: Entry) {
        if let Some(slot) = self.entries().get_mut(place) {
            *slot = entry;
        }
    }

    /// Moves the entries that `keep` wants to a table of `capacity`.
    fn rebuild(&mut self, capacity: usize, mut keep: impl FnMut(&Entry) -> bool) -> Result<(), NoRoom> {
        let bytes = capacity * size_of::<Entry>();
        let entries = sys::map_private(bytes).map_err(|_| NoRoom)?.cast::<Entry>();
        let mut fresh = Self { entries, capacity, used: 0 };
        for entry in self.entries() {
            if entry.key != 0
                && keep(entry)
                && let Some(place) = fresh.place(entry.key)
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
fn mix(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a key would like to lie in its shard; the bits below those that choose the shard.
fn home(key: u64) -> usize {
    usize::try_from((mix(key) >> 24) & 0xffff_ffff).unwrap_or(0)
}

/// The map.
#[derive(Debug)]
pub(crate) struct WordMap {
    shards: [Lock<Shard>; SHARDS],
}

impl WordMap {
    /// An empty map.
    pub(crate) const fn new() -> Self {
        Self {
            shards: [const { Lock::new(Shard { entries: ptr::null_mut(), capacity: 0, used: 0 }) }; SHARDS],
        }
    }

    fn shard(&self, key: u64) -> Option<Guard<'_, Shard>> {
        let index = usize::try_from(mix(key) >> 60).unwrap_or(0);
        self.shards.get(index).map(Lock::lock)
    }

    /// Keeps a value, and returns what was kept at that key before. Nothing is kept at key 0.
    #[inline(never)]
    pub(crate) fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, NoRoom> {
        if key == 0 {
            return Err(NoRoom);
        }
        self.shard(key).ok_or(NoRoom)?.insert(key, value)
    }

    /// Forgets what is kept at a key and returns it.
    #[inline(never)]
    pub(crate) fn remove(&self, key: u64) -> Option<u64> {
        if key == 0 {
            return None;
        }
        self.shard(key)?.remove(key)
    }

    /// What is kept at a key.
    #[inline(never)]
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let mut shard = self.shard(key)?;
        let place = shard.place(key)?;
        shard.entries().get(place).filter(|entry| entry.key != 0).map(|entry| entry.value)
    }

    /// Forgets one value with a tag and returns it.
    #[inline(never)]
    pub(crate) fn take_tagged(&self, tag: u16) -> Option<u64> {
        self.shards.iter().find_map(|shard| {
            let mut shard = shard.lock();
            let key = shard.entries().iter().find(|entry| entry.has(tag))?.key;
            shard.remove(key)
        })
    }

    /// Forgets every value with a tag; what they are below it, added up.
    pub(crate) fn remove_tagged(&self, tag: u16) -> u64 {
        let mut sum = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            if !shard.entries().iter().any(|entry| entry.has(tag)) {
                continue;
            }
            let capacity = shard.capacity;
            let mut theirs = 0;
            let rebuilt = shard.rebuild(capacity, |entry| {
                if entry.has(tag) {
                    theirs += entry.untagged();
                }
                !entry.has(tag)
            });
            // Without memory for a new table the entries stay, charged for nothing; an address that is used again
            // gives its charge back then.
            if rebuilt.is_ok() {
                sum += theirs;
            }
        }
        sum
    }

    /// What every value with a tag is below it, added up.
    pub(crate) fn sum_tagged(&self, tag: u16) -> u64 {
        let mut sum = 0;
        for shard in &self.shards {
            for entry in shard.lock().entries().iter().filter(|entry| entry.has(tag)) {
                sum += entry.untagged();
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests;
