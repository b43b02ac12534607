//! What programs say a node does, in the structures of the C interface, and back.

use std::sync::Arc;

use gpupool_nvidia::cuda::{
    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_NODE_TYPE_EMPTY,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
    CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_KERNEL,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE, CU_GRAPH_NODE_TYPE_MEMCPY,
    CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_KERNEL_NODE_PARAMS_v3, CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUgraphNodeParams, CUgraphNodeType, CUmemLocation, CUmemPoolProps,
};

use crate::{
    calls::memory_pool::device_of_pool,
    device::host_call::HostCall,
    error::{CuError, CuResult},
    memory::{
        graph_memory::GraphMemory,
        space::{MemoryCopy, MemoryFill},
    },
    objects::{
        context::{context, current},
        graph::node::NodeWork,
        launch::{Launch, LaunchShape},
        memcpy3d,
    },
};

/// Room for any of the structures in [`CUgraphNodeParams`].
type AnyParams = [u64; 29];

/// A kernel node's parameters in the newer form, which names a context too.
pub(super) const fn with_context(old: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS_v3 {
    CUDA_KERNEL_NODE_PARAMS_v3 {
        func: old.func,
        gridDimX: old.gridDimX,
        gridDimY: old.gridDimY,
        gridDimZ: old.gridDimZ,
        blockDimX: old.blockDimX,
        blockDimY: old.blockDimY,
        blockDimZ: old.blockDimZ,
        sharedMemBytes: old.sharedMemBytes,
        kernelParams: old.kernelParams,
        extra: old.extra,
        kern: 0,
        ctx: 0,
    }
}

/// A kernel node's parameters in the older form.
pub(super) const fn without_context(new: &CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: new.func,
        gridDimX: new.gridDimX,
        gridDimY: new.gridDimY,
        gridDimZ: new.gridDimZ,
        blockDimX: new.blockDimX,
        blockDimY: new.blockDimY,
        blockDimZ: new.blockDimZ,
        sharedMemBytes: new.sharedMemBytes,
        kernelParams: new.kernelParams,
        extra: new.extra,
    }
}

/// The launch that is described, in the context that is named or the current one.
///
/// # Safety
/// `kernelParams` is null or leads to as many addresses as the kernel has parameters, each of a value.
pub(super) unsafe fn kernel(described: &CUDA_KERNEL_NODE_PARAMS_v3) -> CuResult<NodeWork> {
    let context = if described.ctx == 0 { current()? } else { context(described.ctx)? };
    let function = if described.func == 0 { described.kern } else { described.func };
    let shape = LaunchShape {
        grid: [described.gridDimX, described.gridDimY, described.gridDimZ],
        block: [described.blockDimX, described.blockDimY, described.blockDimZ],
        shared: described.sharedMemBytes,
        cooperative: false,
    };
    let (parameters, extra) = (described.kernelParams, described.extra);
    // SAFETY: the caller vouches for the parameters.
    Ok(NodeWork::Kernel(unsafe { Launch::prepare(&context, function, shape, parameters, extra)? }))
}

/// The description of a launch.
pub(super) fn of_kernel(launch: &Launch) -> CUDA_KERNEL_NODE_PARAMS_v3 {
    let LaunchShape { grid, block, shared, .. } = launch.shape;
    CUDA_KERNEL_NODE_PARAMS_v3 {
        func: launch.function,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared,
        kernelParams: launch.arguments.addresses(),
        extra: std::ptr::null_mut(),
        kern: 0,
        ctx: 0,
    }
}

/// The fill that is described.
pub(super) fn fill(described: &CUDA_MEMSET_NODE_PARAMS) -> CuResult<NodeWork> {
    let CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize, width, height } = *described;
    if !matches!(elementSize, 1 | 2 | 4) || width == 0 || height == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(NodeWork::Fill(MemoryFill {
        to: dst,
        pattern: value.to_le_bytes(),
        unit: u64::from(elementSize),
        count: width as u64,
        rows: height as u64,
        pitch: pitch as u64,
    }))
}

/// The description of a fill.
pub(super) fn of_fill(fill: &MemoryFill) -> CUDA_MEMSET_NODE_PARAMS {
    let size = |value| usize::try_from(value).unwrap_or(usize::MAX);
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.to,
        pitch: size(fill.pitch),
        value: u32::from_le_bytes(fill.pattern),
        elementSize: u32::try_from(fill.unit).unwrap_or_default(),
        width: size(fill.count),
        height: size(fill.rows),
    }
}

/// The call that is described.
pub(super) fn call(described: &CUDA_HOST_NODE_PARAMS) -> CuResult<NodeWork> {
    let function = described.r#fn.ok_or(CuError::INVALID_VALUE)?;
    Ok(NodeWork::Call(HostCall { function, argument: described.userData }))
}

