//! Plain, pitched and managed device memory, and what programs are told about memory.
//!
//! Over the limit is the driver's own out-of-memory error, and the driver is not called. Memory that is not known
//! here (taken before, by somebody else, in a way that is not charged) is freed by the driver like any other.

use core::ffi::c_uint;

use gpupool_nvidia::cuda::{CUDA_SUCCESS, CUresult};

use super::ipc;
use crate::charging::allocations::{begin, finish};
use crate::charging::memory_pools;
use crate::lease;
use crate::real::arguments::Arguments;
use crate::real::call;
use crate::state::account::{Account, rounded};
use crate::state::tables::AllocationEntry;
use crate::state::tables::keys::Address;
use crate::state::tables::values::Allocation;
use crate::state::{self, Mode, PROCESS};
use crate::stop;
use crate::table::Entry;

/// Where memory at an address is remembered.
fn at(address: u64) -> AllocationEntry<'static> {
    PROCESS.tables.allocations.entry(Address(address))
}

/// What the driver wrote, once it has succeeded.
///
/// # Safety
/// `place` is null, or the driver has written a `T` there if `code` is success.
unsafe fn written<T: Copy + Default>(place: *const T, code: CUresult) -> T {
    if code != CUDA_SUCCESS || place.is_null() {
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
/// `address` is null or points to a `CUdeviceptr`, 8 bytes, that may be written.
pub(crate) unsafe extern "C" fn alloc(address: *mut u64, bytes: usize) -> CUresult {
    let charge = begin!(bytes as u64);
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuMemAlloc_v2, address => *mut u64, bytes => usize);
        finish(charge, code, at(written(address, code)), bytes as u64, Entry::cuMemFree_v2)
    }
}

/// The form of CUDA 3.1 and before, with 32 bits.
///
/// # Safety
/// `address` is null or points to a `CUdeviceptr_v1`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn alloc_v1(address: *mut u32, bytes: c_uint) -> CUresult {
    let charge = begin!(u64::from(bytes));
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuMemAlloc, address => *mut u32, bytes => c_uint);
        finish(charge, code, at(u64::from(written(address, code))), u64::from(bytes), Entry::cuMemFree)
    }
}

/// `cuMemAllocManaged(address, bytes, flags)`: charged whole, wherever its pages happen to be.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemAllocManaged`: the first is null or points to a
/// `CUdeviceptr`, 8 bytes, that may be written.
pub(crate) unsafe fn alloc_managed(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let bytes = arguments.word(1) as u64;
    let charge = begin!(bytes);
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        finish(charge, code, at(written(arguments.pointer(0), code)), bytes, Entry::cuMemFree_v2)
    }
}

/// `cuMemAllocPitch(address, pitch, width, height, element)`: rows as wide as the driver likes them, which it tells
/// afterwards.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemAllocPitch`: the first and the second are null or point
/// to a `CUdeviceptr` and a `usize`, 8 bytes each, that may be written.
pub(crate) unsafe fn alloc_pitch(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let rows = arguments.word(3) as u64;
    let charge = begin!(rounded(arguments.word(2) as u64).saturating_mul(rows));
    // SAFETY: the caller's arguments.
    unsafe {
        let code = arguments.call(entry);
        let taken = written(arguments.pointer::<u64>(1), code).saturating_mul(rows);
        finish(charge, code, at(written(arguments.pointer(0), code)), taken, Entry::cuMemFree_v2)
    }
}

/// The form of CUDA 3.1 and before, with 32 bits.
///
/// # Safety
/// `address` and `pitch` are null or point to 4 bytes each that may be written.
pub(crate) unsafe extern "C" fn alloc_pitch_v1(
    address: *mut u32,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> CUresult {
    let charge = begin!(rounded(u64::from(width)).saturating_mul(u64::from(height)));
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuMemAllocPitch, address => *mut u32, pitch => *mut c_uint,
            width => c_uint, height => c_uint, element => c_uint);
        let taken = u64::from(written(pitch, code)).saturating_mul(u64::from(height));
        finish(charge, code, at(u64::from(written(address, code))), taken, Entry::cuMemFree)
    }
}

