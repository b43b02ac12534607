//! The driver's calls that link code.

use std::ffi::{CStr, c_char, c_void};

use crate::{
    calls::entry::{entry, put, put_if_wanted},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        context::current,
        linker::{LINKS, Link, add, complete},
    },
    sync::lock,
};

/// Begins to link.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn create(out: *mut Handle) -> CuResult {
    current()?;
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: by this function's contract.
    unsafe { put(out, LINKS.add(Link::default())) }
}

/// Adds code in memory.
///
/// # Safety
/// `data` is null or valid for reads of `size` bytes.
unsafe fn add_data(handle: Handle, kind: u32, data: *const u8, size: usize) -> CuResult {
    if data.is_null() || size == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: by this function's contract: that many bytes.
    add(handle, kind, unsafe { std::slice::from_raw_parts(data, size) })
}

/// Adds code in a file.
///
/// # Safety
/// `path` is null or a string that ends with a zero byte.
unsafe fn add_file(handle: Handle, kind: u32, path: *const c_char) -> CuResult {
    if path.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; a string by this function's contract.
    let path = unsafe { CStr::from_ptr(path) }.to_str().map_err(|_| CuError::FILE_NOT_FOUND)?;
    add(handle, kind, &std::fs::read(path).map_err(|_| CuError::FILE_NOT_FOUND)?)
}

entry! {
    cuLinkCreate(_count: u32, _options: *const i32, _values: *const *mut c_void, out: *mut Handle) { create(out) }
    cuLinkCreate_v2(_count: u32, _options: *const i32, _values: *const *mut c_void, out: *mut Handle) { create(out) }
    cuLinkAddData(
        handle: Handle,
        kind: u32,
        data: *const u8,
        size: usize,
        _name: *const c_char,
        _count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
    ) { add_data(handle, kind, data, size) }
    cuLinkAddData_v2(
        handle: Handle,
        kind: u32,
        data: *const u8,
        size: usize,
        _name: *const c_char,
        _count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
    ) { add_data(handle, kind, data, size) }
    cuLinkAddFile(
        handle: Handle,
        kind: u32,
        path: *const c_char,
        _count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
    ) { add_file(handle, kind, path) }
    cuLinkAddFile_v2(
        handle: Handle,
        kind: u32,
        path: *const c_char,
        _count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
    ) { add_file(handle, kind, path) }
    cuLinkComplete(handle: Handle, image: *mut *const u8, size: *mut usize) {
        let link = LINKS.get(handle)?;
        if image.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let mut output = lock(&link.output);
        *output = complete(&link)?;
        put_if_wanted(size, output.len());
        put(image, output.as_ptr())
    }
    cuLinkDestroy(handle: Handle) { LINKS.remove(handle).map(|_| ()) }
}
