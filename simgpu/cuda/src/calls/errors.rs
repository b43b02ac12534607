//! Names and texts of `CUresult`'s codes.

use std::ffi::{CStr, c_char};

use crate::{
    calls::entry::{early_entry, put},
    error::{CuError, CuResult},
};

include!(concat!(env!("OUT_DIR"), "/error_codes.rs"));

fn described(code: i32) -> Option<&'static (i32, &'static CStr, &'static CStr)> {
    let place = ERROR_CODES.binary_search_by_key(&code, |entry| entry.0).ok()?;
    ERROR_CODES.get(place)
}

/// Writes the text, or null and `CUDA_ERROR_INVALID_VALUE` for a number that is no code.
///
/// # Safety
/// `text` is null or valid for a write; it need not be aligned.
unsafe fn answer(text: *mut *const c_char, found: Option<&'static CStr>) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe { put(text, found.map_or(std::ptr::null(), CStr::as_ptr))? };
    found.map(|_| ()).ok_or(CuError::INVALID_VALUE)
}

early_entry! {
    cuGetErrorName(code: i32, name: *mut *const c_char) {
        answer(name, described(code).map(|entry| entry.1))
    }
    cuGetErrorString(code: i32, text: *mut *const c_char) {
        answer(text, described(code).map(|entry| entry.2))
    }
}
