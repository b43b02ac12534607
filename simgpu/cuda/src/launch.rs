//! Launches and occupancy: checked as a real driver checks them, timed on the card, and not computed.

use std::{
    ffi::c_void,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use simgpu_device::Card;

use crate::{
    attributes::attribute,
    context::{Context, current},
    driver::settings,
    entry::{entry, put, read},
    error::{CuError, Res},
    handles::Handle,
    module::{Function, function},
    stream::{Job, legacy, own, target},
};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: u32 = 2;
/// Shared memory that a block takes besides its own on newer cards, in bytes.
const RESERVED_SHARED: usize = 1024;

/// What a launch asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
}

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
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: *const Attribute,
    count: u32,
}

impl Shape {
    fn threads(&self) -> u64 {
        self.block.iter().map(|&side| u64::from(side)).product()
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |blocks, &side| u64::saturating_mul(blocks, side.into()))
    }

    /// How many of its blocks the card holds at a time.
    fn resident(&self, card: Card, function: &Function) -> u64 {
        let threads = u32::try_from(self.threads()).unwrap_or(u32::MAX);
        let each = blocks_per_multiprocessor(card, function, threads, self.shared as usize);
        u64::from(each) * u64::from(card.model().multiprocessors)
    }

    /// Fails as a real driver does for a launch that can't be.
    fn check(&self, card: Card, function: &Function) -> Res {
        let limit = |number| u64::try_from(attribute(card, number)).unwrap_or_default();
        let within = |sides: [u32; 3], first: i32| {
            sides.iter().zip(first..).all(|(&side, number)| side > 0 && u64::from(side) <= limit(number))
        };
        // Attributes 2 to 4 bound the sides of a block, 5 to 7 those of a grid.
        if !within(self.block, 2) || !within(self.grid, 5) || self.threads() > limit(1) {
            return Err(CuError::INVALID_VALUE);
        }
        if self.threads() > u64::from(function.kernel().max_threads) {
            return Err(CuError::LAUNCH_OUT_OF_RESOURCES);
        }
        if i64::from(self.shared) > i64::from(function.max_dynamic_shared.load(Relaxed)) {
            return Err(CuError::INVALID_VALUE);
        }
        if self.cooperative && self.blocks() > self.resident(card, function) {
            return Err(CuError::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    }
}

/// A launch that was checked, to be done when a graph runs.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) function: Handle,
    pub(crate) shape: Shape,
    pub(crate) arguments: Arguments,
    /// Nanoseconds of device time.
    pub(crate) time: u64,
}

/// Copies of what the program passed to a kernel.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    values: Vec<Box<[u8]>>,
    /// Their addresses, which programs may ask for.
    pointers: Vec<usize>,
}

impl Arguments {
    /// Copies the arguments of a kernel, as far as its code says how large they are.
    ///
    /// # Safety
    /// `parameters` is null or leads to as many addresses as the kernel has parameters, each of a value.
    unsafe fn copy(function: &Function, parameters: *mut *mut c_void) -> Self {
        let mut copies = Self::default();
        let sizes = function.kernel().parameters.iter().flatten().map(|(_, size)| *size);
        for (place, size) in sizes.enumerate() {
            if parameters.is_null() {
                break;
            }
            // SAFETY: the caller vouches for it.
            let value = unsafe {
                let value = parameters.add(place).read_unaligned().cast::<u8>().cast_const();
                if value.is_null() { vec![0; size] } else { std::slice::from_raw_parts(value, size).to_vec() }
            };
            copies.values.push(value.into());
            copies.pointers.extend(copies.values.last().map(|value| value.as_ptr().expose_provenance()));
        }
        copies
    }

    /// What a program gets that asks for them: null where there are none.
    pub(crate) fn addresses(&self) -> *mut *mut c_void {
        if self.values.is_empty() { std::ptr::null_mut() } else { self.pointers.as_ptr().cast_mut().cast() }
    }
}

