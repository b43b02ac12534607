//! Memory that graphs take: addresses belong to the node, the memory behind them comes from the device's graph pool
//! while the allocation lives.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use crate::{
    error::{CuError, CuResult},
    memory::{
        pool,
        space::{self, Allocation, AllocationKind, Owner},
    },
    sync::lock,
};

/// Addresses of an allocation node; they go with the last graph that has the node.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) device: i32,
}

/// What is allocated now, by address.
static LIVE: Mutex<BTreeMap<u64, Arc<GraphMemory>>> = Mutex::new(BTreeMap::new());

impl GraphMemory {
    /// Addresses for `size` bytes on a device.
    pub(crate) fn new(size: u64, device: i32) -> CuResult<Arc<Self>> {
        if size == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        pool::graph_pool_of(device)?;
        Ok(Arc::new(Self { base: space::hold(size)?, size, device }))
    }

    pub(crate) fn is_live(&self) -> bool {
        lock(&LIVE).contains_key(&self.base)
    }

    /// Begins the allocation.
    pub(crate) fn begin(self: &Arc<Self>, owner: Owner) -> CuResult {
        let handle = pool::graph_pool_of(self.device)?;
        let pool = pool::pool(handle)?;
        pool.hand_out(self.size)?;
        let owner = pool.owner(owner);
        space::enter_held(self.base, self.size, AllocationKind::Graph(handle), owner);
        lock(&LIVE).insert(self.base, Arc::clone(self));
        Ok(())
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        space::give_up(self.base, self.size);
    }
}

/// Ends the allocation at `base`. Fails where there is none.
pub(crate) fn end(base: u64) -> CuResult {
    let freed = space::release(base, |found| {
        matches!(found.kind, AllocationKind::Graph(_) | AllocationKind::Pooled(_))
    });
    note_freed(&freed.ok_or(CuError::INVALID_VALUE)?);
    Ok(())
}

/// Notes that an allocation was freed, if it was a graph's or a pool's: the pool takes its memory back.
pub(crate) fn note_freed(allocation: &Allocation) {
    if let AllocationKind::Graph(_) = allocation.kind {
        let ended = lock(&LIVE).remove(&allocation.base);
        drop(ended);
    }
    pool::take_back(allocation);
}

/// Whether a node may free what is at `base`: memory of a graph, or of a pool.
pub(crate) fn can_be_freed(base: u64) -> bool {
    space::find(base).is_some_and(|found| {
        found.base == base && matches!(found.kind, AllocationKind::Graph(_) | AllocationKind::Pooled(_))
    })
}
