//! Memory pools: charged by what the driver reserves for them, not by what was asked of them.
//!
//! A pool grows in steps of its own. So an allocation announces its size rounded up, lets the driver work, and reads
//! what the pool then holds; a growth that does not fit is undone. Frees, trims and waits may shrink a pool, so what
//! it holds is read again after each.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use gpupool_wire::ledger::Reservation;

use crate::account::{Account, Charge, rounded};
use crate::arguments::Arguments;
use crate::code::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::graphs;
use crate::lock::Lock;
use crate::memory::failed;
use crate::pointers::{Owner, Piece};
use crate::process::{self, PROCESS};
use crate::real::call;
use crate::table::Entry;

/// A handle of the driver.
type Handle = *mut c_void;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT` and `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`, 64-bit numbers.
const RESERVED: [c_int; 2] = [5, 2];
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT` and `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`.
const USED: [c_int; 2] = [7, 0];
/// Stands for the handle of what the driver reserves for graphs, which is not a pool that has one.
const GRAPHS: usize = usize::MAX;
/// `CU_MEM_LOCATION_TYPE_DEVICE`, and `…_DEVICE_LOCALITY_DOMAIN` for a part of it.
pub(crate) const ON_DEVICE: [c_int; 2] = [1, 6];
/// Pools grow by multiples of this many bytes, as far as is known; what a driver takes beyond is given back.
const STEP: u64 = 32 << 20;
/// Most pools that are counted; memory of pools beyond is charged by what was asked for.
const MOST: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Pool {
    /// 0 for a free place.
    handle: usize,
    /// Bytes charged for it.
    charged: u64,
    /// Its memory is the host's, which is not charged.
    on_host: bool,
}

/// The pools of this process.
#[derive(Debug)]
pub(crate) struct Pools {
    /// Places in use; 0 keeps every other call from looking.
    used: AtomicU32,
    list: Lock<[Pool; MOST]>,
}

impl Pools {
    pub(crate) const fn new() -> Self {
        let free = Pool { handle: 0, charged: 0, on_host: false };
        Self { used: AtomicU32::new(0), list: Lock::new([free; MOST]) }
    }

    /// The place of a pool, a new one if it was not known.
    fn place(&self, handle: Handle, on_host: Option<bool>) -> Option<usize> {
        let handle = handle.expose_provenance();
        let mut list = self.list.lock();
        let known = list.iter().position(|pool| pool.handle == handle);
        let place = known.or_else(|| list.iter().position(|pool| pool.handle == 0))?;
        let pool = list.get_mut(place)?;
        if known.is_none() {
            *pool = Pool { handle, charged: 0, on_host: false };
            self.used.fetch_add(1, Ordering::Release);
        }
        pool.on_host = on_host.unwrap_or(pool.on_host);
        Some(place)
    }

    fn is_on_host(&self, place: usize) -> bool {
        self.list.lock().get(place).is_some_and(|pool| pool.on_host)
    }

    fn any(&self) -> bool {
        self.used.load(Ordering::Acquire) != 0
    }
}

/// What the driver says of a pool, or of what it holds for the graphs of this process.
fn level(handle: usize, [of_pool, of_graphs]: [c_int; 2]) -> Option<u64> {
    let mut bytes: u64 = 0;
    let place = &raw mut bytes;
    // SAFETY: a place for the answer; device 0 is the only one.
    let code = unsafe {
        if handle == GRAPHS {
            call!(Entry::cuDeviceGetGraphMemAttribute, 0 => c_int, of_graphs => c_int, place => *mut u64)
        } else {
            call!(Entry::cuMemPoolGetAttribute, handle => usize, of_pool => c_int, place => *mut u64)
        }
    };
    (code == SUCCESS).then_some(bytes)
}

/// Announces what a pool may grow by for `bytes`, or nothing where it has that much unused.
fn reserve_growth(account: &Account, handle: usize, bytes: u64) -> Option<Reservation<'static>> {
    let growth = bytes.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
    reserve(account, growth).or_else(|| {
        let unused = level(handle, RESERVED)?.saturating_sub(level(handle, USED)?);
        if unused >= bytes { reserve(account, 0) } else { None }
    })
}

/// Announces what graphs may grow by for `bytes`.
pub(crate) fn reserve_for_graphs(account: &Account, bytes: u64) -> Option<Reservation<'static>> {
    reserve_growth(account, GRAPHS, bytes)
}

/// Charges the graphs what the driver holds for them now; what of it was neither charged nor `announced`.
pub(crate) fn settle_graphs(account: &Account, announced: u64) -> u64 {
    let place = PROCESS.pools.place(core::ptr::with_exposed_provenance_mut(GRAPHS), None);
    let mut list = PROCESS.pools.list.lock();
    place.and_then(|place| list.get_mut(place)).map_or(0, |pool| settle(account, pool, announced))
}

/// Charges each pool what it holds now.
#[inline(never)]
pub(crate) fn settle_all() {
    if !PROCESS.pools.any() {
        return;
    }
    let Some(account) = process::account() else { return };
    let mut list = PROCESS.pools.list.lock();
    for pool in list.iter_mut().filter(|pool| pool.handle != 0 && !pool.on_host) {
        settle(&account, pool, 0);
    }
}