/// After a free: the piece, which was forgotten before (once the driver has freed it, another thread may get the same
/// address), is given back, or remembered again where the driver refused.
#[inline(never)]
pub(crate) fn ended(address: u64, piece: Option<Allocation>, code: CUresult) -> CUresult {
    stop::at(b"called");
    let Some(piece) = piece else {
        memory_pools::settle_all();
        return code;
    };
    if code != CUDA_SUCCESS {
        // The entry that it had is free, so this finds room.
        let _ = at(address).insert(piece);
        return code;
    }
    if let Some(account) = state::account() {
        if piece.bytes == 0 {
            ipc::freed(&account, Address(address));
        } else if !memory_pools::freed(&piece) {
            account.release(piece.bytes);
        }
        if account.slot().contexts() == 0 {
            lease::release_if_idle();
        }
    }
    code
}

/// `cuMemFree`.
///
/// # Safety
/// The address is one on the card, which is not followed here. The program does not use the memory any more.
pub(crate) unsafe extern "C" fn free(address: u64) -> CUresult {
    let piece = at(address).remove();
    // SAFETY: the caller's arguments.
    let code = unsafe { call!(Entry::cuMemFree_v2, address => u64) };
    ended(address, piece, code)
}

/// The form of CUDA 3.1 and before, with 32 bits.
///
/// # Safety
/// The address is one on the card, which is not followed here. The program does not use the memory any more.
pub(crate) unsafe extern "C" fn free_v1(address: u32) -> CUresult {
    let piece = at(u64::from(address)).remove();
    // SAFETY: the caller's arguments.
    let code = unsafe { call!(Entry::cuMemFree, address => u32) };
    ended(u64::from(address), piece, code)
}

/// `cuMemFreeAsync` on a stream or the thread's own; plain memory may be freed so too.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuMemFreeAsync`: an address on the card and a `CUstream`,
/// which are not followed here.
pub(crate) unsafe fn free_async(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let address = arguments.word(0) as u64;
    let piece = at(address).remove();
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    ended(address, piece, code)
}

/// What is free and what there is, as the pod may see it, from what the whole card has.
fn seen(free: u64, total: u64) -> (u64, u64) {
    match state::account() {
        Some(account) if state::mode() == Mode::Pooled => {
            let limit = account.limit().min(total);
            (limit.saturating_sub(account.used()).min(free), limit)
        }
        _ => (free, total),
    }
}

/// `cuMemGetInfo`.
///
/// # Safety
/// `free` and `total` are null or each point to a `usize`, 8 bytes, that may be written.
pub(crate) unsafe extern "C" fn info(free: *mut usize, total: *mut usize) -> CUresult {
    if let Err(code) = state::context_possible() {
        return code;
    }
    // SAFETY: the caller's arguments; what the driver wrote is read and written again.
    unsafe {
        let code = call!(Entry::cuMemGetInfo_v2, free => *mut usize, total => *mut usize);
        if code != CUDA_SUCCESS || free.is_null() || total.is_null() {
            return code;
        }
        let (left, limit) = seen(*free as u64, *total as u64);
        *free = usize::try_from(left).unwrap_or(usize::MAX);
        *total = usize::try_from(limit).unwrap_or(usize::MAX);
    }
    CUDA_SUCCESS
}

/// The form of CUDA 3.1 and before, with 32 bits.
///
/// # Safety
/// `free` and `total` are null or each point to a `c_uint`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn info_v1(free: *mut c_uint, total: *mut c_uint) -> CUresult {
    if let Err(code) = state::context_possible() {
        return code;
    }
    // SAFETY: the caller's arguments; what the driver wrote is read and written again.
    unsafe {
        let code = call!(Entry::cuMemGetInfo, free => *mut c_uint, total => *mut c_uint);
        if code == CUDA_SUCCESS && !free.is_null() && !total.is_null() {
            let (left, limit) = seen(u64::from(*free), u64::from(*total));
            *free = u32::try_from(left).unwrap_or(u32::MAX);
            *total = u32::try_from(limit).unwrap_or(u32::MAX);
        }
        code
    }
}
