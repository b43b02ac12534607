//! The driver's calls about memory pools and allocations in stream order.

use std::{
    ffi::{c_int, c_void},
    os::fd::IntoRawFd as _,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::{
        graph_memory::{self, GraphMemory},
        ipc::{self, IpcHandle},
        physical::DESCRIPTOR,
        pool::{self, MemoryPool},
        space::{self, AllocationKind},
    },
    objects::{
        graph::node::NodeWork,
        stream::{legacy, own, target},
    },
    sync::lock,
};

/// `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const ON_DEVICE: u32 = 1;
const PINNED: u32 = 1;
const READ_WRITE: u32 = 3;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties {
    allocation: u32,
    pub(crate) handle_types: u32,
    location: Location,
    security: *const c_void,
    max_size: usize,
    rest: [u64; 7],
}

impl Properties {
    /// Those of the device's memory.
    pub(crate) const fn on(device: i32) -> Self {
        let location = Location { kind: ON_DEVICE, id: device };
        Self {
            allocation: PINNED,
            handle_types: 0,
            location,
            security: std::ptr::null(),
            max_size: 0,
            rest: [0; 7],
        }
    }

    /// The device that they are about. Fails where it is none.
    pub(crate) fn device(&self) -> CuResult<i32> {
        device_of(self.location, self.allocation)
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// The device of a location; only device memory can be pooled.
fn device_of(location: Location, allocation: u32) -> CuResult<i32> {
    if location.kind != ON_DEVICE || allocation != PINNED {
        return Err(CuError::NOT_SUPPORTED);
    }
    initialised()?.card(location.id)?;
    Ok(location.id)
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

unsafe fn get_attribute(pool: &MemoryPool, attribute: u32, value: *mut c_void) -> CuResult {
    let levels = pool.levels();
    let wide = match attribute {
        4 => pool.threshold.load(Relaxed),
        5 => levels.reserved,
        6 => levels.reserved_high,
        7 => levels.used,
        8 => levels.used_high,
        13 => pool.max_size,
        _ => {
            let narrow = match attribute {
                1..=3 => pool.reuse[attribute as usize - 1].load(Relaxed),
                // Allocation type pinned, location type device.
                9 | 12 => 1,
                10 => pool.handle_types(),
                // Nothing can be decompressed.
                14 | 15 => 0,
                11 => pool.device,
                _ => return Err(CuError::INVALID_VALUE),
            };
            // SAFETY: the driver API's contract: an int for these attributes.
            return unsafe { put(value.cast(), narrow) };
        }
    };
    // SAFETY: the driver API's contract: 64 bits for these attributes.
    unsafe { put(value.cast(), wide) }
}

unsafe fn set_attribute(pool: &MemoryPool, attribute: u32, value: *const c_void) -> CuResult {
    // SAFETY: the driver API's contract: an int for the first three, 64 bits for the others.
    unsafe {
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1].store(read(value.cast::<i32>())?, Relaxed),
            4 => pool.threshold.store(read(value.cast::<u64>())?, Relaxed),
            // The high-water marks can only be set back.
            6 | 8 if read(value.cast::<u64>())? == 0 => pool.reset_high(attribute == 6),
            _ => return Err(CuError::INVALID_VALUE),
        }
    }
    Ok(())
}

entry! {
    cuDeviceGetDefaultMemPool(out: *mut Handle, device: i32) { put(out, pool::default_of(device)?) }
    cuDeviceGetMemPool(out: *mut Handle, device: i32) { put(out, pool::current_of(device)?) }
    cuDeviceSetMemPool(device: i32, handle: Handle) { pool::choose(device, handle) }
    cuMemGetDefaultMemPool(out: *mut Handle, location: *const Location, allocation: u32) {
        put(out, pool::default_of(device_of(read(location)?, allocation)?)?)
    }
    cuMemGetMemPool(out: *mut Handle, location: *const Location, allocation: u32) {
        put(out, pool::current_of(device_of(read(location)?, allocation)?)?)
    }
    cuMemSetMemPool(location: *const Location, allocation: u32, handle: Handle) {
        pool::choose(device_of(read(location)?, allocation)?, handle)
    }
    cuMemPoolCreate(out: *mut Handle, properties: *const Properties) {
        let properties = read(properties)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        if properties.handle_types & !DESCRIPTOR != 0 {
            return Err(CuError::NOT_SUPPORTED);
        }
        let device = properties.device()?;
        put(out, pool::create(device, properties.max_size as u64, properties.handle_types != 0)?)
    }
    cuMemPoolDestroy(handle: Handle) { pool::destroy(handle) }
    cuMemPoolSetAttribute(handle: Handle, attribute: u32, value: *const c_void) {
        set_attribute(&*pool::pool(handle)?, attribute, value)
    }
    cuMemPoolGetAttribute(handle: Handle, attribute: u32, value: *mut c_void) {
        get_attribute(&*pool::pool(handle)?, attribute, value)
    }
    cuMemPoolTrimTo(handle: Handle, keep: usize) {
        pool::pool(handle)?.trim_to(keep as u64);
        Ok(())
    }
    // A pool can be reached from its own device only, and always.
    cuMemPoolSetAccess(handle: Handle, list: *const Access, count: usize) {
        let device = pool::pool(handle)?.device;
        for place in 0..count {
            let access = read(list.wrapping_add(place))?;
            if access.location.kind != ON_DEVICE || access.location.id != device || access.flags != READ_WRITE {
                return Err(CuError::INVALID_DEVICE);
            }
        }
        Ok(())
    }
    cuMemPoolGetAccess(flags: *mut u32, handle: Handle, location: *const Location) {
        let (device, location) = (pool::pool(handle)?.device, read(location)?);
        put(flags, if location.kind == ON_DEVICE && location.id == device { READ_WRITE } else { 0 })
    }
    cuMemPoolExportToShareableHandle(out: *mut c_int, handle: Handle, kind: u32, flags: u64) {
        if out.is_null() || flags != 0 || kind != DESCRIPTOR {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, pool::export(handle)?.into_raw_fd())
    }
    cuMemPoolImportFromShareableHandle(out: *mut Handle, descriptor: usize, kind: u32, flags: u64) {
        if out.is_null() || flags != 0 || kind != DESCRIPTOR {
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
    cuMemAllocAsync_ptsz(out: *mut u64, size: usize, stream: Handle) { put(out, allocate_default(size, own(stream))?) }
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
        let all = [levels.used, levels.used_high, levels.reserved, levels.reserved_high];
        put(value, *all.get(attribute as usize).ok_or(CuError::INVALID_VALUE)?)
    }
    cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: *const u64) {
        let pool = pool::pool(pool::graph_pool_of(device)?)?;
        // The high-water marks can only be set back.
        if !matches!(attribute, 1 | 3) || read(value)? != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        pool.reset_high(attribute == 3);
        Ok(())
    }
    cuDeviceGraphMemTrim(device: i32) {
        pool::pool(pool::graph_pool_of(device)?)?.trim_to(0);
        Ok(())
    }
}
