//! The driver's calls about virtual addresses and the physical memory behind them.

use std::{
    ffi::{c_int, c_void},
    os::fd::IntoRawFd as _,
};

use gpupool_nvidia::cuda::{
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CU_MEM_LOCATION_TYPE_DEVICE, CUmemAccessDesc, CUmemAllocationProp,
    CUmemLocation,
};

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::{
        physical::{self, Properties},
        space::{AllocationKind, reserved},
    },
};

/// Sets how a device may access mapped memory. There is no second way to memory: what one device may, this process may.
///
/// # Safety
/// `list` is null or valid for reads of `count` values; it need not be aligned.
unsafe fn set_access(base: u64, size: u64, list: *const CUmemAccessDesc, count: usize) -> CuResult {
    if count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    for place in 0..count {
        // SAFETY: by this function's contract the list has that many.
        let access = unsafe { read(list.wrapping_add(place)) }?;
        if access.location.r#type == CU_MEM_LOCATION_TYPE_DEVICE {
            let mapped = reserved::mapping(base).ok_or(CuError::INVALID_VALUE)?;
            initialised()?.card(access.location.id)?;
            // Simulated cards have no link to each other.
            if access.location.id != mapped.owner.device {
                return Err(CuError::INVALID_DEVICE);
            }
        }
        reserved::set_access(base, size, access.flags)?;
    }
    Ok(())
}

entry! {
    cuMemAddressReserve(out: *mut u64, size: usize, alignment: usize, _wish: u64, flags: u64) {
        if out.is_null() || flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, reserved::reserve(size as u64, alignment as u64)?)
    }
    cuMemAddressFree(start: u64, size: usize) { reserved::free(start, size as u64) }
    cuMemGetAllocationGranularity(out: *mut usize, properties: *const CUmemAllocationProp, option: u32) {
        if option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, usize::try_from(Properties::from(read(properties)?).granularity()?).unwrap_or(usize::MAX))
    }
    cuMemCreate(out: *mut Handle, size: usize, properties: *const CUmemAllocationProp, flags: u64) {
        if out.is_null() || flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, physical::create(size as u64, read(properties)?.into())?)
    }
    cuMemRelease(handle: Handle) { physical::release(handle) }
    cuMemMap(base: u64, size: usize, offset: usize, handle: Handle, flags: u64) {
        if flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        physical::map(base, size as u64, offset as u64, handle)
    }
    cuMemUnmap(base: u64, size: usize) { physical::unmap(base, size as u64) }
    cuMemSetAccess(base: u64, size: usize, list: *const CUmemAccessDesc, count: usize) {
        set_access(base, size as u64, list, count)
    }
    cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, pointer: u64) {
        let (location, mapping) = (read(location)?, reserved::mapping(pointer).ok_or(CuError::INVALID_VALUE)?);
        let own = location.r#type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == mapping.owner.device;
        put(flags, if own { u64::from(mapping.flags) } else { 0 })
    }
    cuMemRetainAllocationHandle(out: *mut Handle, address: u64) {
        let Some(AllocationKind::Mapped(handle)) = reserved::mapping(address).map(|found| found.kind) else {
            return Err(CuError::INVALID_VALUE);
        };
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        physical::retain(handle)?;
        put(out, handle)
    }
    cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: Handle) {
        put(properties, physical::physical(handle)?.properties.into())
    }
    cuMemExportToShareableHandle(out: *mut c_void, handle: Handle, kind: u32, flags: u64) {
        if out.is_null() || flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        put(out.cast::<c_int>(), physical::export(handle, kind)?.into_raw_fd())
    }
    // A descriptor travels in the place of a pointer.
    cuMemImportFromShareableHandle(out: *mut Handle, descriptor: usize, kind: u32) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let descriptor = c_int::try_from(descriptor).map_err(|_| CuError::INVALID_VALUE)?;
        put(out, physical::import(descriptor, kind)?)
    }
}
