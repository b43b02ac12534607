//! What tables remember, each kind as the word that it is kept as.

use super::keys::{ArrayHandle, Key, PhysicalMemory};
use crate::state::shared_memory::{MemoryKey, SharedPlace, hash};

/// What a table remembers.
pub(crate) trait Value: Copy {
    /// The value as the map keeps it.
    fn word(self) -> u64;
    /// The value that was kept as this word.
    fn from_word(word: u64) -> Self;
}

/// A value that goes with something else: its word has the owner above 48 other bits.
pub(crate) trait Owned: Value {
    /// What the value goes with.
    type Owner: Into<u16>;
}

/// Puts an owner above 48 bits.
#[inline]
fn tagged(owner: u16, bits: u64) -> u64 {
    (u64::from(owner) << 48) | (bits & ((1 << 48) - 1))
}

/// An owner and the 48 bits below it.
#[inline]
fn untagged(word: u64) -> (u16, u64) {
    (u16::try_from(word >> 48).unwrap_or(0), word & ((1 << 48) - 1))
}

/// What has to be gone for memory to be gone with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u16);

impl Owner {
    /// A context that has no place in the list of contexts.
    pub(crate) const UNKNOWN: Self = Self(0x7fff);
    const POOL: u16 = 0x8000;

    /// The context at a place of the list.
    pub(crate) fn context(place: usize) -> Self {
        u16::try_from(place).ok().filter(|&place| place < Self::POOL).map_or(Self::UNKNOWN, Self)
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

impl From<Owner> for u16 {
    #[inline]
    fn from(owner: Owner) -> Self {
        owner.0
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

impl Value for Allocation {
    #[inline]
    fn word(self) -> u64 {
        tagged(self.owner.0, self.bytes)
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        let (owner, bytes) = untagged(word);
        Self { bytes, owner: Owner(owner) }
    }
}

impl Owned for Allocation {
    type Owner = Owner;
}

/// Memory that others may have opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportedAllocation {
    /// Where in the ledger it is charged.
    pub(crate) place: SharedPlace,
    /// What it goes with.
    pub(crate) owner: Owner,
}

impl Value for ExportedAllocation {
    #[inline]
    fn word(self) -> u64 {
        tagged(self.owner.0, self.place.word())
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        let (owner, place) = untagged(word);
        Self { place: SharedPlace::from_word(place), owner: Owner(owner) }
    }
}

impl Owned for ExportedAllocation {
    type Owner = Owner;
}

/// The number of a sparse array, of which 16 bits must do: two that share one are let go of together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrayNumber(u16);

impl ArrayNumber {
    /// The number of an array, from its handle.
    pub(crate) fn of(array: ArrayHandle) -> Self {
        Self(u16::try_from((hash(&[array.word()]).get() >> 1) & 0xffff).unwrap_or(0))
    }
}

impl From<ArrayNumber> for u16 {
    #[inline]
    fn from(number: ArrayNumber) -> Self {
        number.0
    }
}

/// Physical memory in a tile of a sparse array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileMapping {
    /// The driver's own: 48 bits tell it.
    pub(crate) memory: PhysicalMemory,
    /// The array that the tile is of.
    pub(crate) array: ArrayNumber,
}

impl Value for TileMapping {
    #[inline]
    fn word(self) -> u64 {
        tagged(self.array.0, self.memory.0)
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        let (array, memory) = untagged(word);
        Self { memory: PhysicalMemory(memory), array: ArrayNumber(array) }
    }
}

impl Owned for TileMapping {
    type Owner = ArrayNumber;
}

/// A size of memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// How many handles and mappings there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct References(pub(crate) u64);

macro_rules! values {
    ($($name:ty: $value:ident => $to:expr, $word:ident => $from:expr;)*) => {$(
        impl Value for $name {
            #[inline]
            fn word(self) -> u64 {
                let $value = self;
                $to
            }

            #[inline]
            fn from_word($word: u64) -> Self {
                $from
            }
        }
    )*};
}

values! {
    Bytes: bytes => bytes.0, word => Self(word);
    References: count => count.0, word => Self(word);
    PhysicalMemory: memory => memory.0, word => Self(word);
    ArrayNumber: number => u64::from(number.0), word => Self(u16::try_from(word & 0xffff).unwrap_or(0));
    SharedPlace: place => place.0 as u64, word => Self(usize::try_from(word).unwrap_or(usize::MAX));
    Option<MemoryKey>: key => key.map_or(0, MemoryKey::get), word => MemoryKey::new(word);
}
