//! The driver's linker. It makes nothing new: what comes out is what was put in, which is enough for code that is
//! read and not run.

use std::{
    ffi::{CStr, c_char, c_void},
    sync::Mutex,
};

use gpupool_nvidia::cuda::{CU_JIT_INPUT_PTX, CU_JIT_NUM_INPUT_TYPES};

use crate::{
    calls::entry::{entry, put, put_if_wanted},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    objects::context::current,
    sync::lock,
};

/// What was put in so far.
#[derive(Debug, Default)]
struct Link {
    inputs: Mutex<Vec<(u32, Vec<u8>)>>,
    /// What came out; it lasts as long as the link.
    output: Mutex<Vec<u8>>,
}

static LINKS: Registry<Link> = Registry::new();

/// Begins to link.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn create(out: *mut Handle) -> CuResult {
    current()?;
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(out, LINKS.add(Link::default())) }
}

fn add(handle: Handle, kind: u32, bytes: &[u8]) -> CuResult {
    let link = LINKS.get(handle)?;
    if kind >= CU_JIT_NUM_INPUT_TYPES || bytes.is_empty() {
        return Err(CuError::INVALID_VALUE);
    }
    // Text is joined with more text: it ends where its zero byte is.
    let end = if kind == CU_JIT_INPUT_PTX { bytes.iter().position(|byte| *byte == 0) } else { None };
    let bytes = bytes[..end.unwrap_or(bytes.len())].to_vec();
    lock(&link.inputs).push((kind, bytes));
    Ok(())
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

/// The image: the first machine code that was put in, or all text together.
fn complete(link: &Link) -> CuResult<Vec<u8>> {
    let inputs = lock(&link.inputs);
    if let Some((_, code)) = inputs.iter().find(|(kind, _)| *kind != CU_JIT_INPUT_PTX) {
        return Ok(code.clone());
    }
    let mut text = Vec::new();
    for (_, part) in inputs.iter() {
        text.extend_from_slice(part);
        text.push(b'\n');
    }
    if text.is_empty() {
        return Err(CuError::INVALID_IMAGE);
    }
    text.push(0);
    Ok(text)
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
