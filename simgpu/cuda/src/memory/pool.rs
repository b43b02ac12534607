//! Memory pools: device memory that is taken from the card in large steps and handed out in small ones.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed},
    },
};

use gpupool_nvidia::cuda::{
    CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUmemAllocationHandleType,
};
use simgpu_device::{MAX_CARDS, Segment, SegmentCharge, round_up};

use crate::{
    device::{
        initialised::{Initialised, initialised},
        segments,
    },
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::{
        ipc::{self, IpcHandle},
        space::{self, Allocation, AllocationKind, Owner},
    },
    sync::lock,
};

/// A pool takes this many bytes from the card at a time, if the card has them.
const STEP: u64 = 32 << 20;
/// The least that it takes, in bytes.
const LEAST_STEP: u64 = 2 << 20;

/// Bytes of a pool, now and at most since they were reset.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolUsage {
    /// Taken from the card.
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Handed out.
    pub(crate) used: u64,
    pub(crate) used_high: u64,
}

/// A `CUmemoryPool`.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    /// CUDA ordinal.
    pub(crate) device: i32,
    /// Index of the card in the machine.
    card: usize,
    /// Most bytes it may take; 0 for no bound of its own.
    pub(crate) max_size: u64,
    is_default: bool,
    /// What it may keep unused across a synchronisation, in bytes.
    pub(crate) threshold: AtomicU64,
    /// How it may reuse memory: kept, and given back when asked.
    pub(crate) reuse: [AtomicI32; 3],
    levels: Mutex<PoolUsage>,
    sharing: PoolSharing,
    /// The program destroyed it; it goes when its last allocation does.
    destroyed: AtomicBool,
}

/// Whether a pool is shared between processes.
#[derive(Debug)]
pub(crate) enum PoolSharing {
    /// It is this process's alone.
    Private,
    /// They may open what it hands out: every allocation has a segment of its own, which is used again when it was
    /// freed. The first segment has no bytes and stands for the pool.
    Exportable(Segment, Mutex<Vec<Segment>>),
    /// It is another process's.
    Imported(Segment),
}

static POOLS: Registry<MemoryPool> = Registry::new();
static DEFAULTS: [OnceLock<Handle>; MAX_CARDS] = [const { OnceLock::new() }; _];
/// The pool per device that graphs take their memory from.
static OF_GRAPHS: [OnceLock<Handle>; MAX_CARDS] = [const { OnceLock::new() }; _];
/// The pool in use per device, where the program chose another than the default.
static CHOSEN: [AtomicU64; MAX_CARDS] = [const { AtomicU64::new(0) }; _];

/// A pool that the program can name.
pub(crate) fn pool(handle: Handle) -> CuResult<Arc<MemoryPool>> {
    POOLS.get(handle).ok().filter(|pool| !pool.destroyed.load(Relaxed)).ok_or(CuError::INVALID_VALUE)
}

fn make(device: i32, max_size: u64, is_default: bool, sharing: PoolSharing) -> CuResult<Handle> {
    let card = initialised()?.card(device)?.index();
    Ok(POOLS.add(MemoryPool {
        device,
        card,
        max_size,
        is_default,
        threshold: AtomicU64::new(0),
        reuse: [const { AtomicI32::new(1) }; 3],
        levels: Mutex::default(),
        sharing,
        destroyed: AtomicBool::new(false),
    }))
}

/// Makes a pool of `device` that takes at most `max_size` bytes (0: no bound).
pub(crate) fn create(device: i32, max_size: u64, exportable: bool) -> CuResult<Handle> {
    let sharing = if exportable {
        let card = initialised()?.card(device)?.index();
        PoolSharing::Exportable(segments::create(card, 0, SegmentCharge::Nobody)?, Mutex::default())
    } else {
        PoolSharing::Private
    };
    make(device, max_size, false, sharing)
}