/// The description of a call.
pub(super) const fn of_call(call: &HostCall) -> CUDA_HOST_NODE_PARAMS {
    CUDA_HOST_NODE_PARAMS { r#fn: Some(call.function), userData: call.argument }
}

/// The allocation that is described, with its addresses.
pub(super) fn allocation(described: &CUDA_MEM_ALLOC_NODE_PARAMS_v1) -> CuResult<NodeWork> {
    if described.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE {
        return Err(CuError::INVALID_VALUE);
    }
    let device = device_of_pool(&described.poolProps)?;
    Ok(NodeWork::Allocate(GraphMemory::new(described.bytesize as u64, device)?))
}

/// The description of an allocation.
pub(super) fn of_allocation(memory: &GraphMemory) -> CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
    let pool = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { r#type: CU_MEM_LOCATION_TYPE_DEVICE, id: memory.device },
        win32SecurityAttributes: std::ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        gpuDirectRDMACapable: 0,
        reserved: [0; 53],
    };
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        poolProps: pool,
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        bytesize: usize::try_from(memory.size).unwrap_or(usize::MAX),
        dptr: memory.base,
    }
}

/// The description of a copy: the program's, if it gave one.
pub(super) fn of_copy(copy: &MemoryCopy, described: Option<&CUDA_MEMCPY3D>) -> CUDA_MEMCPY3D {
    described.copied().unwrap_or_else(|| memcpy3d::describe(copy))
}

/// The copy that is described; it keeps the description.
pub(super) fn copy(described: CUDA_MEMCPY3D) -> CuResult<NodeWork> {
    Ok(NodeWork::Copy(memcpy3d::copy(&described)?, Some(Box::new(described))))
}

/// The structure in a description of a node.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn params<T: Copy>(described: &CUgraphNodeParams) -> T {
    const { assert!(size_of::<T>() <= size_of::<AnyParams>()) };
    // SAFETY: it is shorter than the room; the caller vouches for the rest.
    unsafe { (&raw const described.reserved1).cast::<T>().read_unaligned() }
}

/// A description of a node of that type with a structure in it.
fn node<T: Copy>(r#type: CUgraphNodeType, params: T) -> CUgraphNodeParams {
    const { assert!(size_of::<T>() <= size_of::<AnyParams>()) };
    let mut reserved1: AnyParams = [0; 29];
    // SAFETY: it is shorter than the room.
    unsafe { (&raw mut reserved1).cast::<T>().write_unaligned(params) };
    CUgraphNodeParams { r#type, reserved0: [0; 3], reserved1, reserved2: 0 }
}

/// The work that is described. A child graph is the program's own here, and is copied by whoever adds it.
///
/// # Safety
/// As for [`kernel`], where it is one.
pub(super) unsafe fn work(described: &CUgraphNodeParams) -> CuResult<NodeWork> {
    // SAFETY: plain structures without forbidden values: integers, pointers, a function or none; for a kernel the caller
    // vouches.
    unsafe {
        match described.r#type {
            CU_GRAPH_NODE_TYPE_KERNEL => kernel(&params(described)),
            CU_GRAPH_NODE_TYPE_MEMCPY => copy(params::<CUDA_MEMCPY_NODE_PARAMS>(described).copyParams),
            CU_GRAPH_NODE_TYPE_MEMSET => fill(&params(described)),
            CU_GRAPH_NODE_TYPE_HOST => call(&params(described)),
            CU_GRAPH_NODE_TYPE_GRAPH => Ok(NodeWork::Child(params(described))),
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(NodeWork::Empty),
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Ok(NodeWork::Wait(params(described))),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => Ok(NodeWork::Record(params(described))),
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => allocation(&params(described)),
            CU_GRAPH_NODE_TYPE_MEM_FREE => Ok(NodeWork::Free(params(described))),
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
            | CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
            | CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
            | CU_GRAPH_NODE_TYPE_CONDITIONAL => Err(CuError::NOT_SUPPORTED),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

/// The description of work.
pub(super) fn of(work: &NodeWork) -> CUgraphNodeParams {
    let kind = work.kind();
    match work {
        NodeWork::Kernel(launch) => node(kind, of_kernel(launch)),
        NodeWork::Copy(copy, described) => {
            let copy = of_copy(copy, described.as_deref());
            node(kind, CUDA_MEMCPY_NODE_PARAMS { flags: 0, reserved: 0, copyCtx: 0, copyParams: copy })
        }
        NodeWork::Fill(fill) => node(kind, of_fill(fill)),
        NodeWork::Call(call) => node(kind, of_call(call)),
        NodeWork::Child(handle) | NodeWork::Wait(handle) | NodeWork::Record(handle) => node(kind, *handle),
        NodeWork::Empty => node(kind, 0_u64),
        NodeWork::Allocate(memory) => node(kind, of_allocation(memory)),
        NodeWork::Free(pointer) => node(kind, *pointer),
    }
}

/// Tells the program the address of an allocation node.
pub(super) fn answer(described: &mut CUgraphNodeParams, memory: &Arc<GraphMemory>) {
    // SAFETY: a plain structure of integers and pointers.
    let mut allocation: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = unsafe { params(described) };
    allocation.dptr = memory.base;
    described.reserved1 = node(described.r#type, allocation).reserved1;
}
