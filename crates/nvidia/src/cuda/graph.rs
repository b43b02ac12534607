//! Graphs: their nodes, making them ready, changing them.

use core::ffi::c_void;

use super::array::CUDA_MEMCPY3D;
use super::memory::{CUmemAccessDesc, CUmemPoolProps};
use crate::declare::{constants, structures};

constants! {
    /// What a node does.
    enum CUgraphNodeType = u32 {
        CU_GRAPH_NODE_TYPE_KERNEL = 0,
        CU_GRAPH_NODE_TYPE_MEMCPY = 1,
        CU_GRAPH_NODE_TYPE_MEMSET = 2,
        CU_GRAPH_NODE_TYPE_HOST = 3,
        CU_GRAPH_NODE_TYPE_GRAPH = 4,
        CU_GRAPH_NODE_TYPE_EMPTY = 5,
        CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
        CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12,
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
        CU_GRAPH_NODE_TYPE_MEMCPY_BATCH = 14 since 13,
        CU_GRAPH_NODE_TYPE_RESERVED_16 = 16 since 13,
        CU_GRAPH_NODE_TYPE_EXTERNAL_ENGINE = 17 since 13,
        CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH = 18 since 13,
    }

    /// Flags of making a graph ready.
    enum CUgraphInstantiate_flags = u64 {
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 0x01,
        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 0x02,
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH = 0x04,
        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 0x08,
    }

    /// Whether a graph could be made ready.
    enum CUgraphInstantiateResult = u32 {
        CUDA_GRAPH_INSTANTIATE_SUCCESS = 0,
        CUDA_GRAPH_INSTANTIATE_ERROR = 1,
        CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE = 2,
        CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED = 3,
        CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED = 4,
        CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED = 5,
    }

    /// Whether a graph that is ready could be changed.
    enum CUgraphExecUpdateResult = u32 {
        CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
        CU_GRAPH_EXEC_UPDATE_ERROR = 1,
        CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
        CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
        CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED = 4,
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5,
        CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 6,
        CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
        CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED = 8,
    }

    /// Flag of keeping an object: the caller's own references move.
    enum CUuserObjectRetain_flags = u32 {
        CU_GRAPH_USER_OBJECT_MOVE = 1,
    }
}

structures! {
    /// A kernel's launch.
    struct CUDA_KERNEL_NODE_PARAMS_v1 {
        func: u64,
        gridDimX: u32,
        gridDimY: u32,
        gridDimZ: u32,
        blockDimX: u32,
        blockDimY: u32,
        blockDimZ: u32,
        sharedMemBytes: u32,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    }

    /// A kernel's launch; the versions 2 and 3 are laid out alike.
    struct CUDA_KERNEL_NODE_PARAMS_v3 {
        func: u64,
        gridDimX: u32,
        gridDimY: u32,
        gridDimZ: u32,
        blockDimX: u32,
        blockDimY: u32,
        blockDimZ: u32,
        sharedMemBytes: u32,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        /// Used where there is no function.
        kern: u64,
        ctx: u64,
    }

    /// A copy.
    struct CUDA_MEMCPY_NODE_PARAMS {
        flags: i32,
        reserved: i32,
        copyCtx: u64,
        copyParams: CUDA_MEMCPY3D,
    }

    /// A fill. The pitch in bytes, the width in elements of 1, 2 or 4 bytes.
    struct CUDA_MEMSET_NODE_PARAMS {
        dst: u64,
        pitch: usize,
        value: u32,
        elementSize: u32,
        width: usize,
        height: usize,
    }

    /// A call of the program's.
    struct CUDA_HOST_NODE_PARAMS {
        r#fn: Option<unsafe extern "C" fn(*mut c_void)>,
        userData: *mut c_void,
    }

    /// An allocation; the versions 1 and 2 are laid out alike.
    struct CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
        poolProps: CUmemPoolProps,
        accessDescs: *const CUmemAccessDesc,
        accessDescCount: usize,
        /// Bytes.
        bytesize: usize,
        /// The driver's answer.
        dptr: u64,
    }

    /// An allocation, as the calls for this kind of node have it.
    struct CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        poolProps: CUmemPoolProps,
        accessDescs: *const CUmemAccessDesc,
        accessDescCount: usize,
        /// Bytes.
        bytesize: usize,
        /// The driver's answer.
        dptr: u64,
    }

    /// A node of any type.
    struct CUgraphNodeParams {
        r#type: CUgraphNodeType,
        reserved0: [i32; 3],
        /// The structure that goes with the type.
        reserved1: [u64; 29],
        reserved2: i64,
    }

    /// An edge; what all zeros say is "after all of it".
    struct CUgraphEdgeData {
        from_port: u8,
        to_port: u8,
        r#type: u8,
        reserved: [u8; 5],
    }

    /// How `cuGraphInstantiateWithParams` makes ready, and its answer.
    struct CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: CUgraphInstantiate_flags,
        hUploadStream: u64,
        hErrNode_out: u64,
        result_out: CUgraphInstantiateResult,
    }

    /// What stood in the way of a change.
    struct CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult,
        errorNode: u64,
        errorFromNode: u64,
    }
}
