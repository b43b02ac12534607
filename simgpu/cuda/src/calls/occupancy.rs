//! The driver's calls that say how many blocks of a kernel a card holds at a time.

use gpupool_nvidia::cuda::{CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, CUlaunchConfig};

use crate::{
    calls::{
        entry::{entry, put, read},
        launch::shape_of,
    },
    device::attributes::attribute,
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        context::current,
        launch::{RESERVED_SHARED, blocks_per_multiprocessor},
        module::function,
    },
};

/// Writes how many blocks a multiprocessor holds at a time.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn occupancy(out: *mut i32, handle: Handle, threads: i32, dynamic: usize) -> CuResult {
    let function = function(handle)?;
    let threads = u32::try_from(threads).ok().filter(|&threads| threads > 0).ok_or(CuError::INVALID_VALUE)?;
    let blocks = blocks_per_multiprocessor(current()?.card, &function, threads, dynamic);
    // SAFETY: by this function's contract.
    unsafe { put(out, i32::try_from(blocks).unwrap_or(i32::MAX)) }
}

/// `CUoccupancyB2DSize`: dynamic shared memory for a block of so many threads.
type SharedForBlock = unsafe extern "C" fn(i32) -> usize;

/// The block size with the most resident threads, and the smallest grid that fills the card with it.
///
/// # Safety
/// `grid` and `block` are each null or valid for a write; `shared` may be called with any number of threads
/// of a block.
unsafe fn best_block(
    grid: *mut i32,
    block: *mut i32,
    handle: Handle,
    shared: Option<SharedForBlock>,
    dynamic: usize,
    limit: i32,
) -> CuResult {
    let function = function(handle)?;
    let card = current()?.card;
    let most = function.kernel().max_threads;
    let most = u32::try_from(limit).ok().filter(|&limit| limit > 0).map_or(most, |limit| limit.min(most));
    let (mut best, mut best_resident) = ((0, 0), 0);
    for threads in (1..=most.div_ceil(32)).rev().map(|warps| (warps * 32).min(most)) {
        // SAFETY: the program gave the function for such questions.
        let dynamic =
            shared.map_or(dynamic, |shared| unsafe { shared(i32::try_from(threads).unwrap_or_default()) });
        let blocks = blocks_per_multiprocessor(card, &function, threads, dynamic);
        if blocks * threads > best_resident {
            (best, best_resident) = ((threads, blocks), blocks * threads);
        }
    }
    let (threads, blocks) = best;
    // SAFETY: by this function's contract.
    unsafe {
        put(grid, i32::try_from(blocks * card.model().multiprocessors).unwrap_or(i32::MAX))?;
        put(block, i32::try_from(threads).unwrap_or(i32::MAX))
    }
}

entry! {
    cuOccupancyMaxActiveClusters(out: *mut i32, handle: Handle, config: *const CUlaunchConfig) {
        let (function, config, card) = (function(handle)?, read(config)?, current()?.card);
        let shape = shape_of(&config);
        put(out, i32::try_from(shape.resident(card, &function)).unwrap_or(i32::MAX))
    }
    cuOccupancyMaxPotentialClusterSize(out: *mut i32, handle: Handle, config: *const CUlaunchConfig) {
        function(handle)?;
        read(config)?;
        put(out, if attribute(current()?.card, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 1 { 8 } else { 1 })
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut i32, handle: Handle, threads: i32, dynamic: usize) {
        occupancy(out, handle, threads, dynamic)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut i32,
        handle: Handle,
        threads: i32,
        dynamic: usize,
        _flags: u32,
    ) {
        occupancy(out, handle, threads, dynamic)
    }
    cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32,
        block: *mut i32,
        handle: Handle,
        shared: Option<SharedForBlock>,
        dynamic: usize,
        limit: i32,
    ) {
        best_block(grid, block, handle, shared, dynamic, limit)
    }
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32,
        block: *mut i32,
        handle: Handle,
        shared: Option<SharedForBlock>,
        dynamic: usize,
        limit: i32,
        _flags: u32,
    ) {
        best_block(grid, block, handle, shared, dynamic, limit)
    }
    cuOccupancyAvailableDynamicSMemPerBlock(out: *mut usize, handle: Handle, blocks: i32, _threads: i32) {
        let function = function(handle)?;
        let blocks = usize::try_from(blocks).ok().filter(|&blocks| blocks > 0).ok_or(CuError::INVALID_VALUE)?;
        let each = current()?.card.model().shared_per_multiprocessor as usize / blocks;
        put(out, each.saturating_sub(function.kernel().shared as usize + RESERVED_SHARED))
    }
}
