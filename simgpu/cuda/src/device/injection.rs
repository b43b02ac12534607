//! The library that `CUDA_INJECTION64_PATH` names: profilers are brought into a program by it. The driver loads it at the
//! end of `cuInit`, inside that call, and calls its `InitializeInjection`, from where it may call the driver.

use std::{env, ffi::CString, mem, os::unix::ffi::OsStrExt as _};

use crate::device::environment::report;

/// The function that the library must have; what it answers is of no consequence.
type InitializeInjection = unsafe extern "C" fn() -> i32;

/// Loads the library, if one is named. One that cannot be loaded is said, and the program goes on without.
pub(super) fn inject() {
    let Some(path) = env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) else { return };
    let Ok(name) = CString::new(path.as_bytes()) else { return };
    // SAFETY: a path with its NUL. Whoever sets the variable asks for what the library's constructors do.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return report(&format!("CUDA_INJECTION64_PATH: {} cannot be loaded", path.display()));
    }
    // SAFETY: the library is loaded and stays so.
    let function = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if !function.is_null() {
        // SAFETY: a function of that name has this form in every library that is made for the variable.
        unsafe { mem::transmute::<*mut libc::c_void, InitializeInjection>(function)() };
    }
}
