//! The driver's questions about pointers, and the profiler's switches.

use std::ffi::c_void;

use gpupool_nvidia::cuda::{
    CU_DEVICE_INVALID, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL, CU_POINTER_ATTRIBUTE_MAPPED,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_P2P_TOKENS, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUpointer_attribute,
};

use crate::{
    calls::entry::{entry, put},
    device::initialised::initialised,
    error::{CuError, CuResult},
    memory::space::{self, Allocation, AllocationKind},
    objects::context::current,
};

/// The attributes that there are.
const ATTRIBUTES: std::ops::RangeInclusive<CUpointer_attribute> =
    CU_POINTER_ATTRIBUTE_CONTEXT..=CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL;

/// Writes an attribute of `pointer`, which lies in `found`.
///
/// # Safety
/// `data` is null or valid for a write of the attribute's type: at most 8 bytes.
unsafe fn put_attribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    pointer: u64,
    found: &Allocation,
) -> CuResult {
    let on_device = found.kind.on_device();
    let managed = found.kind == AllocationKind::Managed;
    // SAFETY: by this function's contract: each attribute has a type, and `data` has room for it.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => {
                put(data.cast(), if found.kind.pool().is_some() { 0 } else { found.owner.context })
            }
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                put(data.cast(), if on_device { CU_MEMORYTYPE_DEVICE } else { CU_MEMORYTYPE_HOST })
            }
            CU_POINTER_ATTRIBUTE_HOST_POINTER if on_device && !managed => Err(CuError::INVALID_VALUE),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER | CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                put(data.cast(), pointer)
            }
            CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
                put(data.cast(), found.id)
            }
            CU_POINTER_ATTRIBUTE_IS_MANAGED => put(data.cast(), u32::from(managed)),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast(), found.owner.device),
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
                put(data.cast(), u32::from(found.kind == AllocationKind::Device))
            }
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
                put(data.cast(), found.base)
            }
            CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
                put(data.cast(), found.size)
            }
            CU_POINTER_ATTRIBUTE_MAPPED => put(data.cast(), 1_u32),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => put(data.cast(), 0_u64),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
            | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => put(data.cast(), 0_u32),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => put(data.cast(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => put(data.cast(), found.kind.pool().unwrap_or(0)),
            CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL => put(data.cast(), 0_i32),
            // The tokens of `nv-p2p.h`, for other drivers on the PCI bus.
            CU_POINTER_ATTRIBUTE_P2P_TOKENS => Err(CuError::NOT_SUPPORTED),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

/// Writes what `cuPointerGetAttributes` says of memory that the driver doesn't know.
///
/// # Safety
/// As for [`put_attribute`].
unsafe fn put_unknown(data: *mut c_void, attribute: CUpointer_attribute) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT
            | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | CU_POINTER_ATTRIBUTE_HOST_POINTER
            | CU_POINTER_ATTRIBUTE_BUFFER_ID
            | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
            | CU_POINTER_ATTRIBUTE_RANGE_SIZE
            | CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
            | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
            | CU_POINTER_ATTRIBUTE_MAPPING_SIZE
            | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
            | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put(data.cast(), 0_u64),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast(), CU_DEVICE_INVALID),
            _ => put(data.cast(), 0_u32),
        }
    }
}

entry! {
    cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, pointer: u64) {
        initialised()?;
        let found = space::find(pointer).ok_or(CuError::INVALID_VALUE)?;
        put_attribute(data, attribute, pointer, &found)
    }
    cuPointerGetAttributes(count: u32, attributes: *const CUpointer_attribute, data: *const *mut c_void, pointer: u64) {
        initialised()?;
        if attributes.is_null() || data.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let found = space::find(pointer);
        for place in 0..count as usize {
            let (attribute, data) = (attributes.add(place).read_unaligned(), data.add(place).read_unaligned());
            if !ATTRIBUTES.contains(&attribute) {
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
    cuPointerSetAttribute(_value: *const c_void, attribute: CUpointer_attribute, pointer: u64) {
        initialised()?;
        space::find(pointer).ok_or(CuError::INVALID_VALUE)?;
        // Synchronous copies: they are.
        if attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS { Ok(()) } else { Err(CuError::INVALID_VALUE) }
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