impl Launch {
    /// Checks a launch in a context and copies its arguments.
    ///
    /// # Safety
    /// As for [`Arguments::copy`].
    pub(crate) unsafe fn prepare(
        context: &Context,
        handle: Handle,
        shape: Shape,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Res<Arc<Self>> {
        let time = check(context, handle, &shape, parameters, extra)?;
        // SAFETY: the caller vouches for it.
        let arguments = unsafe { Arguments::copy(&*function(handle)?, parameters) };
        Ok(Arc::new(Self { function: handle, shape, arguments, time }))
    }
}

/// Launches a kernel, or records that.
///
/// # Safety
/// The driver API's contract: `parameters` has as many as the kernel needs, or is null.
pub(crate) unsafe fn launch(
    handle: Handle,
    shape: Shape,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Res {
    let target = target(stream)?;
    if target.is_capturing() {
        // SAFETY: the driver API's contract.
        let launch = unsafe { Launch::prepare(target.context(), handle, shape, parameters, extra) }?;
        return target.submit(Job::Kernel(launch));
    }
    let time = check(target.context(), handle, &shape, parameters, extra)?;
    target.take_time(time)
}

/// Checks a launch as a real driver does, and says how much device time it takes.
fn check(
    context: &Context,
    handle: Handle,
    shape: &Shape,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Res<u64> {
    let function = function(handle)?;
    if function.context != 0 && function.context != context.handle {
        return Err(CuError::INVALID_HANDLE);
    }
    let kernel = function.kernel();
    let wants_parameters = kernel.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    if wants_parameters && parameters.is_null() && extra.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    shape.check(context.card, &function)?;
    function.load_in(context)?;
    let name = kernel.name.to_str().unwrap_or_default();
    let resident = || shape.resident(context.card, &function);
    Ok(settings().kernel_time.of(name, shape.blocks(), resident))
}

unsafe fn launch_with(
    config: *const Config,
    which: fn(Handle) -> Handle,
    handle: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Res {
    if config.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the driver API's contract.
    let config = unsafe { config.read_unaligned() };
    let mut shape =
        Shape { grid: config.grid, block: config.block, shared: config.shared, cooperative: false };
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

/// How many blocks of `threads` threads with `dynamic` bytes of shared memory a multiprocessor holds at a time.
fn blocks_per_multiprocessor(card: Card, function: &Function, threads: u32, dynamic: usize) -> u32 {
    let model = card.model();
    if threads == 0 || threads > function.kernel().max_threads {
        return 0;
    }
    let by_threads = model.threads_per_multiprocessor / threads.next_multiple_of(32);
    // Registers come in units of 256 for a warp.
    let registers = (function.kernel().registers * 32).next_multiple_of(256) * threads.div_ceil(32);
    let by_registers = 65536_u32.checked_div(registers).unwrap_or(u32::MAX);
    let own = dynamic.saturating_add(function.kernel().shared as usize);
    let shared = if model.compute >= (8, 0) { own.saturating_add(RESERVED_SHARED) } else { own };
    let by_shared = (model.shared_per_multiprocessor as usize).checked_div(shared).unwrap_or(usize::MAX);
    let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
    by_threads.min(by_registers).min(by_shared).min(model.blocks_per_multiprocessor)
}

unsafe fn occupancy(out: *mut i32, handle: Handle, threads: i32, dynamic: usize) -> Res {
    let function = function(handle)?;
    let threads = u32::try_from(threads).ok().filter(|&threads| threads > 0).ok_or(CuError::INVALID_VALUE)?;
    let blocks = blocks_per_multiprocessor(current()?.card, &function, threads, dynamic);
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(out, i32::try_from(blocks).unwrap_or(i32::MAX)) }
}

/// `CUoccupancyB2DSize`: dynamic shared memory for a block of so many threads.
type SharedForBlock = unsafe extern "C" fn(i32) -> usize;

/// The block size with the most resident threads, and the smallest grid that fills the card with it.
unsafe fn best_block(
    grid: *mut i32,
    block: *mut i32,
    handle: Handle,
    shared: Option<SharedForBlock>,
    dynamic: usize,
    limit: i32,
) -> Res {
    let function = function(handle)?;
    let card = current()?.card;
    let most = function.kernel().max_threads;
    let most = u32::try_from(limit).ok().filter(|&limit| limit > 0).map_or(most, |limit| limit.min(most));
    let (mut best, mut best_resident) = ((0, 0), 0);
    for threads in (1..=most.div_ceil(32)).rev().map(|warps| (warps * 32).min(most)) {
        // SAFETY: the program gave the function for such questions.
        let dynamic =
            shared.map_or(dynamic, |shared| unsafe { shared(i32::try_from(threads).unwrap_or_default()) });
        let blocks = blocks_per_multiprocessor(card, &function, threads, dynamic);
        if blocks * threads > best_resident {
            (best, best_resident) = ((threads, blocks), blocks * threads);
        }
    }
    let (threads, blocks) = best;
    // SAFETY: the caller's pointers, as the driver API has them.
    unsafe {
        put(grid, i32::try_from(blocks * card.model().multiprocessors).unwrap_or(i32::MAX))?;
        put(block, i32::try_from(threads).unwrap_or(i32::MAX))
    }
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
unsafe fn launch_many(list: *const OneOfMany, count: u32) -> Res {
    if count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the driver API's contract: a list of that many.
    let all: Vec<_> =
        (0..count as usize).map(|place| unsafe { read(list.wrapping_add(place)) }).collect::<Res<_>>()?;
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
        let shape = Shape { grid, block, shared, cooperative: true };
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
    cuOccupancyMaxActiveClusters(out: *mut i32, handle: Handle, config: *const Config) {
        let (function, config, card) = (function(handle)?, read(config)?, current()?.card);
        let shape =
            Shape { grid: config.grid, block: config.block, shared: config.shared, cooperative: false };
        put(out, i32::try_from(shape.resident(card, &function)).unwrap_or(i32::MAX))
    }
    cuOccupancyMaxPotentialClusterSize(out: *mut i32, handle: Handle, config: *const Config) {
        function(handle)?;
        read(config)?;
        put(out, if attribute(current()?.card, 120) == 1 { 8 } else { 1 })
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
        launch(handle, Shape { grid, block, shared, cooperative: false }, legacy(stream), parameters, extra)
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
        launch(handle, Shape { grid, block, shared, cooperative: false }, own(stream), parameters, extra)
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
        let shape = Shape { grid, block, shared, cooperative: true };
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
        let shape = Shape { grid, block, shared, cooperative: true };
        launch(handle, shape, own(stream), parameters, std::ptr::null_mut())
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut i32, handle: Handle, threads: i32, dynamic: usize) {
        occupancy(out, handle, threads, dynamic)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut i32,
        handle: Handle,
        threads: i32,
        dynamic: usize,
        _flags: u32,
    ) {
        occupancy(out, handle, threads, dynamic)
    }
    cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32,
        block: *mut i32,
        handle: Handle,
        shared: Option<SharedForBlock>,
        dynamic: usize,
        limit: i32,
    ) {
        best_block(grid, block, handle, shared, dynamic, limit)
    }
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32,
        block: *mut i32,
        handle: Handle,
        shared: Option<SharedForBlock>,
        dynamic: usize,
        limit: i32,
        _flags: u32,
    ) {
        best_block(grid, block, handle, shared, dynamic, limit)
    }
    cuOccupancyAvailableDynamicSMemPerBlock(out: *mut usize, handle: Handle, blocks: i32, _threads: i32) {
        let function = function(handle)?;
        let blocks = usize::try_from(blocks).ok().filter(|&blocks| blocks > 0).ok_or(CuError::INVALID_VALUE)?;
        let each = current()?.card.model().shared_per_multiprocessor as usize / blocks;
        put(out, each.saturating_sub(function.kernel().shared as usize + RESERVED_SHARED))
    }
}
