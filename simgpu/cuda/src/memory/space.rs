//! The process's address space: its allocations, by their addresses, and who they belong to.

pub(crate) mod reserved;
pub(crate) mod sharing;
mod transfer;

use std::{
    collections::BTreeMap,
    sync::{
        RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use gpupool_nvidia::cuda::{CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
use simgpu_device::Segment;

pub(crate) use self::transfer::{CopyPointer, CopyRegion, MemoryCopy, MemoryFill};
use crate::{
    device::{
        initialised::{Initialised, initialised},
        segments,
    },
    error::{CuError, CuResult},
    handles::Handle,
    memory::arena::Arena,
    sync::{read, write},
};

/// What kind of memory an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    /// Plain device memory.
    Device,
    /// Managed memory.
    Managed,
    /// Page-locked memory of the host, made by the driver.
    Host,
    /// Memory of the program's that it had page-locked.
    Registered,
    /// Device memory of a pool, which is charged for it.
    Pooled(Handle),
    /// A variable of a module.
    Variable,
    /// Code of a module; the program never learns its address.
    Code,
    /// A CUDA array; the program never learns its address.
    Array,
    /// Physical memory mapped into a reserved range of addresses.
    Mapped(Handle),
    /// Memory of another process, opened here.
    Opened,
    /// An allocation of another process's pool, which this process knows by the handle.
    PoolOpened(Handle),
    /// Memory of another interface, mapped here; charged where it was imported.
    External,
    /// Memory that a graph took; the pool has the memory, the graph the address.
    Graph(Handle),
}

impl AllocationKind {
    /// Whether it lies on the card.
    pub(crate) const fn on_device(self) -> bool {
        !matches!(self, Self::Host | Self::Registered)
    }

    /// Whether `cuMemFree` ends it.
    pub(crate) const fn freeable(self) -> bool {
        matches!(
            self,
            Self::Device
                | Self::Managed
                | Self::Pooled(_)
                | Self::PoolOpened(_)
                | Self::Graph(_)
                | Self::External
        )
    }

    /// The pool that it came from.
    pub(crate) const fn pool(self) -> Option<Handle> {
        match self {
            Self::Pooled(pool) | Self::PoolOpened(pool) => Some(pool),
            _ => None,
        }
    }

    const fn charged(self) -> bool {
        matches!(self, Self::Device | Self::Managed | Self::Variable | Self::Code | Self::Array)
    }
}

/// Who an allocation belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) context: Handle,
    /// CUDA ordinal.
    pub(crate) device: i32,
    /// Index of the card in the machine.
    pub(crate) card: usize,
}

/// One allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    /// Bytes asked for.
    pub(crate) size: u64,
    pub(crate) kind: AllocationKind,
    pub(crate) owner: Owner,
    /// Flags it was made with; of mapped memory, how it may be accessed.
    pub(crate) flags: u32,
    /// Never used twice in a process.
    pub(crate) id: u64,
    /// What has its bytes, where other processes can see them.
    pub(crate) segment: Option<Segment>,
}

#[derive(Debug)]
struct AddressSpace {
    arena: Arena,
    /// Where addresses of 32 bits reach.
    low: Arena,
    live: BTreeMap<u64, Allocation>,
    /// Reserved ranges of addresses: start → length.
    reserved: BTreeMap<u64, u64>,
    /// Addresses of allocations that come later: start → length.
    held: BTreeMap<u64, u64>,
}

static SPACE: RwLock<AddressSpace> = RwLock::new(AddressSpace {
    arena: Arena::new(false),
    low: Arena::new(true),
    live: BTreeMap::new(),
    reserved: BTreeMap::new(),
    held: BTreeMap::new(),
});
static IDS: AtomicU64 = AtomicU64::new(1);

impl AddressSpace {
    /// The allocation that `address` lies in.
    fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.live.range(..=address).next_back()?;
        (address - allocation.base < allocation.size).then_some(allocation)
    }

    /// Whether `address` lies where only the driver's memory can be, in use or not.
    fn covers(&self, address: u64) -> bool {
        let reserved = self.reserved.range(..=address).next_back();
        self.arena.covers(address)
            || self.low.covers(address)
            || reserved.is_some_and(|(start, length)| address - start < *length)
    }

    /// Whether all of it lies in addresses that [`hold`] gave.
    fn is_held(&self, address: u64, bytes: u64) -> bool {
        let before = self.held.range(..=address).next_back();
        before.is_some_and(|(base, size)| {
            let offset = address - base;
            offset < *size && bytes <= size - offset
        })
    }

    /// Notes an allocation.
    fn enter(
        &mut self,
        base: u64,
        size: u64,
        kind: AllocationKind,
        owner: Owner,
        flags: u32,
    ) -> &mut Allocation {
        let id = IDS.fetch_add(1, Relaxed);
        let allocation = Allocation { base, size, kind, owner, flags, id, segment: None };
        self.live.insert(base, allocation);
        self.live.entry(base).or_insert(allocation)
    }
}

