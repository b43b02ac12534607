//! The driver's calls about modules, libraries, functions and kernels.

use std::ffi::{CStr, c_char, c_void};

use gpupool_nvidia::cuda::{
    CU_FUNC_CACHE_PREFER_EQUAL, CU_FUNCTION_LOADING_STATE_LOADED, CU_MODULE_EAGER_LOADING,
    CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE, CUfunctionLoadingState, CUmoduleLoadingMode,
};

use crate::{
    calls::entry::{entry, put, put_if_wanted},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        context::current,
        module::{self, LIBRARIES, Library, MODULES, Module, function},
    },
};

/// # Safety
/// `name` is null or a string.
unsafe fn text<'a>(name: *const c_char) -> CuResult<&'a CStr> {
    if name.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { CStr::from_ptr(name) })
}

/// Loads code into the current context.
///
/// # Safety
/// `out` is null or valid for a write; `image` is as for [`module::image_at`].
unsafe fn load_module(out: *mut Handle, image: *const c_void) -> CuResult {
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    current()?;
    // SAFETY: by this function's contract.
    unsafe { put(out, module::load(module::image_at(image)?)?) }
}

/// Writes address and size of a variable.
///
/// # Safety
/// `address` and `bytes` are each null or valid for a write; `name` is null or a string that ends with a zero
/// byte.
unsafe fn variable(module: &Module, address: *mut u64, bytes: *mut usize, name: *const c_char) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        let (start, size) = module.variable(text(name)?)?;
        put_if_wanted(address, start);
        put_if_wanted(bytes, usize::try_from(size).unwrap_or(usize::MAX));
    }
    Ok(())
}

/// Writes the handles of the first `room` entry points.
///
/// # Safety
/// `out` is null or valid for writes of `room` handles; it need not be aligned.
unsafe fn enumerate(out: *mut Handle, room: u32, count: usize, at: impl Fn(usize) -> Handle) -> CuResult {
    for place in 0..count.min(room as usize) {
        // SAFETY: by this function's contract: the list has room for that many.
        unsafe { put(out.wrapping_add(place), at(place))? };
    }
    Ok(())
}

/// Writes offset and size of a parameter.
///
/// # Safety
/// `offset` and `size` are each null or valid for a write; they need not be aligned.
unsafe fn parameter(handle: Handle, place: usize, offset: *mut usize, size: *mut usize) -> CuResult {
    let function = function(handle)?;
    let parameters = function.kernel().parameters.as_ref().ok_or(CuError::NOT_SUPPORTED)?;
    let &(start, bytes) = parameters.get(place).ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: by this function's contract.
    unsafe {
        put(offset, start)?;
        put_if_wanted(size, bytes);
    }
    Ok(())
}

/// Writes how many parameters a function has.
///
/// # Safety
/// `count` is null or valid for a write; it need not be aligned.
unsafe fn parameter_count(handle: Handle, count: *mut usize) -> CuResult {
    let function = function(handle)?;
    let parameters = function.kernel().parameters.as_ref().ok_or(CuError::NOT_SUPPORTED)?;
    // SAFETY: by this function's contract.
    unsafe { put(count, parameters.len()) }
}

/// Writes the name of a function.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn name(handle: Handle, out: *mut *const c_char) -> CuResult {
    let function = function(handle)?;
    // SAFETY: by this function's contract. The name lasts as long as the code is loaded.
    unsafe { put(out, function.kernel().name.as_ptr()) }
}