/// A descriptor by which another process knows the pool.
pub(crate) fn export(handle: Handle) -> CuResult<OwnedFd> {
    match &pool(handle)?.sharing {
        PoolSharing::Exportable(segment, _) => segments::export(segment),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The pool of another process that a descriptor stands for.
pub(crate) fn import(descriptor: i32) -> CuResult<Handle> {
    let segment = segments::import(descriptor)?.ok_or(CuError::INVALID_VALUE)?;
    let device = initialised()?.cards.iter().position(|card| card.index() == segment.card);
    match device.and_then(|device| i32::try_from(device).ok()) {
        Some(device) if segment.bytes == 0 => make(device, 0, false, PoolSharing::Imported(segment)),
        _ => {
            segments::release(&segment);
            Err(CuError::INVALID_VALUE)
        }
    }
}

/// What another process needs to open an allocation of an exportable pool.
pub(crate) fn export_pointer(pointer: u64) -> CuResult<IpcHandle> {
    let found = space::find(pointer).filter(|found| matches!(found.kind, AllocationKind::Pooled(_)));
    let found = found.ok_or(CuError::INVALID_VALUE)?;
    Ok(IpcHandle::new(ipc::POOLED, &found.segment.ok_or(CuError::INVALID_VALUE)?, found.size))
}

/// Opens an allocation of the other process's pool `handle`.
pub(crate) fn import_pointer(handle: Handle, token: &IpcHandle) -> CuResult<u64> {
    let pool = pool(handle)?;
    let PoolSharing::Imported(_) = pool.sharing else { return Err(CuError::INVALID_VALUE) };
    let owner = pool.owner(Owner { context: 0, device: pool.device, card: pool.card });
    ipc::open(token, ipc::POOLED, AllocationKind::PoolOpened(handle), owner)
}

/// The pool that `device` has from the start.
pub(crate) fn default_of(device: i32) -> CuResult<Handle> {
    let place = initialised()?.card(device)?.index();
    if let Some(&handle) = DEFAULTS[place].get() {
        return Ok(handle);
    }
    let made = make(device, 0, true, PoolSharing::Private)?;
    Ok(*DEFAULTS[place].get_or_init(|| made))
}

/// The pool that graphs of `device` take their memory from. It keeps what it has until it is trimmed.
pub(crate) fn graph_pool_of(device: i32) -> CuResult<Handle> {
    let place = initialised()?.card(device)?.index();
    if let Some(&handle) = OF_GRAPHS[place].get() {
        return Ok(handle);
    }
    let made = make(device, 0, true, PoolSharing::Private)?;
    pool(made)?.threshold.store(u64::MAX, Relaxed);
    Ok(*OF_GRAPHS[place].get_or_init(|| made))
}

/// The pool that `cuMemAllocAsync` uses on `device`.
pub(crate) fn current_of(device: i32) -> CuResult<Handle> {
    let place = initialised()?.card(device)?.index();
    let chosen = CHOSEN[place].load(Relaxed);
    if chosen != 0 && pool(chosen).is_ok() { Ok(chosen) } else { default_of(device) }
}

/// Lets `cuMemAllocAsync` use `handle` on `device`.
pub(crate) fn choose(device: i32, handle: Handle) -> CuResult {
    let place = initialised()?.card(device)?.index();
    if pool(handle)?.device != device {
        return Err(CuError::INVALID_VALUE);
    }
    CHOSEN[place].store(handle, Relaxed);
    Ok(())
}

/// Ends a pool that the program made, at once or with its last allocation.
pub(crate) fn destroy(handle: Handle) -> CuResult {
    let found = pool(handle)?;
    if found.is_default {
        return Err(CuError::INVALID_VALUE);
    }
    found.destroyed.store(true, Relaxed);
    found.remove_if_over(handle);
    Ok(())
}

/// Takes `size` bytes from the pool `handle`.
pub(crate) fn allocate(handle: Handle, size: u64, owner: Owner) -> CuResult<u64> {
    let pool = pool(handle)?;
    if size == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let owner = pool.owner(owner);
    match &pool.sharing {
        PoolSharing::Private => pool.hand_out(size)?,
        PoolSharing::Exportable(_, free) => return pool.hand_out_segment(handle, free, size, owner),
        PoolSharing::Imported(_) => return Err(CuError::INVALID_VALUE),
    }
    space::allocate(AllocationKind::Pooled(handle), size, owner, 0).inspect_err(|_| pool.take_back(size))
}

/// Takes back an allocation that was freed, if it was a pool's.
pub(crate) fn take_back(allocation: &Allocation) {
    if let AllocationKind::Pooled(handle) | AllocationKind::Graph(handle) = allocation.kind
        && let Some(pool) = POOLS.find(handle)
    {
        pool.take_back(allocation.size);
        if let (PoolSharing::Exportable(_, free), Some(segment)) = (&pool.sharing, allocation.segment) {
            lock(free).push(segment);
        }
        pool.remove_if_over(handle);
    }
}

/// At a synchronisation: pools give back what they don't use and may not keep.
pub(crate) fn trim_at_synchronization() {
    POOLS.each(|pool| pool.trim_to(pool.threshold.load(Relaxed)));
}

/// The last context of the card is gone: its pools keep nothing.
pub(crate) fn empty_pools_of(card: usize) {
    POOLS.each(|pool| {
        if pool.card == card {
            pool.trim_to(0);
        }
    });
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        if let PoolSharing::Exportable(segment, _) | PoolSharing::Imported(segment) = &self.sharing {
            segments::release(segment);
        }
    }
}

impl MemoryPool {
    pub(crate) fn levels(&self) -> PoolUsage {
        *lock(&self.levels)
    }

    /// Forgets the highest level of what was taken, or of what was handed out.
    pub(crate) fn reset_high(&self, reserved: bool) {
        let mut levels = lock(&self.levels);
        if reserved {
            levels.reserved_high = levels.reserved;
        } else {
            levels.used_high = levels.used;
        }
    }

    /// Gives back unused memory down to `keep` bytes.
    pub(crate) fn trim_to(&self, keep: u64) {
        let mut levels = lock(&self.levels);
        if let PoolSharing::Exportable(_, free) = &self.sharing {
            let mut free = lock(free);
            while levels.reserved > keep.max(levels.used)
                && let Some(segment) = free.pop()
            {
                levels.reserved -= segment.bytes;
                segments::release(&segment);
            }
            return;
        }
        let target = levels.used.next_multiple_of(LEAST_STEP).max(keep);
        if levels.reserved > target
            && let Ok(process) = initialised().and_then(Initialised::process)
        {
            process.give_memory(self.card, levels.reserved - target);
            levels.reserved = target;
        }
    }

    /// The owner of what it hands out in a context: the memory lies on the pool's device, whatever the context.
    pub(crate) const fn owner(&self, owner: Owner) -> Owner {
        Owner { device: self.device, card: self.card, ..owner }
    }

    /// Sees to it that `size` bytes more than now can be handed out.
    pub(crate) fn reserve(&self, size: u64) -> CuResult {
        self.reserve_in(&mut lock(&self.levels), size).map(|_| ())
    }

    /// As [`Self::reserve`]; gives what will be handed out then.
    fn reserve_in(&self, levels: &mut PoolUsage, size: u64) -> CuResult<u64> {
        let needed = levels.used.checked_add(round_up(size)).ok_or(CuError::OUT_OF_MEMORY)?;
        if needed > levels.reserved {
            let missing = needed - levels.reserved;
            levels.reserved += self.grow(levels.reserved, missing)?;
            levels.reserved_high = levels.reserved_high.max(levels.reserved);
        }
        Ok(needed)
    }

    /// Hands out `size` bytes.
    pub(crate) fn hand_out(&self, size: u64) -> CuResult {
        let mut levels = lock(&self.levels);
        let needed = self.reserve_in(&mut levels, size)?;
        levels.used = needed;
        levels.used_high = levels.used_high.max(needed);
        Ok(())
    }

    /// Hands out a segment: one that was freed, or a new one. The pool uses it as long as it has it, and so does the
    /// allocation.
    fn hand_out_segment(
        &self,
        handle: Handle,
        free: &Mutex<Vec<Segment>>,
        size: u64,
        owner: Owner,
    ) -> CuResult<u64> {
        let mut levels = lock(&self.levels);
        let mut free = lock(free);
        let fitting = free.iter().enumerate().filter(|(_, segment)| segment.bytes >= size);
        let place = fitting.min_by_key(|(_, segment)| segment.bytes).map(|(place, _)| place);
        let segment = if let Some(place) = place {
            free.swap_remove(place)
        } else {
            let bytes = size.checked_next_multiple_of(LEAST_STEP).ok_or(CuError::OUT_OF_MEMORY)?;
            if self.max_size != 0 && levels.reserved.saturating_add(bytes) > self.max_size.max(LEAST_STEP) {
                return Err(CuError::OUT_OF_MEMORY);
            }
            let segment = segments::create(self.card, bytes, SegmentCharge::Card)?;
            levels.reserved += bytes;
            levels.reserved_high = levels.reserved_high.max(levels.reserved);
            segment
        };
        let opened = segments::open(segment.index, segment.serial)?
            .ok_or(CuError::UNKNOWN)
            .and_then(|again| space::sharing::open(again, size, AllocationKind::Pooled(handle), owner));
        if opened.is_err() {
            free.push(segment);
        } else {
            levels.used += round_up(size);
            levels.used_high = levels.used_high.max(levels.used);
        }
        opened
    }

    /// What `CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES` says.
    pub(crate) const fn handle_types(&self) -> CUmemAllocationHandleType {
        match self.sharing {
            PoolSharing::Exportable(..) => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            PoolSharing::Private | PoolSharing::Imported(_) => CU_MEM_HANDLE_TYPE_NONE,
        }
    }

    /// Takes at least `missing` bytes from the card and says how many.
    fn grow(&self, reserved: u64, missing: u64) -> CuResult<u64> {
        let process = initialised()?.process()?;
        let mut refusal = CuError::OUT_OF_MEMORY;
        for step in [STEP, LEAST_STEP] {
            let more = missing.checked_next_multiple_of(step).ok_or(CuError::OUT_OF_MEMORY)?;
            if self.max_size != 0 && reserved.saturating_add(more) > self.max_size.max(LEAST_STEP) {
                continue;
            }
            match process.take_memory(self.card, more) {
                Ok(()) => return Ok(more),
                Err(error) => refusal = error.into(),
            }
        }
        Err(refusal)
    }

    fn take_back(&self, size: u64) {
        let mut levels = lock(&self.levels);
        levels.used = levels.used.saturating_sub(round_up(size));
    }

    fn remove_if_over(&self, handle: Handle) {
        if self.destroyed.load(Relaxed) && self.levels().used == 0 {
            self.trim_to(0);
            let _ = POOLS.remove(handle);
        }
    }
}
