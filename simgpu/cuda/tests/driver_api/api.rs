//! The C interface as the tests use it, and a few short cuts.

use std::ffi::{c_char, c_void};

// The library is linked in: its exported functions are the ones declared here.
use cuda as _;

pub use crate::calls::*;

pub type Handle = u64;
pub type Callback = extern "C" fn(*mut c_void);

unsafe extern "C" {
    pub fn cuInit(flags: u32) -> i32;
    pub fn cuDriverGetVersion(version: *mut i32) -> i32;
    pub fn cuDeviceGetCount(count: *mut i32) -> i32;
    pub fn cuDeviceGet(device: *mut i32, ordinal: i32) -> i32;
    pub fn cuDeviceGetName(name: *mut c_char, room: i32, device: i32) -> i32;
    pub fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> i32;
    pub fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> i32;
    pub fn cuDeviceGetAttribute(value: *mut i32, number: i32, device: i32) -> i32;
    pub fn cuGetProcAddress_v2(
        name: *const c_char,
        code: *mut *mut c_void,
        version: i32,
        flags: u64,
        status: *mut i32,
    ) -> i32;
    pub fn cuGetExportTable(table: *mut *const c_void, id: *const [u8; 16]) -> i32;
    pub fn cuGetErrorName(code: i32, name: *mut *const c_char) -> i32;
    pub fn cuGetErrorString(code: i32, text: *mut *const c_char) -> i32;
    pub fn cuMulticastCreate(handle: *mut Handle, properties: *const c_void) -> i32;
    pub fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) -> i32;
    pub fn cuDevicePrimaryCtxRelease_v2(device: i32) -> i32;
    pub fn cuDevicePrimaryCtxReset_v2(device: i32) -> i32;
    pub fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) -> i32;
    pub fn cuCtxCreate_v2(context: *mut Handle, flags: u32, device: i32) -> i32;
    pub fn cuCtxDestroy_v2(context: Handle) -> i32;
    pub fn cuCtxPushCurrent_v2(context: Handle) -> i32;
    pub fn cuCtxPopCurrent_v2(context: *mut Handle) -> i32;
    pub fn cuCtxSetCurrent(context: Handle) -> i32;
    pub fn cuCtxGetCurrent(context: *mut Handle) -> i32;
    pub fn cuCtxGetDevice(device: *mut i32) -> i32;
    pub fn cuCtxSynchronize() -> i32;
    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32;
    pub fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> i32;
    pub fn cuMemAllocPitch_v2(
        pointer: *mut u64,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: u32,
    ) -> i32;
    pub fn cuMemFree_v2(pointer: u64) -> i32;
    pub fn cuMemAllocManaged(pointer: *mut u64, bytes: usize, flags: u32) -> i32;
    pub fn cuMemHostAlloc(pointer: *mut u64, bytes: usize, flags: u32) -> i32;
    pub fn cuMemFreeHost(pointer: u64) -> i32;
    pub fn cuMemHostRegister_v2(pointer: u64, bytes: usize, flags: u32) -> i32;
    pub fn cuMemHostUnregister(pointer: u64) -> i32;
    pub fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, pointer: u64) -> i32;
    pub fn cuPointerGetAttribute(data: *mut c_void, attribute: i32, pointer: u64) -> i32;
    pub fn cuMemcpy(to: u64, from: u64, bytes: usize) -> i32;
    pub fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> i32;
    pub fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> i32;
    pub fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> i32;
    pub fn cuMemcpy2D_v2(description: *const [u64; 16]) -> i32;
    pub fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> i32;
    pub fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) -> i32;
    pub fn cuMemsetD16_v2(to: u64, value: u16, count: usize) -> i32;
    pub fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> i32;
    pub fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) -> i32;
    pub fn cuMemAllocAsync(pointer: *mut u64, bytes: usize, stream: Handle) -> i32;
    pub fn cuMemFreeAsync(pointer: u64, stream: Handle) -> i32;
    pub fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: i32) -> i32;
    pub fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, value: *mut u64) -> i32;
    pub fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: *const u64) -> i32;
    pub fn cuMemPoolTrimTo(pool: Handle, keep: usize) -> i32;
    pub fn cuMemPoolCreate(pool: *mut Handle, properties: *const [u32; 24]) -> i32;
    pub fn cuMemPoolDestroy(pool: Handle) -> i32;
    pub fn cuMemAllocFromPoolAsync(pointer: *mut u64, bytes: usize, pool: Handle, stream: Handle) -> i32;
    pub fn cuStreamCreate(stream: *mut Handle, flags: u32) -> i32;
    pub fn cuStreamDestroy_v2(stream: Handle) -> i32;
    pub fn cuStreamQuery(stream: Handle) -> i32;
    pub fn cuStreamSynchronize(stream: Handle) -> i32;
    pub fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> i32;
    pub fn cuLaunchHostFunc(stream: Handle, function: Callback, argument: *mut c_void) -> i32;
    pub fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> i32;
    pub fn cuStreamIsCapturing(stream: Handle, status: *mut i32) -> i32;
    pub fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> i32;
    pub fn cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64) -> i32;
    pub fn cuGraphLaunch(executable: Handle, stream: Handle) -> i32;
    pub fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> i32;
    pub fn cuEventCreate(event: *mut Handle, flags: u32) -> i32;
    pub fn cuEventRecord(event: Handle, stream: Handle) -> i32;
    pub fn cuEventQuery(event: Handle) -> i32;
    pub fn cuEventSynchronize(event: Handle) -> i32;
    pub fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: Handle, end: Handle) -> i32;
    pub fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> i32;
    pub fn cuModuleUnload(module: Handle) -> i32;
    pub fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> i32;
    pub fn cuModuleGetGlobal_v2(
        pointer: *mut u64,
        bytes: *mut usize,
        module: Handle,
        name: *const c_char,
    ) -> i32;
    pub fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: Handle) -> i32;
    pub fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> i32;
    pub fn cuFuncGetParamInfo(function: Handle, place: usize, offset: *mut usize, size: *mut usize) -> i32;
    pub fn cuLaunchKernel(
        function: Handle,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> i32;
    pub fn cuLaunchCooperativeKernel(
        function: Handle,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
    ) -> i32;
}

