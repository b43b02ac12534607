//! Plain, pitched and managed device memory, and what programs are told about memory.
//!
//! Over the limit is the driver's own out-of-memory error, and the driver is not called. Memory that is not known
//! here (taken before, by somebody else, in a way that is not charged) is freed by the driver like any other.

use core::ffi::c_uint;

use crate::account::{Account, Charge, rounded};
use crate::arguments::Arguments;
use crate::code::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::contexts::current_owner;
use crate::ipc;
use crate::pointers::Piece;
use crate::pools;
use crate::process::{self, Mode, PROCESS, Way};
use crate::real::call;
use crate::stop;
use crate::table::Entry;

/// An address on the card.
type Address = u64;

/// Announces an allocation; nothing where it need not be charged, a code where it cannot be made.
#[inline(never)]
pub(crate) fn begin(bytes: u64) -> Result<Option<Charge>, CuResult> {
    let account = match process::lease() {
        Way::Plain => return Ok(None),
        Way::Barred(code) => return Err(code),
        Way::Leased(account) => account,
    };
    process::look_after_connection();
    let reservation = pools::reserve(&account, rounded(bytes)).ok_or(OUT_OF_MEMORY)?;
    Ok(Some(Charge { account, reservation }))
}

/// Charges what the driver has taken (`bytes` at `address`), if it succeeded (`code`).
#[inline(never)]
pub(crate) fn finish(
    charge: Option<Charge>,
    code: CuResult,
    address: Address,
    bytes: u64,
    undo: fn(Address),
) -> CuResult {
    let Some(charge) = charge else { return code };
    stop::at(b"called");
    if code != SUCCESS {
        return failed(charge, code);
    }
    let Charge { account, reservation } = charge;
    let taken = rounded(bytes);
    let announced = reservation.bytes();
    if taken > announced {
        // The driver took more than could be told before. What is over must fit too, or all of it goes back.
        let Some(rest) = pools::reserve(&account, taken - announced) else {
            undo(address);
            reservation.cancel();
            return OUT_OF_MEMORY;
        };
        rest.commit(taken - announced);
        reservation.commit(announced);
    } else {
        reservation.commit(taken);
    }
    stop::at(b"committed");
    remember(&account, address, Piece { bytes: taken, owner: current_owner(&account) }, undo)
}

/// The driver took nothing and answered `code`.
pub(crate) fn failed(charge: Charge, code: CuResult) -> CuResult {
    charge.reservation.cancel();
    // Without a context nothing was to be had, and a lease that was taken for it is of no use.
    if charge.account.slot().contexts() == 0 {
        process::release_if_idle();
    }
    code
}

/// Remembers a piece, so that its end is noticed.
fn remember(account: &Account, address: Address, piece: Piece, undo: fn(Address)) -> CuResult {
    let Ok(before) = PROCESS.pointers.insert(address, piece) else {
        undo(address);
        account.release(piece.bytes);
        return OUT_OF_MEMORY;
    };
    if let Some(before) = before {
        // What lay here died with its context, unnoticed.
        account.release(before.bytes);
    }
    SUCCESS
}

fn give_back(address: Address) {
    // SAFETY: allocated a moment ago, and told to nobody.
    unsafe { call!(Entry::cuMemFree_v2, address => Address) };
}

fn give_back_v1(address: Address) {
    let address = u32::try_from(address).unwrap_or(0);
    // SAFETY: allocated a moment ago, and told to nobody.
    unsafe { call!(Entry::cuMemFree, address => u32) };
}

/// What the driver wrote, once it has succeeded.
unsafe fn written<T: Copy + Default>(place: *const T, code: CuResult) -> T {
    if code != SUCCESS || place.is_null() {
        return T::default();
    }
    // SAFETY: the driver has just written it.
    unsafe { *place }
}

/// Begins an allocation, or answers at once.
macro_rules! begin {
    ($bytes:expr) => {
        match begin($bytes) {
            Ok(charge) => charge,
            Err(code) => return code,
        }
    };
}

/// `cuMemAlloc`.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe extern "C" fn alloc(address: *mut Address, bytes: usize) -> CuResult {
    let charge = begin!(bytes as u64);
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuMemAlloc_v2, address => *mut Address, bytes => usize);
        finish(charge, code, written(address, code), bytes as u64, give_back)
    }
}

/// The form of CUDA 3.1 and before, with 32 bits.
pub(crate) unsafe extern "C" fn alloc_v1(address: *mut u32, bytes: c_uint) -> CuResult {
    let charge = begin!(u64::from(bytes));
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuMemAlloc, address => *mut u32, bytes => c_uint);
        finish(charge, code, u64::from(written(address, code)), u64::from(bytes), give_back_v1)
    }
}

/// `cuMemAllocManaged(address, bytes, flags)`: charged whole, wherever its pages happen to be.
pub(crate) unsafe fn alloc_managed(entry: Entry, arguments: &Arguments) -> CuResult {
    let bytes = arguments.word(1) as u64;
    let charge = begin!(bytes);
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        finish(charge, code, written(arguments.pointer(0), code), bytes, give_back)
    }
}

