//! The driver's oldest calls: launches in several steps, and the first forms of memory calls, whose addresses and sizes
//! have 32 bits. Memory of theirs lies where such addresses reach.

use std::ffi::{c_char, c_void};

use crate::{
    calls::{
        copy::{now, queued},
        entry::{entry, put, put_if_wanted},
        launch::launch,
    },
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::space::{self, AllocationKind, CopyPointer, MemoryCopy, MemoryFill},
    objects::{
        capture,
        context::current,
        launch::LaunchShape,
        module::{MODULES, function},
        stream::{LEGACY, legacy, target},
        stream_work::StreamWork,
    },
    sync::lock,
};

use CopyPointer::{Device, Host};

/// A `CUdeviceptr` of the first forms.
type Short = u32;

/// Rows of pitched memory begin on multiples of this many bytes.
const PITCH: u32 = 512;

fn allocate(size: u32) -> CuResult<Short> {
    capture::forbid()?;
    let pointer = space::allocate_low(AllocationKind::Device, u64::from(size), current()?.owner())?;
    Short::try_from(pointer).map_err(|_| CuError::OUT_OF_MEMORY)
}

fn plain(to: CopyPointer, from: CopyPointer, bytes: u32) -> MemoryCopy {
    MemoryCopy::plain(to, from, u64::from(bytes))
}

fn device(pointer: Short) -> CopyPointer {
    Device(u64::from(pointer))
}