pub const SUCCESS: i32 = 0;
pub const INVALID_VALUE: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const NOT_INITIALIZED: i32 = 3;
pub const DEVICE_UNAVAILABLE: i32 = 46;
pub const NO_DEVICE: i32 = 100;
pub const INVALID_DEVICE: i32 = 101;
pub const INVALID_CONTEXT: i32 = 201;
pub const NO_BINARY_FOR_GPU: i32 = 209;
pub const INVALID_PTX: i32 = 218;
pub const INVALID_HANDLE: i32 = 400;
pub const NOT_FOUND: i32 = 500;
pub const NOT_READY: i32 = 600;
pub const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
pub const CONTEXT_IS_DESTROYED: i32 = 709;
pub const NOT_SUPPORTED: i32 = 801;

/// Calls a function of the driver and gives its code.
macro_rules! cu {
    // SAFETY: the tests pass pointers to their own variables, or wrong ones that the driver has to refuse.
    ($function:ident($($argument:expr),* $(,)?)) => { unsafe { $crate::api::$function($($argument),*) } };
}

/// Calls a function whose first argument takes the answer, and gives the answer.
macro_rules! get {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let mut answer = Default::default();
        // SAFETY: as in `cu`.
        let code = unsafe { $crate::api::$function(&raw mut answer, $($argument),*) };
        assert_eq!(code, 0, stringify!($function));
        answer
    }};
}

pub(crate) use {cu, get};

/// Initialises the driver and makes a context on device 0.
pub fn start() -> Handle {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    get!(cuCtxCreate_v2(0, 0))
}

/// Free and total memory of the current context's card.
pub fn memory_info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(cuMemGetInfo_v2(&raw mut free, &raw mut total)), SUCCESS);
    (free, total)
}

/// The entry point `empty` of a module of our own.
pub fn empty_kernel() -> Handle {
    let text = c".version 8.0 .target sm_75 .address_size 64 .visible .entry empty() { ret; }";
    let module: Handle = get!(cuModuleLoadData(text.as_ptr().cast()));
    get!(cuModuleGetFunction(module, c"empty".as_ptr()))
}

/// Launches one block of one thread without parameters.
pub fn launch(function: Handle, stream: Handle) -> i32 {
    let none = std::ptr::null_mut();
    cu!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none))
}

/// Copies device memory into a vector.
pub fn read(pointer: u64, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    assert_eq!(cu!(cuMemcpyDtoH_v2(copy.as_mut_ptr().cast(), pointer, bytes)), SUCCESS);
    copy
}
