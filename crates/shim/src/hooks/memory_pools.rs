//! Memory pools: charged by what the driver reserves for them, not by what was asked of them.
//!
//! A pool grows in steps of its own. So an allocation announces its size rounded up, lets the driver work, and reads
//! what the pool then holds; a growth that does not fit is undone. Frees, trims and waits may shrink a pool, so what
//! it holds is read again after each.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

use gpupool_nvidia::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUmemLocation, CUmemPoolProps, CUresult};

use super::graphs;
use crate::charging::allocations::failed;
use crate::charging::memory_pools::{reserve_growth, settle, settle_all};
use crate::charging::physical_memory::is_on_device;
use crate::lease;
use crate::real::arguments::Arguments;
use crate::real::call;
use crate::state::PROCESS;
use crate::state::account::{Account, Charge, rounded};
use crate::state::memory_pools::MemoryPool;
use crate::state::tables::keys::Address;
use crate::state::tables::values::{Allocation, Owner};
use crate::table::Entry;

/// A handle of the driver.
type Handle = *mut c_void;

/// An allocation from a pool under way.
#[derive(Debug)]
struct PoolCharge {
    charge: Charge,
    place: usize,
    bytes: u64,
}

/// Announces an allocation from a pool (the device's current one if that is null); nothing where it need not be
/// charged, a code where it cannot be made.
#[inline(never)]
fn begin(account: Account, pool: Handle, bytes: u64) -> Result<Option<PoolCharge>, CUresult> {
    lease::look_after_connection();
    let pool = if pool.is_null() { current() } else { Some(pool) };
    let Some(pool) = pool else { return Ok(None) };
    let Some(place) = PROCESS
        .memory_pools
        .place(pool.expose_provenance(), None)
        .filter(|&place| !PROCESS.memory_pools.is_on_host(place))
    else {
        return Ok(None);
    };
    let reservation = reserve_growth(&account, pool.expose_provenance(), bytes);
    let charge = Charge { account, reservation: reservation.ok_or(CUDA_ERROR_OUT_OF_MEMORY)? };
    Ok(Some(PoolCharge { charge, place, bytes: rounded(bytes) }))
}

