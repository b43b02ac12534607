//! Init and shutdown, versions, error sentences: what is not about one card.

use std::ffi::{c_char, c_int};

use super::{entries, write};
use crate::return_code::{self, ReturnCode};
use crate::{library, text};

/// What a driver of this generation calls itself; tools parse it.
const DRIVER_VERSION: &str = "615.71.01";

/// The library's own version: NVML's, then the driver's.
const NVML_VERSION: &str = "13.615.71.01";

/// Counts one init more.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> u32 {
    library::init("nvmlInit")
}

/// Counts one init more.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    library::init("nvmlInit_v2")
}

/// Counts one init more; the flags change nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> u32 {
    library::init("nvmlInitWithFlags")
}

/// Counts one init less.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> u32 {
    library::shutdown()
}

/// The sentence for a return code, without any init.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    return_code::sentence(code).as_ptr()
}

entries! {
    /// The driver's version.
    fn nvmlSystemGetDriverVersion(_; version: *mut c_char, length: u32) {
        // SAFETY: by this function's own contract.
        unsafe { text::put(DRIVER_VERSION, version, length) }
    }

    /// The version of this library.
    fn nvmlSystemGetNVMLVersion(_; version: *mut c_char, length: u32) {
        // SAFETY: by this function's own contract.
        unsafe { text::put(NVML_VERSION, version, length) }
    }

    /// The number of `cuDriverGetVersion`.
    fn nvmlSystemGetCudaDriverVersion(cards; version: *mut c_int) {
        // SAFETY: by this function's own contract.
        unsafe { write(version, cards.cuda_driver_version()) }
    }

    /// The number of `cuDriverGetVersion`.
    fn nvmlSystemGetCudaDriverVersion_v2(cards; version: *mut c_int) {
        // SAFETY: by this function's own contract.
        unsafe { write(version, cards.cuda_driver_version()) }
    }

    /// The path by which a process was started, cut to the buffer.
    fn nvmlSystemGetProcessName(_; pid: u32, name: *mut c_char, length: u32) {
        if name.is_null() || length == 0 {
            return Err(ReturnCode::InvalidArgument);
        }
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| ReturnCode::NotFound)?;
        let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(program);
        let cut = program.floor_char_boundary(length as usize - 1);
        // SAFETY: by this function's own contract.
        unsafe { text::put(&program[..cut], name, length) }
    }

    /// No card of ours sits in an S-class chassis.
    fn nvmlUnitGetCount(_; count: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(count, 0) }
    }
}
