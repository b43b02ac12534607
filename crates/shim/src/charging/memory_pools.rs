//! What memory pools and graphs are charged: by what the driver reserves for them, read again whenever it may have
//! changed.

use core::ffi::c_int;

use gpupool_nvidia::cuda::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CUDA_SUCCESS,
    CUgraphMem_attribute, CUmemPool_attribute,
};
use gpupool_wire::ledger::Reservation;

use crate::real::call;
use crate::state::account::Account;
use crate::state::memory_pools::MemoryPool;
use crate::state::pointers::Allocation;
use crate::state::{self, PROCESS};
use crate::table::Entry;

/// Stands for the handle of what the driver reserves for graphs, which is not a pool that has one.
const GRAPHS: usize = usize::MAX;
/// Pools grow by multiples of this many bytes, as far as is known; what a driver takes beyond is given back.
const STEP: u64 = 32 << 20;
/// What a pool is asked: how much memory the driver holds for it, or how much of that is in use.
#[derive(Clone, Copy)]
enum Level {
    Reserved,
    Used,
}

/// What the driver says of a pool, or of what it holds for the graphs of this process, in bytes.
fn level(handle: usize, asked: Level) -> Option<u64> {
    let (of_pool, of_graphs) = match asked {
        Level::Reserved => (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT),
        Level::Used => (CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT),
    };
    let mut bytes: u64 = 0;
    let place = &raw mut bytes;
    // SAFETY: a place for the answer, of 64 bits for these attributes; device 0 is the only one.
    let code = unsafe {
        if handle == GRAPHS {
            call!(Entry::cuDeviceGetGraphMemAttribute, 0 => c_int,
                of_graphs => CUgraphMem_attribute, place => *mut u64)
        } else {
            call!(Entry::cuMemPoolGetAttribute, handle => usize, of_pool => CUmemPool_attribute,
                place => *mut u64)
        }
    };
    (code == CUDA_SUCCESS).then_some(bytes)
}

/// Announces what a pool may grow by for `bytes`, or nothing where it has that much unused.
pub(crate) fn reserve_growth(account: &Account, handle: usize, bytes: u64) -> Option<Reservation<'static>> {
    let growth = bytes.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
    reserve(account, growth).or_else(|| {
        let unused = level(handle, Level::Reserved)?.saturating_sub(level(handle, Level::Used)?);
        if unused >= bytes { reserve(account, 0) } else { None }
    })
}

/// Announces what graphs may grow by for `bytes`.
pub(crate) fn reserve_for_graphs(account: &Account, bytes: u64) -> Option<Reservation<'static>> {
    reserve_growth(account, GRAPHS, bytes)
}

/// Charges the graphs what the driver holds for them now; what of it was neither charged nor `announced`.
pub(crate) fn settle_graphs(account: &Account, announced: u64) -> u64 {
    let place = PROCESS.memory_pools.place(GRAPHS, None);
    let mut list = PROCESS.memory_pools.list.lock();
    place.and_then(|place| list.get_mut(place)).map_or(0, |pool| settle(account, pool, announced))
}

/// Charges each pool what it holds now.
#[inline(never)]
pub(crate) fn settle_all() {
    if !PROCESS.memory_pools.any() {
        return;
    }
    let Some(account) = state::account() else { return };
    let mut list = PROCESS.memory_pools.list.lock();
    for pool in list.iter_mut().filter(|pool| pool.handle != 0 && !pool.on_host) {
        settle(&account, pool, 0);
    }
}

/// Charges a pool what it holds now; how many bytes it has grown by beyond `announced`, which are not charged yet.
#[inline(never)]
pub(crate) fn settle(account: &Account, pool: &mut MemoryPool, announced: u64) -> u64 {
    // A pool that the driver does not know any more holds nothing.
    let now = level(pool.handle, Level::Reserved).unwrap_or(0);
    let over = now.saturating_sub(pool.charged).saturating_sub(announced);
    if now >= pool.charged {
        account.charge_anyway(now - pool.charged);
    } else {
        account.release(pool.charged - now);
    }
    pool.charged = now;
    over
}

/// Announces `bytes`. Before it gives up it looks whether pools have shrunk meanwhile.
#[inline(never)]
pub(crate) fn reserve(account: &Account, bytes: u64) -> Option<Reservation<'static>> {
    if let Ok(reservation) = account.reserve(bytes) {
        return Some(reservation);
    }
    if bytes > account.limit() || !PROCESS.memory_pools.any() {
        return None;
    }
    settle_all();
    account.reserve(bytes).ok()
}

/// A piece was freed. Whether it belonged to a pool that lives, whose charge is then what the driver holds.
pub(crate) fn freed(piece: &Allocation) -> bool {
    let Some(place) = piece.owner.as_pool() else { return false };
    let Some(account) = state::account() else { return true };
    let mut list = PROCESS.memory_pools.list.lock();
    match list.get_mut(place) {
        Some(pool) if pool.handle != 0 => {
            settle(&account, pool, 0);
            true
        }
        // The pool is gone, and this was charged by itself since.
        _ => false,
    }
}