/// Charges a pool what it holds now; how many bytes it has grown by beyond `announced`, which are not charged yet.
#[inline(never)]
fn settle(account: &Account, pool: &mut Pool, announced: u64) -> u64 {
    // A pool that the driver does not know any more holds nothing.
    let now = level(pool.handle, RESERVED).unwrap_or(0);
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
    if bytes > account.limit() || !PROCESS.pools.any() {
        return None;
    }
    settle_all();
    account.reserve(bytes).ok()
}

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
fn begin(account: Account, pool: Handle, bytes: u64) -> Result<Option<PoolCharge>, CuResult> {
    process::look_after_connection();
    let pool = if pool.is_null() { current() } else { Some(pool) };
    let Some(pool) = pool else { return Ok(None) };
    let Some(place) = PROCESS.pools.place(pool, None).filter(|&place| !PROCESS.pools.is_on_host(place))
    else {
        return Ok(None);
    };
    let reservation = reserve_growth(&account, pool.expose_provenance(), bytes);
    let charge = Charge { account, reservation: reservation.ok_or(OUT_OF_MEMORY)? };
    Ok(Some(PoolCharge { charge, place, bytes: rounded(bytes) }))
}

/// Charges the pool what it holds now, if the driver succeeded (`code`), and `undo`es it where that is too much.
#[inline(never)]
fn finish(charge: PoolCharge, address: u64, undo: &mut dyn FnMut()) -> CuResult {
    let PoolCharge { charge: Charge { account, reservation }, place, bytes } = charge;
    let (handle, before, over) = {
        let mut list = PROCESS.pools.list.lock();
        list.get_mut(place).map_or((0, 0, 0), |pool| {
            (pool.handle, pool.charged, settle(&account, pool, reservation.bytes()))
        })
    };
    reservation.cancel();
    let piece = Piece { bytes, owner: Owner::pool(place) };
    if (over != 0 && account.over_limit()) || PROCESS.pointers.insert(address, piece).is_err() {
        PROCESS.pointers.remove(address);
        undo();
        let keep = usize::try_from(before).unwrap_or(usize::MAX);
        // SAFETY: a pool that the driver has just used. What it grew by goes back.
        unsafe { call!(Entry::cuMemPoolTrimTo, handle => usize, keep => usize) };
        settle_all();
        return OUT_OF_MEMORY;
    }
    SUCCESS
}

/// The device's current pool.
fn current() -> Option<Handle> {
    let mut pool: Handle = core::ptr::null_mut();
    // SAFETY: a place for the answer; device 0 is the only one.
    let code = unsafe { call!(Entry::cuDeviceGetMemPool, &raw mut pool => *mut Handle, 0 => c_int) };
    (code == SUCCESS && !pool.is_null()).then_some(pool)
}

/// A piece was freed. Whether it belonged to a pool that lives, whose charge is then what the driver holds.
pub(crate) fn freed(piece: &Piece) -> bool {
    let Some(place) = piece.owner.as_pool() else { return false };
    let Some(account) = process::account() else { return true };
    let mut list = PROCESS.pools.list.lock();
    match list.get_mut(place) {
        Some(pool) if pool.handle != 0 => {
            settle(&account, pool, 0);
            true
        }
        // The pool is gone, and this was charged by itself since.
        _ => false,
    }
}

/// `cuMemAllocAsync(address, bytes, stream)`, `cuMemAllocFromPoolAsync(address, bytes, pool, stream)`, and both with the
/// thread's own default stream.
///
/// # Safety
/// As the driver's, like every function below.
pub(crate) unsafe fn alloc(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
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
        if call!(asks, stream => Handle, &raw mut recorded => *mut c_int) == SUCCESS && recorded != 0 {
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
            Some(charge) if code != SUCCESS => failed(charge.charge, code),
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
pub(crate) unsafe fn settling(entry: Entry, arguments: &Arguments) -> CuResult {
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    settle_all();
    code
}

/// `cuMemPoolDestroy`: what is still allocated lives on and is charged by itself from now on.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    settle_all();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if code != SUCCESS {
        return code;
    }
    {
        let mut list = PROCESS.pools.list.lock();
        let handle = arguments.word(0);
        if let Some(place) = list.iter().position(|known| known.handle == handle)
            && let Some(known) = list.get_mut(place)
        {
            let live = PROCESS.pointers.owned_by(Owner::pool(place));
            account.release(known.charged.saturating_sub(live));
            *known = Pool { handle: 0, charged: 0, on_host: false };
            PROCESS.pools.used.fetch_sub(1, Ordering::Release);
        }
    }
    process::release_if_idle();
    code
}

/// `cuMemPoolCreate(pool, properties)`, `cuMemGetDefaultMemPool(pool, location, …)`, `cuMemGetMemPool(pool, location, …)`:
/// remembers where the memory of the pool lies that the driver names.
pub(crate) unsafe fn named(entry: Entry, arguments: &Arguments) -> CuResult {
    // Of the properties the third word is the kind of their location, of a location the first.
    let word = if entry == Entry::cuMemPoolCreate { 2 } else { 0 };
    // SAFETY: the caller's arguments; the driver has just read the one and written the other.
    unsafe {
        let code = arguments.call(entry);
        if code == SUCCESS {
            let kind = arguments.pointer::<c_int>(1).add(word).read_unaligned();
            let pool = arguments.pointer::<Handle>(0).read_unaligned();
            PROCESS.pools.place(pool, Some(!ON_DEVICE.contains(&kind)));
        }
        code
    }
}