/// Whether there is such a cache configuration.
fn cache_config(handle: Handle, config: u32) -> CuResult {
    function(handle)?;
    if config > CU_FUNC_CACHE_PREFER_EQUAL { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}

entry! {
    cuModuleLoad(out: *mut Handle, path: *const c_char) {
        current()?;
        put(out, module::load(module::image_in(path)?)?)
    }
    cuModuleLoadData(out: *mut Handle, image: *const c_void) { load_module(out, image) }
    cuModuleLoadDataEx(
        out: *mut Handle,
        image: *const c_void,
        _count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
    ) { load_module(out, image) }
    cuModuleLoadFatBinary(out: *mut Handle, image: *const c_void) { load_module(out, image) }
    cuModuleUnload(handle: Handle) { module::unload(handle) }
    cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) { put(mode, CU_MODULE_EAGER_LOADING) }
    cuModuleGetFunction(out: *mut Handle, handle: Handle, name: *const c_char) {
        put(out, MODULES.get(handle)?.function(handle, text(name)?)?)
    }
    cuModuleGetFunctionCount(count: *mut u32, handle: Handle) {
        put(count, u32::try_from(MODULES.get(handle)?.count()).unwrap_or(u32::MAX))
    }
    cuModuleEnumerateFunctions(out: *mut Handle, room: u32, handle: Handle) {
        let module = MODULES.get(handle)?;
        enumerate(out, room, module.count(), |place| module.function_at(handle, place))
    }
    cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, handle: Handle, name: *const c_char) {
        variable(&*MODULES.get(handle)?, address, bytes, name)
    }
    cuLibraryLoadData(
        out: *mut Handle,
        code: *const c_void,
        _jit_options: *const i32,
        _jit_values: *const *mut c_void,
        _jit_count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
        _count: u32,
    ) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, module::load_library(module::image_at(code)?))
    }
    cuLibraryLoadFromFile(
        out: *mut Handle,
        path: *const c_char,
        _jit_options: *const i32,
        _jit_values: *const *mut c_void,
        _jit_count: u32,
        _options: *const i32,
        _values: *const *mut c_void,
        _count: u32,
    ) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, module::load_library(module::image_in(path)?))
    }
    cuLibraryUnload(handle: Handle) { module::unload_library(handle) }
    cuLibraryGetKernel(out: *mut Handle, handle: Handle, name: *const c_char) {
        put(out, LIBRARIES.get(handle)?.kernel(handle, text(name)?)?)
    }
    cuLibraryGetKernelCount(count: *mut u32, handle: Handle) {
        put(count, u32::try_from(LIBRARIES.get(handle)?.count()).unwrap_or(u32::MAX))
    }
    cuLibraryEnumerateKernels(out: *mut Handle, room: u32, handle: Handle) {
        let library = LIBRARIES.get(handle)?;
        enumerate(out, room, library.count(), |place| library.kernel_at(handle, place))
    }
    cuLibraryGetModule(out: *mut Handle, handle: Handle) {
        put(out, Library::module(&*LIBRARIES.get(handle)?)?.0)
    }
    cuLibraryGetGlobal(address: *mut u64, bytes: *mut usize, handle: Handle, name: *const c_char) {
        variable(&LIBRARIES.get(handle)?.module()?.1, address, bytes, name)
    }
    // No image that can be read here declares managed variables.
    cuLibraryGetManaged(_address: *mut u64, _bytes: *mut usize, handle: Handle, _name: *const c_char) {
        LIBRARIES.get(handle)?;
        Err(CuError::NOT_FOUND)
    }
    cuKernelGetFunction(out: *mut Handle, kernel: Handle) {
        let kernel = function(kernel)?;
        let (handle, module) = LIBRARIES.get(kernel.parent)?.module()?;
        put(out, module.function_at(handle, kernel.place))
    }
    cuKernelGetLibrary(out: *mut Handle, kernel: Handle) {
        let parent = function(kernel)?.parent;
        LIBRARIES.get(parent)?;
        put(out, parent)
    }
    cuKernelGetName(out: *mut *const c_char, kernel: Handle) { name(kernel, out) }
    cuKernelGetParamInfo(kernel: Handle, place: usize, offset: *mut usize, size: *mut usize) {
        parameter(kernel, place, offset, size)
    }
    cuKernelGetParamCount(kernel: Handle, count: *mut usize) { parameter_count(kernel, count) }
    cuKernelGetAttribute(value: *mut i32, attribute: i32, kernel: Handle, device: i32) {
        initialised()?.card(device)?;
        put(value, function(kernel)?.attribute(attribute)?)
    }
    cuKernelSetAttribute(attribute: i32, value: i32, kernel: Handle, device: i32) {
        initialised()?.card(device)?;
        function(kernel)?.set_attribute(attribute, value)
    }
    cuKernelSetCacheConfig(kernel: Handle, config: u32, device: i32) {
        initialised()?.card(device)?;
        cache_config(kernel, config)
    }
    cuFuncGetName(out: *mut *const c_char, handle: Handle) { name(handle, out) }
    cuFuncGetModule(out: *mut Handle, handle: Handle) {
        let parent = function(handle)?.parent;
        MODULES.get(parent)?;
        put(out, parent)
    }
    cuFuncGetParamInfo(handle: Handle, place: usize, offset: *mut usize, size: *mut usize) {
        parameter(handle, place, offset, size)
    }
    cuFuncGetParamCount(handle: Handle, count: *mut usize) { parameter_count(handle, count) }
    cuFuncGetAttribute(value: *mut i32, attribute: i32, handle: Handle) {
        put(value, function(handle)?.attribute(attribute)?)
    }
    cuFuncSetAttribute(handle: Handle, attribute: i32, value: i32) {
        function(handle)?.set_attribute(attribute, value)
    }
    cuFuncSetCacheConfig(handle: Handle, config: u32) { cache_config(handle, config) }
    cuFuncSetSharedMemConfig(handle: Handle, config: u32) {
        function(handle)?;
        if config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE { Err(CuError::INVALID_VALUE) } else { Ok(()) }
    }
    cuFuncIsLoaded(state: *mut CUfunctionLoadingState, handle: Handle) {
        function(handle)?;
        put(state, CU_FUNCTION_LOADING_STATE_LOADED)
    }
    cuFuncLoad(handle: Handle) { function(handle).map(|_| ()) }
}
