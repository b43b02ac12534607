//! The driver's calls that launch kernels.

use std::ffi::c_void;

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

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: u32 = 2;
/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    stream: Handle,
    attributes: *const Attribute,
    count: u32,
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
        // SAFETY: the driver API's contract.
        let launch = unsafe { Launch::prepare(target.context(), handle, shape, parameters, extra) }?;
        return target.submit(StreamWork::Kernel(launch));
    }
    let time = device_time(target.context(), handle, &shape, parameters, extra)?;
    target.take_time(time)
}

unsafe fn launch_with(
    config: *const Config,
    which: fn(Handle) -> Handle,
    handle: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    if config.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the driver API's contract.
    let config = unsafe { config.read_unaligned() };
    let mut shape =
        LaunchShape { grid: config.grid, block: config.block, shared: config.shared, cooperative: false };
    for place in 0..config.count as usize {
        if config.attributes.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        // SAFETY: the driver API's contract: a list of that many.
        let attribute = unsafe { config.attributes.add(place).read_unaligned() };
        shape.cooperative |= attribute.id == COOPERATIVE && attribute.value[0] != 0;
    }
    // SAFETY: the driver API's contract.
    unsafe { launch(handle, shape, which(config.stream), parameters, extra) }
}

/// `CUDA_LAUNCH_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct OneOfMany {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
}

/// Launches a kernel on several devices, each in a stream of its own.
unsafe fn launch_many(list: *const OneOfMany, count: u32) -> CuResult {
    if count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the driver API's contract: a list of that many.
    let all: Vec<_> = (0..count as usize)
        .map(|place| unsafe { read(list.wrapping_add(place)) })
        .collect::<CuResult<_>>()?;
    let mut devices = Vec::new();
    for one in &all {
        let target = target(one.stream)?;
        // The default streams have no device of their own, and a device takes part once.
        if target.made().is_none() || devices.contains(&target.context().device) {
            return Err(CuError::INVALID_VALUE);
        }
        devices.push(target.context().device);
    }
    for one in all {
        let OneOfMany { function, grid, block, shared, stream, parameters } = one;
        let shape = LaunchShape { grid, block, shared, cooperative: true };
        // SAFETY: the driver API's contract.
        unsafe { launch(function, shape, stream, parameters, std::ptr::null_mut())? };
    }
    Ok(())
}

entry! {
    cuLaunchCooperativeKernelMultiDevice(list: *const OneOfMany, count: u32, flags: u32) {
        if flags > 3 {
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
    cuLaunchKernelEx(config: *const Config, handle: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void) {
        launch_with(config, legacy, handle, parameters, extra)
    }
    cuLaunchKernelEx_ptsz(
        config: *const Config,
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
