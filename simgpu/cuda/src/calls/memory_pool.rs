//! The driver's calls about memory pools and allocations in stream order.

use std::{
    ffi::{c_int, c_void},
    os::fd::IntoRawFd as _,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use gpupool_nvidia::cuda::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
    CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_MEM_ACCESS_FLAGS_PROT_NONE,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMPOOL_ATTR_ALLOCATION_TYPE,
    CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES, CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED,
    CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID, CU_MEMPOOL_ATTR_LOCATION_ID, CU_MEMPOOL_ATTR_LOCATION_TYPE,
    CU_MEMPOOL_ATTR_MAX_POOL_SIZE, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemPool_attribute,
    CUmemPoolProps,
};

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::{
        graph_memory::{self, GraphMemory},
        ipc::{self, IpcHandle},
        pool::{self, MemoryPool},
        space::{self, AllocationKind},
    },
    objects::{
        graph::node::NodeWork,
        stream::{legacy, own, target},
    },
    sync::lock,
};

/// Whether a location is that device.
fn is_device(location: CUmemLocation, device: i32) -> bool {
    location.r#type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == device
}

/// The device of a location; only device memory can be pooled.
fn device_of(location: CUmemLocation, allocation: CUmemAllocationType) -> CuResult<i32> {
    if location.r#type != CU_MEM_LOCATION_TYPE_DEVICE || allocation != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CuError::NOT_SUPPORTED);
    }
    initialised()?.card(location.id)?;
    Ok(location.id)
}

/// The device that a pool's properties are about. Fails where it is none.
pub(crate) fn device_of_pool(properties: &CUmemPoolProps) -> CuResult<i32> {
    device_of(properties.location, properties.allocType)
}

fn allocate(pool: Handle, size: usize, stream: Handle) -> CuResult<u64> {
    let target = target(stream)?;
    if let Some(stream) = target.made()
        && let Some(capture) = lock(&stream.capture).as_mut()
    {
        let memory = GraphMemory::new(size as u64, pool::pool(pool)?.device)?;
        capture.record(NodeWork::Allocate(Arc::clone(&memory)))?;
        return Ok(memory.base);
    }
    pool::allocate(pool, size as u64, target.context().owner())
}

fn allocate_default(size: usize, stream: Handle) -> CuResult<u64> {
    let device = target(stream)?.context().device;
    allocate(pool::current_of(device)?, size, stream)
}

/// Frees in stream order. Kernels are not computed, so nobody can tell that it happens at once.
fn free(pointer: u64, stream: Handle) -> CuResult {
    let target = target(stream)?;
    if let Some(stream) = target.made()
        && let Some(capture) = lock(&stream.capture).as_mut()
    {
        return capture.record_free(pointer);
    }
    if space::find(pointer).is_some_and(|found| matches!(found.kind, AllocationKind::PoolOpened(_))) {
        return ipc::close(pointer, |kind| matches!(kind, AllocationKind::PoolOpened(_)));
    }
    graph_memory::end(pointer)
}

/// The first and the last of the attributes about how a pool may reuse memory.
const REUSE_FIRST: CUmemPool_attribute = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
const REUSE_LAST: CUmemPool_attribute = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;

