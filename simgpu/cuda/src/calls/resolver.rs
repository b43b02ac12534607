//! `cuGetProcAddress`: the driver's own symbol table, by version and default-stream flavour.

use std::ffi::{CStr, c_char, c_void};

use crate::{
    calls::{
        entry::{early_entry, put, put_if_wanted},
        exports::{ENTRY_POINTS, EntryPoint},
    },
    device::environment::{self, settings},
    error::{CuError, CuResult},
};

/// Flags of `cuGetProcAddress`: which default stream the function should use.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Success = 0,
    NotFound = 1,
    VersionTooOld = 2,
}

/// The newest variant of `name` that `version` knows, as far as the driver's own version goes; of those with the
/// thread's own default stream where `per_thread` asks for it and there are any.
fn newest(name: &str, version: i32, per_thread: bool) -> Result<&'static EntryPoint, Status> {
    let start = ENTRY_POINTS.partition_point(|point| point.base < name);
    let variants = ENTRY_POINTS[start..].iter().take_while(|point| point.base == name);
    let ceiling = version.min(environment::version());
    let newest = |wanted: bool| {
        let known = variants.clone().filter(|point| point.version <= ceiling && point.per_thread == wanted);
        known.max_by_key(|point| point.version)
    };
    if let Some(point) = per_thread.then(|| newest(true)).flatten().or_else(|| newest(false)) {
        return Ok(point);
    }
    Err(if variants.clone().next().is_some() { Status::VersionTooOld } else { Status::NotFound })
}

/// A function of the future: nothing is known of it, so it does nothing.
extern "C" fn extra() -> i32 {
    0
}

unsafe fn resolve(
    name: *const c_char,
    code: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> CuResult {
    if name.is_null() || code.is_null() || flags > (LEGACY_STREAM | PER_THREAD_STREAM) {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; a string by the driver API's contract.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_str().unwrap_or_default();
    let (address, result) = match newest(name, version, flags & PER_THREAD_STREAM != 0) {
        Ok(point) => (point.code as *mut c_void, Status::Success),
        Err(_) if settings().faults.knows_extra(name) => (extra as *mut c_void, Status::Success),
        Err(status) => (std::ptr::null_mut(), status),
    };
    // SAFETY: the caller's pointers, as the driver API has them.
    unsafe {
        put_if_wanted(status, result as i32);
        put(code, address)?;
    }
    if result == Status::Success { Ok(()) } else { Err(CuError::NOT_FOUND) }
}

early_entry! {
    cuGetProcAddress(name: *const c_char, code: *mut *mut c_void, version: i32, flags: u64) {
        resolve(name, code, version, flags, std::ptr::null_mut())
    }
    cuGetProcAddress_v2(
        name: *const c_char,
        code: *mut *mut c_void,
        version: i32,
        flags: u64,
        status: *mut i32,
    ) {
        resolve(name, code, version, flags, status)
    }
    // The vendor's private tables prove to its runtime library that the driver is the vendor's own. This one is not.
    cuGetExportTable(table: *mut *const c_void, _id: *const [u8; 16]) {
        put(table, std::ptr::null())?;
        Err(CuError::NOT_FOUND)
    }
}
