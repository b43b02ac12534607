//! What tables are asked by: addresses and handles of the driver's, a type for each kind of thing.

use crate::state::shared_memory::hash;

/// What a table is asked by.
pub(crate) trait Key: Copy {
    /// The key as the map keeps it; 0 for none.
    fn word(self) -> u64;
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident($visibility:vis u64);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name($visibility u64);

        impl Key for $name {
            #[inline]
            fn word(self) -> u64 {
                self.0
            }
        }
    )*};
}

keys! {
    /// An address on the card (`CUdeviceptr`).
    Address(pub(crate) u64);
    /// A `CUarray` or `CUmipmappedArray`.
    ArrayHandle(pub(crate) u64);
    /// A `CUcontext`.
    ContextHandle(pub(crate) u64);
    /// A `CUgraphExec`.
    GraphHandle(pub(crate) u64);
    /// A `CUmodule`, `CUlibrary` or `CUgreenCtx`.
    LoadedHandle(pub(crate) u64);
    /// Physical memory: 48 bits of its handle, and a bit for each place that it may come from.
    PhysicalMemory(pub(super) u64);
    /// A tile of a sparse array, hashed to 48 bits.
    Tile(u64);
}

impl PhysicalMemory {
    /// Tells memory of another API from the driver's own.
    const EXTERNAL: u64 = 1 << 56;
    /// Tells memory that another process has let this one open.
    const OPENED: u64 = 1 << 57;

    /// Memory that `cuMemCreate` made or `cuMemImportFromShareableHandle` imported.
    pub(crate) const fn created(handle: u64) -> Self {
        // Handles are addresses or numbers with the same upper bits, of which no two become one.
        Self((handle ^ (handle >> 44)) & ((1 << 48) - 1))
    }

    /// Memory of another API, by its `CUexternalMemory`.
    pub(crate) const fn external(handle: u64) -> Self {
        Self(Self::created(handle).0 | Self::EXTERNAL)
    }

    /// Memory that another process has let this one open, by its address here.
    pub(crate) const fn opened(address: u64) -> Self {
        Self(Self::created(address).0 | Self::OPENED)
    }
}

impl Tile {
    /// The tile that a list of `cuMemMapArrayAsync` names.
    pub(crate) fn new(array: ArrayHandle, [a, b, c, d]: [u64; 4]) -> Self {
        Self(hash(&[array.0, a, b, c, d]).get())
    }
}