/// Charges the pool what it holds now, if the driver succeeded (`code`), and `undo`es it where that is too much.
#[inline(never)]
fn finish(charge: PoolCharge, address: u64, undo: &mut dyn FnMut()) -> CUresult {
    let PoolCharge { charge: Charge { account, reservation }, place, bytes } = charge;
    let (handle, before, over) = {
        let mut list = PROCESS.memory_pools.list.lock();
        list.get_mut(place).map_or((0, 0, 0), |pool| {
            (pool.handle, pool.charged, settle(&account, pool, reservation.bytes()))
        })
    };
    reservation.cancel();
    let piece = Allocation { bytes, owner: Owner::pool(place) };
    let at = PROCESS.tables.allocations.entry(Address(address));
    if (over != 0 && account.over_limit()) || at.insert(piece).is_err() {
        at.remove();
        undo();
        let keep = usize::try_from(before).unwrap_or(usize::MAX);
        // SAFETY: a pool that the driver has just used. What it grew by goes back.
        unsafe { call!(Entry::cuMemPoolTrimTo, handle => usize, keep => usize) };
        settle_all();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUDA_SUCCESS
}

/// The device's current pool.
fn current() -> Option<Handle> {
    let mut pool: Handle = core::ptr::null_mut();
    // SAFETY: a place for the answer; device 0 is the only one.
    let code = unsafe { call!(Entry::cuDeviceGetMemPool, &raw mut pool => *mut Handle, 0 => c_int) };
    (code == CUDA_SUCCESS && !pool.is_null()).then_some(pool)
}

/// `cuMemAllocAsync(address, bytes, stream)`, `cuMemAllocFromPoolAsync(address, bytes, pool, stream)`, and both with the
/// thread's own default stream.
///
/// # Safety
/// `arguments` are those of a call of the row's function, whose first is null or points to a `CUdeviceptr`, 8 bytes,
/// that may be written; the pool and the stream are handles of the driver's.
pub(crate) unsafe fn alloc(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let (asks, frees, from_pool) = match entry {
        Entry::cuMemAllocAsync => (Entry::cuStreamIsCapturing, Entry::cuMemFreeAsync, false),
        Entry::cuMemAllocFromPoolAsync => (Entry::cuStreamIsCapturing, Entry::cuMemFreeAsync, true),
        _ => {
            let from_pool = entry == Entry::cuMemAllocFromPoolAsync_ptsz;
            (Entry::cuStreamIsCapturing_ptsz, Entry::cuMemFreeAsync_ptsz, from_pool)
        }
    };
    let stream: Handle = arguments.pointer(if from_pool { 3 } else { 2 });
    let mut recorded: c_int = 0;
    // SAFETY: the caller's arguments; what is freed was allocated on that stream and told to nobody.
    unsafe {
        if call!(asks, stream => Handle, &raw mut recorded => *mut c_int) == CUDA_SUCCESS && recorded != 0 {
            // Nothing is taken: a node of a graph is made.
            graphs::allocate();
            return arguments.call(entry);
        }
        let pool = if from_pool { arguments.pointer(2) } else { core::ptr::null_mut() };
        let charge = match begin(*account, pool, arguments.word(1) as u64) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        match charge {
            Some(charge) if code != CUDA_SUCCESS => failed(charge.charge, code),
            Some(charge) => {
                let got = arguments.written(0);
                finish(charge, got, &mut || {
                    call!(frees, got => u64, stream => Handle);
                })
            }
            None => code,
        }
    }
}

/// Calls the real function, after which pools may be smaller: `cuMemPoolTrimTo`, `cuDeviceGraphMemTrim`, and what waits
/// for work.
///
/// # Safety
/// `arguments` are those of a call of the row's function, which are not looked at here: its pointers are null or the
/// program's, as NVIDIA documents them.
pub(crate) unsafe fn settling(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    settle_all();
    code
}

/// `cuMemPoolDestroy`: what is still allocated lives on and is charged by itself from now on.
///
/// # Safety
/// `arguments` are those of a call of the row's function: a `CUmemoryPool`, which is not followed here.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    settle_all();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != CUDA_SUCCESS {
        return code;
    }
    {
        let mut list = PROCESS.memory_pools.list.lock();
        let handle = arguments.word(0);
        if let Some(place) = list.iter().position(|known| known.handle == handle)
            && let Some(known) = list.get_mut(place)
        {
            let live = PROCESS.tables.allocations.owned_by(Owner::pool(place));
            account.release(known.charged.saturating_sub(live));
            *known = MemoryPool::FREE;
            PROCESS.memory_pools.used.fetch_sub(1, Ordering::Release);
        }
    }
    lease::release_if_idle();
    code
}

/// `cuMemPoolCreate(pool, properties)`, `cuMemGetDefaultMemPool(pool, location, …)`, `cuMemGetMemPool(pool, location, …)`:
/// remembers where the memory of the pool lies that the driver names.
///
/// # Safety
/// `arguments` are those of a call of the row's function, the first of which is null or points to a `CUmemoryPool`, 8
/// bytes, that may be written; the second is null or points to a `CUmemPoolProps`, 88 bytes (of `cuMemPoolCreate`), or
/// a `CUmemLocation`, 8 bytes.
pub(crate) unsafe fn named(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    // SAFETY: the caller's arguments; the driver has just read the one and written the other.
    unsafe {
        let code = arguments.call(entry);
        if code == CUDA_SUCCESS {
            let location = if entry == Entry::cuMemPoolCreate {
                arguments
                    .pointer::<CUmemPoolProps>(1)
                    .wrapping_byte_add(offset_of!(CUmemPoolProps, location))
                    .cast()
            } else {
                arguments.pointer::<CUmemLocation>(1)
            };
            let pool = arguments.pointer::<usize>(0).read_unaligned();
            PROCESS.memory_pools.place(pool, Some(!is_on_device(location.read_unaligned())));
        }
        code
    }
}
