//! What every entry point does around its own work: it answers with an ordered fault, refuses before `cuInit` and
//! after a fork, and turns a panic into `CUDA_ERROR_UNKNOWN`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpupool_nvidia::cuda::CUDA_SUCCESS;
use simgpu_device::Fault;

use crate::{
    device::{environment::settings, initialised::initialised},
    error::{CuError, CuResult},
};

/// Runs the body of an exported function that works before `cuInit` and after a fork.
pub(crate) fn run_early(name: &str, body: impl FnOnce() -> CuResult) -> i32 {
    let answer = catch_unwind(AssertUnwindSafe(|| {
        apply_ordered_fault(name)?;
        body()
    }));
    match answer {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(error)) => error.0,
        // A panic is a defect of ours, but the program's stack is no place for it.
        Err(_) => CuError::UNKNOWN.0,
    }
}

/// Runs the body of an exported function that needs an initialised driver in the process that initialised it.
pub(crate) fn run(name: &str, body: impl FnOnce() -> CuResult) -> i32 {
    run_early(name, || {
        initialised()?;
        body()
    })
}

/// Applies the fault that `SIMGPU_FAULTS` orders for this call, if any: an error is returned, everything else done.
fn apply_ordered_fault(name: &str) -> CuResult {
    let faults = &settings().faults;
    if faults.is_empty() {
        return Ok(());
    }
    match faults.fault_for_call(name) {
        None | Some(Fault::Answer(CUDA_SUCCESS)) => Ok(()),
        Some(Fault::Answer(code)) => Err(CuError(code)),
        Some(Fault::Slow(time)) => {
            std::thread::sleep(time);
            Ok(())
        }
        // Before there is a machine nothing can be lost.
        Some(Fault::Lose) => {
            initialised().iter().flat_map(|ready| ready.machine.cards()).for_each(|card| card.lose());
            Ok(())
        }
    }
}

/// Writes an answer through a pointer of the caller's; null is `CUDA_ERROR_INVALID_VALUE`.
///
/// # Safety
/// `place` is null or valid for writes of `T`; it need not be aligned.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> CuResult {
    if place.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Reads what a pointer of the caller's leads to; null is `CUDA_ERROR_INVALID_VALUE`.
///
/// # Safety
/// `place` is null or valid for reads of `T`; it need not be aligned.
pub(crate) unsafe fn read<T: Copy>(place: *const T) -> CuResult<T> {
    if place.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { place.read_unaligned() })
}

/// Reads a list of the caller's; null is `CUDA_ERROR_INVALID_VALUE`, unless the list is empty.
///
/// # Safety
/// `list` is null or valid for reads of `count` values; it need not be aligned.
pub(crate) unsafe fn read_list<T: Copy>(list: *const T, count: usize) -> CuResult<Vec<T>> {
    if list.is_null() && count > 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller vouches for that many values.
    Ok((0..count).map(|place| unsafe { list.add(place).read_unaligned() }).collect())
}

/// As [`put`], for answers that the caller may decline with a null pointer.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { place.write_unaligned(value) };
    }
}

/// Defines exported functions: name, arguments as the C header has them, and a body that yields [`CuResult`].
macro_rules! entry {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the names are the driver API's")]
        unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            $crate::calls::entry::run(stringify!($name), || {
                #[allow(unused_unsafe, reason = "not every body needs it")]
                // SAFETY: the driver API's contract: pointers are valid for what the function reads and writes.
                unsafe { $body }
            })
        }
    )* };
}

/// As [`entry`], for functions that work before `cuInit`.
macro_rules! early_entry {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the names are the driver API's")]
        unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            $crate::calls::entry::run_early(stringify!($name), || {
                #[allow(unused_unsafe, reason = "not every body needs it")]
                // SAFETY: the driver API's contract: pointers are valid for what the function reads and writes.
                unsafe { $body }
            })
        }
    )* };
}

pub(crate) use {early_entry, entry};
