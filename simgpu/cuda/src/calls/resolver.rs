//! `cuGetProcAddress`: the driver's own symbol table, by version and default-stream flavour.

use std::ffi::{CStr, c_char, c_void};

use gpupool_nvidia::cuda::{
    CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    CU_GET_PROC_ADDRESS_SUCCESS, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, CUdriverProcAddress_flags, CUdriverProcAddressQueryResult,
};

use crate::{
    calls::{
        entry::{early_entry, put, put_if_wanted},
        exports::{ENTRY_POINTS, EntryPoint},
    },
    device::environment::{self, settings},
    error::{CuError, CuResult},
};

/// Every flag of `cuGetProcAddress`: which default stream the function should use.
const PROC_ADDRESS_FLAGS: CUdriverProcAddress_flags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

/// The newest variant of `name` that `version` knows, as far as the driver's own version goes; of those with the
/// thread's own default stream where `per_thread` asks for it and there are any.
fn newest(
    name: &str,
    version: i32,
    per_thread: bool,
) -> Result<&'static EntryPoint, CUdriverProcAddressQueryResult> {
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
    Err(if variants.clone().next().is_some() {
        CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
    } else {
        CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
    })
}

/// A function of the future: nothing is known of it, so it does nothing.
extern "C" fn extra() -> i32 {
    0
}

/// Writes the address of an entry point.
///
/// # Safety
/// `name` is null or a string that ends with a zero byte; `code` and `status` are each null or valid for a
/// write.
unsafe fn resolve(
    name: *const c_char,
    code: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CuResult {
    if name.is_null() || code.is_null() || flags & !PROC_ADDRESS_FLAGS != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; a string by this function's contract.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_str().unwrap_or_default();
    let (address, result) =
        match newest(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0) {
            Ok(point) => (point.code as *mut c_void, CU_GET_PROC_ADDRESS_SUCCESS),
            Err(_) if settings().faults.knows_extra(name) => {
                (extra as *mut c_void, CU_GET_PROC_ADDRESS_SUCCESS)
            }
            Err(status) => (std::ptr::null_mut(), status),
        };
    // SAFETY: by this function's contract.
    unsafe {
        put_if_wanted(status, result);
        put(code, address)?;
    }
    if result == CU_GET_PROC_ADDRESS_SUCCESS { Ok(()) } else { Err(CuError::NOT_FOUND) }
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
        status: *mut CUdriverProcAddressQueryResult,
    ) {
        resolve(name, code, version, flags, status)
    }
    // The vendor's private tables prove to its runtime library that the driver is the vendor's own. This one is not.
    cuGetExportTable(table: *mut *const c_void, _id: *const [u8; 16]) {
        put(table, std::ptr::null())?;
        Err(CuError::NOT_FOUND)
    }
}
