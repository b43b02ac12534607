//! What this process remembers of the driver's things, a table for each: above all what a `free` must give back.
//!
//! Keys and values are types of their own, so that a count is not taken for a size, nor a handle for an address. A table
//! knows nothing of charges and never calls the driver.

pub(crate) mod keys;
pub(crate) mod values;
mod word_map;

use core::marker::PhantomData;

use self::keys::{Address, ArrayHandle, ContextHandle, GraphHandle, Key, LoadedHandle, PhysicalMemory, Tile};
use self::values::{
    Allocation, ArrayNumber, Bytes, ExportedAllocation, Owned, Owner, References, TileMapping, Value,
};
pub(crate) use self::word_map::NoRoom;
use self::word_map::WordMap;
use super::shared_memory::{MemoryKey, SharedPlace};

/// What is remembered of things of one kind: nothing more than the types of a map's words.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Table<K, V> {
    words: WordMap,
    types: PhantomData<fn(K) -> V>,
}

impl<K: Key, V: Value> Table<K, V> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self { words: WordMap::new(), types: PhantomData }
    }

    /// Remembers a value, where there is memory for it and the key is not 0.
    #[inline]
    pub(crate) fn insert(&self, key: K, value: V) -> Result<(), NoRoom> {
        self.words.insert(key.word(), value.word()).map(|_| ())
    }

    /// Remembers a value. Without memory for it it is lost, and what it is about stays charged.
    #[inline]
    pub(crate) fn set(&self, key: K, value: V) {
        let _ = self.insert(key, value);
    }

    /// Forgets a value and returns it.
    #[inline]
    pub(crate) fn remove(&self, key: K) -> Option<V> {
        self.words.remove(key.word()).map(V::from_word)
    }

    /// What is remembered of a thing.
    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<V> {
        self.words.get(key.word()).map(V::from_word)
    }
}

impl<K: Key, V: Owned> Table<K, V> {
    /// Forgets one value of an owner and returns it.
    #[inline]
    pub(crate) fn take_one(&self, owner: V::Owner) -> Option<V> {
        self.words.take_tagged(owner.into()).map(V::from_word)
    }
}

impl<K: Key> Table<K, Allocation> {
    /// Bytes of every allocation of an owner together.
    #[inline]
    pub(crate) fn owned_by(&self, owner: Owner) -> u64 {
        self.words.sum_tagged(owner.into())
    }

    /// The entry of a thing, for code that charges things of every kind alike.
    #[inline]
    pub(crate) fn entry(&self, key: K) -> AllocationEntry<'_> {
        AllocationEntry { words: &self.words, key: key.word() }
    }
}

/// Where the allocation of one thing is remembered, whichever table that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationEntry<'a> {
    words: &'a WordMap,
    key: u64,
}

impl AllocationEntry<'_> {
    /// The address or handle of the thing, as the driver wrote it.
    pub(crate) const fn handle(&self) -> u64 {
        self.key
    }

    /// Remembers an allocation. What was remembered there before is gone (its context died), and is returned.
    pub(crate) fn insert(&self, allocation: Allocation) -> Result<Option<Allocation>, NoRoom> {
        let before = self.words.insert(self.key, allocation.word())?;
        Ok(before.map(Allocation::from_word))
    }

    /// Forgets the allocation and returns it.
    pub(crate) fn remove(&self) -> Option<Allocation> {
        self.words.remove(self.key).map(Allocation::from_word)
    }
}

/// The tables of this process.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Plain, pitched, managed and pools' memory.
    pub(crate) allocations: Table<Address, Allocation>,
    /// Memory of `allocations` that other processes may have opened, which is then charged in the ledger.
    pub(crate) exported: Table<Address, ExportedAllocation>,
    /// Arrays, and mipmapped ones.
    pub(crate) arrays: Table<ArrayHandle, Allocation>,
    /// Modules, libraries and green contexts: what they were measured to take.
    pub(crate) loaded: Table<LoadedHandle, Allocation>,
    /// What the limits of a context take beyond what it had from the start.
    pub(crate) context_limits: Table<ContextHandle, Allocation>,
    /// Graphs that were made ready: what their nodes allocate.
    pub(crate) graphs: Table<GraphHandle, Bytes>,
    /// How many handles and mappings there are of physical memory.
    pub(crate) references: Table<PhysicalMemory, References>,
    /// What physical memory is charged to this process.
    pub(crate) physical_bytes: Table<PhysicalMemory, Bytes>,
    /// Where in the ledger physical memory is charged, if not to this process.
    pub(crate) shared_places: Table<PhysicalMemory, SharedPlace>,
    /// What imported memory of yet unknown size is recognised by; nothing where only its size can tell.
    pub(crate) imported_keys: Table<PhysicalMemory, Option<MemoryKey>>,
    /// Which physical memory is mapped at an address.
    pub(crate) mappings: Table<Address, PhysicalMemory>,
    /// How much of it.
    pub(crate) lengths: Table<Address, Bytes>,
    /// The numbers of sparse arrays that memory was mapped into.
    pub(crate) sparse_arrays: Table<ArrayHandle, ArrayNumber>,
    /// Which physical memory is mapped into a tile of a sparse array.
    pub(crate) tiles: Table<Tile, TileMapping>,
}

impl Tables {
    /// Empty tables.
    pub(crate) const fn new() -> Self {
        Self {
            allocations: Table::new(),
            exported: Table::new(),
            arrays: Table::new(),
            loaded: Table::new(),
            context_limits: Table::new(),
            graphs: Table::new(),
            references: Table::new(),
            physical_bytes: Table::new(),
            shared_places: Table::new(),
            imported_keys: Table::new(),
            mappings: Table::new(),
            lengths: Table::new(),
            sparse_arrays: Table::new(),
            tiles: Table::new(),
        }
    }

    /// Forgets everything that goes with an owner; what it was charged, in bytes.
    pub(crate) fn remove_owner(&self, owner: Owner) -> u64 {
        let Self { allocations, arrays, loaded, context_limits, .. } = self;
        let theirs = [&allocations.words, &arrays.words, &loaded.words, &context_limits.words];
        theirs.into_iter().map(|words| words.remove_tagged(owner.into())).sum()
    }
}

#[cfg(test)]
mod tests;