impl Allocation {
    /// Whether `bytes` from `address` on lie in it.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        address
            .checked_sub(self.base)
            .and_then(|offset| offset.checked_add(bytes))
            .is_some_and(|end| end <= self.size)
    }

    /// Whether it may be read, or written where `writes`.
    const fn allows(&self, writes: bool) -> bool {
        match self.kind {
            AllocationKind::Mapped(_) => {
                self.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                    || (self.flags == CU_MEM_ACCESS_FLAGS_PROT_READ && !writes)
            }
            _ => true,
        }
    }
}

/// Makes an allocation of `size` bytes, charged to the card if it is of a kind that is.
pub(crate) fn allocate(kind: AllocationKind, size: u64, owner: Owner, flags: u32) -> CuResult<u64> {
    allocate_in(|space| &mut space.arena, kind, size, owner, flags)
}

/// As [`allocate`], at an address of 32 bits.
pub(crate) fn allocate_low(kind: AllocationKind, size: u64, owner: Owner) -> CuResult<u64> {
    allocate_in(|space| &mut space.low, kind, size, owner, 0)
}

fn allocate_in(
    arena: fn(&mut AddressSpace) -> &mut Arena,
    kind: AllocationKind,
    size: u64,
    owner: Owner,
    flags: u32,
) -> CuResult<u64> {
    if size == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let process = initialised()?.process()?;
    if kind.charged() {
        process.take_memory(owner.card, size)?;
    }
    let mut space = write(&SPACE);
    let Some(base) = arena(&mut space).allocate(size) else {
        drop(space);
        if kind.charged() {
            process.give_memory(owner.card, size);
        }
        return Err(CuError::OUT_OF_MEMORY);
    };
    space.enter(base, size, kind, owner, flags);
    Ok(base)
}

/// Addresses for an allocation that comes later, and may come more than once.
pub(crate) fn hold(size: u64) -> CuResult<u64> {
    let mut space = write(&SPACE);
    let base = space.arena.allocate(size).ok_or(CuError::OUT_OF_MEMORY)?;
    space.held.insert(base, size);
    Ok(base)
}

/// Gives up what [`hold`] gave.
pub(crate) fn give_up(base: u64, size: u64) {
    let mut space = write(&SPACE);
    space.held.remove(&base);
    space.arena.free(base, size);
}

/// Begins an allocation at addresses that [`hold`] gave.
pub(crate) fn enter_held(base: u64, size: u64, kind: AllocationKind, owner: Owner) {
    write(&SPACE).enter(base, size, kind, owner, 0);
}

/// Enters memory of the program's; fails when some of it is entered already.
pub(crate) fn register(base: u64, size: u64, owner: Owner, flags: u32) -> CuResult {
    let end = base.checked_add(size).filter(|_| base != 0 && size != 0).ok_or(CuError::INVALID_VALUE)?;
    let mut space = write(&SPACE);
    let overlaps = space.live.range(..end).next_back().is_some_and(|(_, last)| last.base + last.size > base);
    if overlaps {
        return Err(CuError::HOST_MEMORY_ALREADY_REGISTERED);
    }
    space.enter(base, size, AllocationKind::Registered, owner, flags);
    Ok(())
}

/// Ends the allocation that begins at `base`, if it is one that `fits`; gives what it was.
pub(crate) fn release(base: u64, fits: impl Fn(&Allocation) -> bool) -> Option<Allocation> {
    let mut space = write(&SPACE);
    let allocation = *space.live.get(&base).filter(|allocation| fits(allocation))?;
    space.live.remove(&base);
    if allocation.segment.is_some() || allocation.kind == AllocationKind::External {
        sharing::uncover(base, allocation.size);
    }
    if !matches!(allocation.kind, AllocationKind::Registered | AllocationKind::Graph(_)) {
        let arena = if u32::try_from(base).is_ok() { &mut space.low } else { &mut space.arena };
        arena.free(base, allocation.size);
    }
    drop(space);
    if let Some(segment) = allocation.segment {
        segments::release(&segment);
    } else if allocation.kind.charged()
        && let Ok(process) = initialised().and_then(Initialised::process)
    {
        process.give_memory(allocation.owner.card, allocation.size);
    }
    Some(allocation)
}

/// Ends every allocation that `gone` says is gone; gives what they were.
pub(crate) fn release_all(gone: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
    let bases: Vec<_> =
        read(&SPACE).live.values().filter(|allocation| gone(allocation)).map(|one| one.base).collect();
    bases.into_iter().filter_map(|base| release(base, &gone)).collect()
}

/// The allocation that `address` lies in.
pub(crate) fn find(address: u64) -> Option<Allocation> {
    read(&SPACE).find(address).copied()
}