fn fill(to: Short, pitch: u32, value: u32, unit: u64, [width, rows]: [u32; 2]) -> CuResult {
    let pattern = value.to_le_bytes();
    let (to, pitch) = (u64::from(to), u64::from(pitch));
    let fill = MemoryFill { to, pattern, unit, count: u64::from(width), rows: u64::from(rows), pitch };
    fill.check()?;
    target(LEGACY)?.submit(StreamWork::Fill(fill))
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Launches a grid with the block and the shared memory that were set before.
///
/// # Safety
/// None of its own: what a launch of this form passes to its kernel is not looked at.
unsafe fn launch_grid(handle: Handle, width: i32, height: i32, stream: Handle) -> CuResult {
    let function = function(handle)?;
    let side = |side: i32| u32::try_from(side).ok().filter(|&side| side > 0).ok_or(CuError::INVALID_VALUE);
    let grid = [side(width)?, side(height)?, 1];
    let old = *lock(&function.old);
    let shape = LaunchShape { grid, block: old.block, shared: old.shared, cooperative: false };
    // What was set for the kernel's parameters is not looked at: nothing is computed. A list that is none says that
    // they were set.
    let mut set: *mut c_void = std::ptr::null_mut();
    // SAFETY: nobody looks behind it.
    unsafe { launch(handle, shape, stream, std::ptr::null_mut(), &raw mut set) }
}

entry! {
    cuLaunch(handle: Handle) { launch_grid(handle, 1, 1, LEGACY) }
    cuLaunchGrid(handle: Handle, width: i32, height: i32) { launch_grid(handle, width, height, LEGACY) }
    cuLaunchGridAsync(handle: Handle, width: i32, height: i32, stream: Handle) {
        launch_grid(handle, width, height, legacy(stream))
    }
    cuFuncSetBlockShape(handle: Handle, x: i32, y: i32, z: i32) {
        let mut block = [0; 3];
        for (place, side) in block.iter_mut().zip([x, y, z]) {
            *place = u32::try_from(side).ok().filter(|&side| side > 0).ok_or(CuError::INVALID_VALUE)?;
        }
        lock(&function(handle)?.old).block = block;
        Ok(())
    }
    cuFuncSetSharedSize(handle: Handle, bytes: u32) {
        lock(&function(handle)?.old).shared = bytes;
        Ok(())
    }
    cuParamSetSize(handle: Handle, _bytes: u32) { function(handle).map(|_| ()) }
    cuParamSeti(handle: Handle, offset: i32, _value: u32) { parameter(handle, offset) }
    cuParamSetf(handle: Handle, offset: i32, _value: f32) { parameter(handle, offset) }
    cuParamSetv(handle: Handle, offset: i32, value: *const c_void, bytes: u32) {
        if value.is_null() && bytes > 0 {
            return Err(CuError::INVALID_VALUE);
        }
        parameter(handle, offset)
    }
    cuMemGetInfo(free: *mut u32, total: *mut u32) {
        let card = current()?.card;
        let all = card.total_memory();
        put(free, narrow(all.saturating_sub(card.used_memory())))?;
        put(total, narrow(all))
    }
    cuMemAlloc(out: *mut Short, size: u32) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, allocate(size)?)
    }
    cuMemAllocPitch(out: *mut Short, pitch: *mut u32, width: u32, height: u32, element: u32) {
        if out.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(CuError::OUT_OF_MEMORY)?;
        put(out, allocate(row.checked_mul(height).ok_or(CuError::OUT_OF_MEMORY)?)?)?;
        put(pitch, row)
    }
    cuMemFree(pointer: Short) { crate::calls::memory::free(u64::from(pointer)) }
    cuMemGetAddressRange(base: *mut Short, size: *mut u32, pointer: Short) {
        current()?;
        let found = space::find(u64::from(pointer)).ok_or(CuError::NOT_FOUND)?;
        put_if_wanted(base, narrow(found.base));
        put_if_wanted(size, narrow(found.size));
        Ok(())
    }
    cuMemHostGetDevicePointer(out: *mut Short, pointer: u64, flags: u32) {
        current()?;
        let host = space::find(pointer).filter(|found| !found.kind.on_device());
        if flags != 0 || host.is_none() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, Short::try_from(pointer).map_err(|_| CuError::INVALID_VALUE)?)
    }
    cuModuleGetGlobal(out: *mut Short, size: *mut u32, handle: Handle, name: *const c_char) {
        if name.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let (start, bytes) = MODULES.get(handle)?.variable(std::ffi::CStr::from_ptr(name))?;
        put_if_wanted(out, Short::try_from(start).map_err(|_| CuError::INVALID_VALUE)?);
        put_if_wanted(size, narrow(bytes));
        Ok(())
    }
    cuMemcpyHtoD(to: Short, from: u64, bytes: u32) { now(LEGACY, plain(device(to), Host(from), bytes)) }
    cuMemcpyDtoH(to: u64, from: Short, bytes: u32) { now(LEGACY, plain(Host(to), device(from), bytes)) }
    cuMemcpyDtoD(to: Short, from: Short, bytes: u32) { queued(LEGACY, plain(device(to), device(from), bytes)) }
    cuMemcpyHtoDAsync(to: Short, from: u64, bytes: u32, stream: Handle) {
        queued(legacy(stream), plain(device(to), Host(from), bytes))
    }
    cuMemcpyDtoHAsync(to: u64, from: Short, bytes: u32, stream: Handle) {
        queued(legacy(stream), plain(Host(to), device(from), bytes))
    }
    cuMemcpyDtoDAsync(to: Short, from: Short, bytes: u32, stream: Handle) {
        queued(legacy(stream), plain(device(to), device(from), bytes))
    }
    cuMemsetD8(to: Short, value: u8, count: u32) { fill(to, 0, value.into(), 1, [count, 1]) }
    cuMemsetD16(to: Short, value: u16, count: u32) { fill(to, 0, value.into(), 2, [count, 1]) }
    cuMemsetD32(to: Short, value: u32, count: u32) { fill(to, 0, value, 4, [count, 1]) }
    cuMemsetD2D8(to: Short, pitch: u32, value: u8, width: u32, height: u32) {
        fill(to, pitch, value.into(), 1, [width, height])
    }
    cuMemsetD2D16(to: Short, pitch: u32, value: u16, width: u32, height: u32) {
        fill(to, pitch, value.into(), 2, [width, height])
    }
    cuMemsetD2D32(to: Short, pitch: u32, value: u32, width: u32, height: u32) {
        fill(to, pitch, value, 4, [width, height])
    }
}

fn parameter(handle: Handle, offset: i32) -> CuResult {
    initialised()?;
    function(handle)?;
    if offset < 0 { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}
