//! The driver's questions about pointers, and the profiler's switches.

use std::ffi::c_void;

use crate::{
    calls::entry::{entry, put},
    device::initialised::initialised,
    error::{CuError, CuResult},
    memory::space::{self, Allocation, AllocationKind},
    objects::context::current,
};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const MOST_ATTRIBUTES: i32 = 22;

/// Writes `CUpointer_attribute` number `attribute` of `pointer`, which lies in `found`.
unsafe fn put_attribute(data: *mut c_void, attribute: i32, pointer: u64, found: &Allocation) -> CuResult {
    let on_device = found.kind.on_device();
    let managed = found.kind == AllocationKind::Managed;
    // SAFETY: the driver API's contract: each attribute has a type, and `data` has room for it.
    unsafe {
        match attribute {
            1 => put(data.cast(), if found.kind.pool().is_some() { 0 } else { found.owner.context }),
            2 => put(data.cast(), if on_device { DEVICE } else { HOST }),
            4 if on_device && !managed => Err(CuError::INVALID_VALUE),
            3 | 4 => put(data.cast(), pointer),
            7 | 20 => put(data.cast(), found.id),
            8 => put(data.cast(), u32::from(managed)),
            9 => put(data.cast(), found.owner.device),
            10 => put(data.cast(), u32::from(found.kind == AllocationKind::Device)),
            11 | 19 => put(data.cast(), found.base),
            12 | 18 => put(data.cast(), found.size),
            13 => put(data.cast(), 1_u32),
            14 => put(data.cast(), 0_u64),
            6 | 15 | 21 => put(data.cast(), 0_u32),
            // Readable and writable.
            16 => put(data.cast(), 3_u32),
            17 => put(data.cast(), found.kind.pool().unwrap_or(0)),
            22 => put(data.cast(), 0_i32),
            // Tokens for other drivers on the PCI bus.
            5 => Err(CuError::NOT_SUPPORTED),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

/// Writes what `cuPointerGetAttributes` says of memory that the driver doesn't know.
unsafe fn put_unknown(data: *mut c_void, attribute: i32) -> CuResult {
    // SAFETY: the driver API's contract.
    unsafe {
        match attribute {
            1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 | 18 | 19 | 20 => put(data.cast(), 0_u64),
            9 => put(data.cast(), -2_i32),
            _ => put(data.cast(), 0_u32),
        }
    }
}

entry! {
    cuPointerGetAttribute(data: *mut c_void, attribute: i32, pointer: u64) {
        initialised()?;
        let found = space::find(pointer).ok_or(CuError::INVALID_VALUE)?;
        put_attribute(data, attribute, pointer, &found)
    }
    cuPointerGetAttributes(count: u32, attributes: *const i32, data: *const *mut c_void, pointer: u64) {
        initialised()?;
        if attributes.is_null() || data.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let found = space::find(pointer);
        for place in 0..count as usize {
            let (attribute, data) = (attributes.add(place).read_unaligned(), data.add(place).read_unaligned());
            if !(1..=MOST_ATTRIBUTES).contains(&attribute) {
                return Err(CuError::INVALID_VALUE);
            }
            // What an allocation doesn't have is written as for unknown memory.
            let known = found.as_ref().map(|found| put_attribute(data, attribute, pointer, found));
            if known.is_none_or(|known| known.is_err()) {
                put_unknown(data, attribute)?;
            }
        }
        Ok(())
    }
    cuPointerSetAttribute(_value: *const c_void, attribute: i32, pointer: u64) {
        initialised()?;
        space::find(pointer).ok_or(CuError::INVALID_VALUE)?;
        // Synchronous copies: they are.
        if attribute == 6 { Ok(()) } else { Err(CuError::INVALID_VALUE) }
    }
    // Profilers have nothing to see; programs may start and stop them all the same.
    cuProfilerStart() {
        current()?;
        Ok(())
    }
    cuProfilerStop() {
        current()?;
        Ok(())
    }
}
