//! Launches of kernels: checked as a real driver checks them, timed, and not computed.

use std::{
    ffi::c_void,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use gpupool_nvidia::cuda::{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CUdevice_attribute};
use simgpu_device::Card;

use crate::{
    device::{
        attributes::{BLOCK_SIDES, GRID_SIDES, attribute},
        environment::settings,
    },
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        context::Context,
        module::{Function, function},
    },
};

/// Shared memory that a block takes besides its own on newer cards, in bytes.
pub(crate) const RESERVED_SHARED: usize = 1024;

/// What a launch asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
}

impl LaunchShape {
    fn threads(&self) -> u64 {
        self.block.iter().map(|&side| u64::from(side)).product()
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |blocks, &side| u64::saturating_mul(blocks, side.into()))
    }

    /// How many of its blocks the card holds at a time.
    pub(crate) fn resident(&self, card: Card, function: &Function) -> u64 {
        let threads = u32::try_from(self.threads()).unwrap_or(u32::MAX);
        let each = blocks_per_multiprocessor(card, function, threads, self.shared as usize);
        u64::from(each) * u64::from(card.model().multiprocessors)
    }

    /// Fails as a real driver does for a launch that can't be.
    fn check(&self, card: Card, function: &Function) -> CuResult {
        let limit = |number| u64::try_from(attribute(card, number)).unwrap_or_default();
        let within = |sides: [u32; 3], bounds: [CUdevice_attribute; 3]| {
            sides.iter().zip(bounds).all(|(&side, bound)| side > 0 && u64::from(side) <= limit(bound))
        };
        let threads = limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        if !within(self.block, BLOCK_SIDES) || !within(self.grid, GRID_SIDES) || self.threads() > threads {
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
    pub(crate) shape: LaunchShape,
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
        shape: LaunchShape,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CuResult<Arc<Self>> {
        let time = device_time(context, handle, &shape, parameters, extra)?;
        // SAFETY: the caller vouches for it.
        let arguments = unsafe { Arguments::copy(&*function(handle)?, parameters) };
        Ok(Arc::new(Self { function: handle, shape, arguments, time }))
    }
}

/// Checks a launch as a real driver does, and says how many nanoseconds of device time it takes.
pub(crate) fn device_time(
    context: &Context,
    handle: Handle,
    shape: &LaunchShape,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult<u64> {
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

/// How many blocks of `threads` threads with `dynamic` bytes of shared memory a multiprocessor holds at a time.
pub(crate) fn blocks_per_multiprocessor(
    card: Card,
    function: &Function,
    threads: u32,
    dynamic: usize,
) -> u32 {
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
