//! The driver's calls that launch kernels.

use std::ffi::c_void;

use gpupool_nvidia::cuda::{
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC,
    CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC, CUDA_LAUNCH_PARAMS, CUlaunchConfig,
};

use crate::{
    calls::entry::{entry, read},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        launch::{Launch, LaunchShape, device_time},
        stream::{legacy, own, target},
        stream_work::StreamWork,
    },
};

/// What a configuration asks for, but for its attributes.
pub(super) const fn shape_of(config: &CUlaunchConfig) -> LaunchShape {
    LaunchShape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
        cooperative: false,
    }
}

/// Launches a kernel, or records that.
///
/// # Safety
/// The driver API's contract: `parameters` has as many as the kernel needs, or is null.
pub(crate) unsafe fn launch(
    handle: Handle,
    shape: LaunchShape,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let target = target(stream)?;
    if target.is_capturing() {
        // SAFETY: by this function's contract.
        let launch = unsafe { Launch::prepare(target.context(), handle, shape, parameters, extra) }?;
        return target.submit(StreamWork::Kernel(launch));
    }
    let time = device_time(target.context(), handle, &shape, parameters, extra)?;
    target.take_time(time)
}

/// Launches as a configuration says.
///
/// # Safety
/// `config` is null or valid for a read, and its `attrs` for reads of `numAttrs` attributes; the parameters
/// are as for [`launch`].
unsafe fn launch_with(
    config: *const CUlaunchConfig,
    which: fn(Handle) -> Handle,
    handle: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    if config.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: by this function's contract.
    let config = unsafe { config.read_unaligned() };
    let mut shape = shape_of(&config);
    for place in 0..config.numAttrs as usize {
        if config.attrs.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        // SAFETY: by this function's contract the list has that many.
        let attribute = unsafe { config.attrs.add(place).read_unaligned() };
        shape.cooperative |= attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute.value[0] != 0;
    }
    // SAFETY: by this function's contract.
    unsafe { launch(handle, shape, which(config.hStream), parameters, extra) }
}

/// Every flag of `cuLaunchCooperativeKernelMultiDevice`.
const MULTI_DEVICE_FLAGS: u32 = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC
    | CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;

/// Launches a kernel on several devices, each in a stream of its own.
///
/// # Safety
/// `list` is null or valid for reads of `count` launches, each with parameters as for [`launch`].
unsafe fn launch_many(list: *const CUDA_LAUNCH_PARAMS, count: u32) -> CuResult {
    if count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: by this function's contract the list has that many.
    let all: Vec<_> = (0..count as usize)
        .map(|place| unsafe { read(list.wrapping_add(place)) })
        .collect::<CuResult<_>>()?;
    let mut devices = Vec::new();
    for one in &all {
        let target = target(one.hStream)?;
        // The default streams have no device of their own, and a device takes part once.
        if target.made().is_none() || devices.contains(&target.context().device) {
            return Err(CuError::INVALID_VALUE);
        }
        devices.push(target.context().device);
    }
    for one in all {
        let shape = LaunchShape {
            grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
            block: [one.blockDimX, one.blockDimY, one.blockDimZ],
            shared: one.sharedMemBytes,
            cooperative: true,
        };
        // SAFETY: by this function's contract.
        unsafe { launch(one.function, shape, one.hStream, one.kernelParams, std::ptr::null_mut())? };
    }
    Ok(())
}

entry! {
    cuLaunchCooperativeKernelMultiDevice(list: *const CUDA_LAUNCH_PARAMS, count: u32, flags: u32) {
        if flags & !MULTI_DEVICE_FLAGS != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        launch_many(list, count)
    }
    cuLaunchKernel(
        handle: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(handle, LaunchShape { grid, block, shared, cooperative: false }, legacy(stream), parameters, extra)
    }
    cuLaunchKernel_ptsz(
        handle: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(handle, LaunchShape { grid, block, shared, cooperative: false }, own(stream), parameters, extra)
    }
    cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        handle: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        launch_with(config, legacy, handle, parameters, extra)
    }
    cuLaunchKernelEx_ptsz(
        config: *const CUlaunchConfig,
        handle: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        launch_with(config, own, handle, parameters, extra)
    }
    cuLaunchCooperativeKernel(
        handle: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let shape = LaunchShape { grid, block, shared, cooperative: true };
        launch(handle, shape, legacy(stream), parameters, std::ptr::null_mut())
    }
    cuLaunchCooperativeKernel_ptsz(
        handle: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared: u32,
        stream: Handle,
        parameters: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let shape = LaunchShape { grid, block, shared, cooperative: true };
        launch(handle, shape, own(stream), parameters, std::ptr::null_mut())
    }
}