/// `cuMemAllocPitch(address, pitch, width, height, element)`: rows as wide as the driver likes them, which it tells
/// afterwards.
pub(crate) unsafe fn alloc_pitch(entry: Entry, arguments: &Arguments) -> CuResult {
    let rows = arguments.word(3) as u64;
    let charge = begin!(rounded(arguments.word(2) as u64).saturating_mul(rows));
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        let taken = written(arguments.pointer::<u64>(1), code).saturating_mul(rows);
        finish(charge, code, written(arguments.pointer(0), code), taken, give_back)
    }
}

/// The form of CUDA 3.1 and before, with 32 bits.
pub(crate) unsafe extern "C" fn alloc_pitch_v1(
    address: *mut u32,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> CuResult {
    let charge = begin!(rounded(u64::from(width)).saturating_mul(u64::from(height)));
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuMemAllocPitch, address => *mut u32, pitch => *mut c_uint,
            width => c_uint, height => c_uint, element => c_uint);
        let taken = u64::from(written(pitch, code)).saturating_mul(u64::from(height));
        finish(charge, code, u64::from(written(address, code)), taken, give_back_v1)
    }
}

/// After a free: the piece, which was forgotten before (once the driver has freed it, another thread may get the same
/// address), is given back, or remembered again where the driver refused.
#[inline(never)]
pub(crate) fn ended(address: Address, piece: Option<Piece>, code: CuResult) -> CuResult {
    stop::at(b"called");
    let Some(piece) = piece else {
        pools::settle_all();
        return code;
    };
    if code != SUCCESS {
        // The entry that it had is free, so this finds room.
        let _ = PROCESS.pointers.insert(address, piece);
        return code;
    }
    if let Some(account) = process::account() {
        if piece.bytes == 0 {
            ipc::freed(&account, address);
        } else if !pools::freed(&piece) {
            account.release(piece.bytes);
        }
        if account.slot().contexts() == 0 {
            process::release_if_idle();
        }
    }
    code
}

/// `cuMemFree`.
pub(crate) unsafe extern "C" fn free(address: Address) -> CuResult {
    let piece = PROCESS.pointers.remove(address);
    // SAFETY: the caller's arguments.
    let code = unsafe { call!(Entry::cuMemFree_v2, address => Address) };
    ended(address, piece, code)
}

/// The form of CUDA 3.1 and before, with 32 bits.
pub(crate) unsafe extern "C" fn free_v1(address: u32) -> CuResult {
    let piece = PROCESS.pointers.remove(u64::from(address));
    // SAFETY: the caller's arguments.
    let code = unsafe { call!(Entry::cuMemFree, address => u32) };
    ended(u64::from(address), piece, code)
}

/// `cuMemFreeAsync` on a stream or the thread's own; plain memory may be freed so too.
pub(crate) unsafe fn free_async(entry: Entry, arguments: &Arguments) -> CuResult {
    let address = arguments.word(0) as u64;
    let piece = PROCESS.pointers.remove(address);
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    ended(address, piece, code)
}

/// What is free and what there is, as the pod may see it, from what the whole card has.
fn seen(free: u64, total: u64) -> (u64, u64) {
    match process::account() {
        Some(account) if process::mode() == Mode::Held => {
            let limit = account.limit().min(total);
            (limit.saturating_sub(account.used()).min(free), limit)
        }
        _ => (free, total),
    }
}

/// `cuMemGetInfo`.
pub(crate) unsafe extern "C" fn info(free: *mut usize, total: *mut usize) -> CuResult {
    if let Err(code) = process::context_possible() {
        return code;
    }
    // SAFETY: the caller's arguments; what the driver wrote is read and written again.
    unsafe {
        let code = call!(Entry::cuMemGetInfo_v2, free => *mut usize, total => *mut usize);
        if code != SUCCESS || free.is_null() || total.is_null() {
            return code;
        }
        let (left, limit) = seen(*free as u64, *total as u64);
        *free = usize::try_from(left).unwrap_or(usize::MAX);
        *total = usize::try_from(limit).unwrap_or(usize::MAX);
    }
    SUCCESS
}

/// The form of CUDA 3.1 and before, with 32 bits.
pub(crate) unsafe extern "C" fn info_v1(free: *mut c_uint, total: *mut c_uint) -> CuResult {
    if let Err(code) = process::context_possible() {
        return code;
    }
    // SAFETY: the caller's arguments; what the driver wrote is read and written again.
    unsafe {
        let code = call!(Entry::cuMemGetInfo, free => *mut c_uint, total => *mut c_uint);
        if code == SUCCESS && !free.is_null() && !total.is_null() {
            let (left, limit) = seen(u64::from(*free), u64::from(*total));
            *free = u32::try_from(left).unwrap_or(u32::MAX);
            *total = u32::try_from(limit).unwrap_or(u32::MAX);
        }
        code
    }
}