/// Writes an attribute of a pool.
///
/// # Safety
/// `value` is null or valid for a write of the attribute's type: 4 or 8 bytes, as [`CUmemPool_attribute`]
/// says.
unsafe fn get_attribute(pool: &MemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CuResult {
    let levels = pool.levels();
    let wide = match attribute {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold.load(Relaxed),
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => levels.reserved,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => levels.reserved_high,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => levels.used,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => levels.used_high,
        CU_MEMPOOL_ATTR_MAX_POOL_SIZE => pool.max_size,
        _ => {
            let narrow = match attribute {
                REUSE_FIRST..=REUSE_LAST => pool.reuse[(attribute - REUSE_FIRST) as usize].load(Relaxed),
                CU_MEMPOOL_ATTR_ALLOCATION_TYPE => CU_MEM_ALLOCATION_TYPE_PINNED.cast_signed(),
                CU_MEMPOOL_ATTR_LOCATION_TYPE => CU_MEM_LOCATION_TYPE_DEVICE.cast_signed(),
                CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => pool.handle_types().cast_signed(),
                // Nothing can be decompressed.
                CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED | CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID => 0,
                CU_MEMPOOL_ATTR_LOCATION_ID => pool.device,
                _ => return Err(CuError::INVALID_VALUE),
            };
            // SAFETY: by this function's contract: an int for these attributes.
            return unsafe { put(value.cast(), narrow) };
        }
    };
    // SAFETY: by this function's contract: 64 bits for these attributes.
    unsafe { put(value.cast(), wide) }
}

/// Sets an attribute of a pool.
///
/// # Safety
/// `value` is null or valid for a read of the attribute's type: 4 or 8 bytes, as [`CUmemPool_attribute`]
/// says.
unsafe fn set_attribute(pool: &MemoryPool, attribute: CUmemPool_attribute, value: *const c_void) -> CuResult {
    // SAFETY: by this function's contract: an int for the first three, 64 bits for the others.
    unsafe {
        match attribute {
            REUSE_FIRST..=REUSE_LAST => {
                pool.reuse[(attribute - REUSE_FIRST) as usize].store(read(value.cast::<i32>())?, Relaxed);
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold.store(read(value.cast::<u64>())?, Relaxed),
            // The high-water marks can only be set back.
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH
                if read(value.cast::<u64>())? == 0 =>
            {
                pool.reset_high(attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
            }
            _ => return Err(CuError::INVALID_VALUE),
        }
    }
    Ok(())
}

entry! {
    cuDeviceGetDefaultMemPool(out: *mut Handle, device: i32) { put(out, pool::default_of(device)?) }
    cuDeviceGetMemPool(out: *mut Handle, device: i32) { put(out, pool::current_of(device)?) }
    cuDeviceSetMemPool(device: i32, handle: Handle) { pool::choose(device, handle) }
    cuMemGetDefaultMemPool(out: *mut Handle, location: *const CUmemLocation, allocation: u32) {
        put(out, pool::default_of(device_of(read(location)?, allocation)?)?)
    }
    cuMemGetMemPool(out: *mut Handle, location: *const CUmemLocation, allocation: u32) {
        put(out, pool::current_of(device_of(read(location)?, allocation)?)?)
    }
    cuMemSetMemPool(location: *const CUmemLocation, allocation: u32, handle: Handle) {
        pool::choose(device_of(read(location)?, allocation)?, handle)
    }
    cuMemPoolCreate(out: *mut Handle, properties: *const CUmemPoolProps) {
        let properties = read(properties)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        if properties.handleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0 {
            return Err(CuError::NOT_SUPPORTED);
        }
        let device = device_of_pool(&properties)?;
        put(out, pool::create(device, properties.maxSize as u64, properties.handleTypes != 0)?)
    }
    cuMemPoolDestroy(handle: Handle) { pool::destroy(handle) }
    cuMemPoolSetAttribute(handle: Handle, attribute: CUmemPool_attribute, value: *const c_void) {
        set_attribute(&*pool::pool(handle)?, attribute, value)
    }
    cuMemPoolGetAttribute(handle: Handle, attribute: CUmemPool_attribute, value: *mut c_void) {
        get_attribute(&*pool::pool(handle)?, attribute, value)
    }
    cuMemPoolTrimTo(handle: Handle, keep: usize) {
        pool::pool(handle)?.trim_to(keep as u64);
        Ok(())
    }
    // A pool can be reached from its own device only, and always.
    cuMemPoolSetAccess(handle: Handle, list: *const CUmemAccessDesc, count: usize) {
        let device = pool::pool(handle)?.device;
        for place in 0..count {
            let access = read(list.wrapping_add(place))?;
            if !is_device(access.location, device) || access.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE {
                return Err(CuError::INVALID_DEVICE);
            }
        }
        Ok(())
    }
    cuMemPoolGetAccess(flags: *mut u32, handle: Handle, location: *const CUmemLocation) {
        let (device, location) = (pool::pool(handle)?.device, read(location)?);
        put(flags, if is_device(location, device) {
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            CU_MEM_ACCESS_FLAGS_PROT_NONE
        })
    }
    cuMemPoolExportToShareableHandle(out: *mut c_int, handle: Handle, kind: u32, flags: u64) {
        if out.is_null() || flags != 0 || kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, pool::export(handle)?.into_raw_fd())
    }
    cuMemPoolImportFromShareableHandle(out: *mut Handle, descriptor: usize, kind: u32, flags: u64) {
        if out.is_null() || flags != 0 || kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, pool::import(c_int::try_from(descriptor).map_err(|_| CuError::INVALID_VALUE)?)?)
    }
    cuMemPoolExportPointer(out: *mut IpcHandle, pointer: u64) { put(out, pool::export_pointer(pointer)?) }
    cuMemPoolImportPointer(out: *mut u64, handle: Handle, token: *const IpcHandle) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, pool::import_pointer(handle, &read(token)?)?)
    }
    cuMemAllocAsync(out: *mut u64, size: usize, stream: Handle) { put(out, allocate_default(size, legacy(stream))?) }
    cuMemAllocAsync_ptsz(out: *mut u64, size: usize, stream: Handle) {
        put(out, allocate_default(size, own(stream))?)
    }
    cuMemAllocFromPoolAsync(out: *mut u64, size: usize, pool: Handle, stream: Handle) {
        put(out, allocate(pool, size, legacy(stream))?)
    }
    cuMemAllocFromPoolAsync_ptsz(out: *mut u64, size: usize, pool: Handle, stream: Handle) {
        put(out, allocate(pool, size, own(stream))?)
    }
    cuMemFreeAsync(pointer: u64, stream: Handle) { free(pointer, legacy(stream)) }
    cuMemFreeAsync_ptsz(pointer: u64, stream: Handle) { free(pointer, own(stream)) }
    cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: *mut u64) {
        let levels = pool::pool(pool::graph_pool_of(device)?)?.levels();
        put(value, match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => levels.used,
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => levels.used_high,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => levels.reserved,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => levels.reserved_high,
            _ => return Err(CuError::INVALID_VALUE),
        })
    }
    cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: *const u64) {
        let pool = pool::pool(pool::graph_pool_of(device)?)?;
        // The high-water marks can only be set back.
        let is_high = matches!(attribute, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH | CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
        if !is_high || read(value)? != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        pool.reset_high(attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
        Ok(())
    }
    cuDeviceGraphMemTrim(device: i32) {
        pool::pool(pool::graph_pool_of(device)?)?.trim_to(0);
        Ok(())
    }
}
