//! More of the C interface: arrays, addresses, memory of other processes.

use std::ffi::c_void;

use crate::api::Handle;

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Array3 {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties {
    pub allocation: u32,
    pub handle_types: u32,
    pub location: u32,
    pub location_id: i32,
    pub rest: [u64; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub location: u32,
    pub location_id: i32,
    pub flags: u32,
}

/// What `CUipcMemHandle`, `CUipcEventHandle` and `CUmemPoolPtrExportData` are: 64 bytes, passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opaque(pub [u64; 8]);

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelNode {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub parameters: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: Handle,
    pub context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetNode {
    pub to: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HostNode {
    pub function: Option<crate::api::Callback>,
    pub argument: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocNode {
    pub properties: [u32; 22],
    pub access: *const Access,
    pub access_count: usize,
    pub size: usize,
    pub pointer: u64,
}

/// `CUgraphNodeParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NodeParameters {
    pub kind: u32,
    pub reserved: [u32; 3],
    pub body: [u64; 30],
}

unsafe extern "C" {
    pub fn cuArray3DCreate_v2(array: *mut Handle, description: *const Array3) -> i32;
    pub fn cuArrayDestroy(array: Handle) -> i32;
    pub fn cuArray3DGetDescriptor_v2(description: *mut Array3, array: Handle) -> i32;
    pub fn cuArrayGetDescriptor_v2(description: *mut [u64; 3], array: Handle) -> i32;
    pub fn cuArrayGetMemoryRequirements(out: *mut [u64; 4], array: Handle, device: i32) -> i32;
    pub fn cuArrayGetSparseProperties(out: *mut [u64; 6], array: Handle) -> i32;
    pub fn cuMipmappedArrayCreate(array: *mut Handle, description: *const Array3, levels: u32) -> i32;
    pub fn cuMipmappedArrayGetLevel(level: *mut Handle, array: Handle, number: u32) -> i32;
    pub fn cuMipmappedArrayDestroy(array: Handle) -> i32;
    pub fn cuMipmappedArrayGetMemoryRequirements(out: *mut [u64; 4], array: Handle, device: i32) -> i32;
    pub fn cuMemcpy3D_v2(description: *const [u64; 25]) -> i32;
    pub fn cuMemcpyHtoA_v2(to: Handle, offset: usize, from: *const c_void, bytes: usize) -> i32;
    pub fn cuMemcpyAtoH_v2(to: *mut c_void, from: Handle, offset: usize, bytes: usize) -> i32;
    pub fn cuMemcpyAtoD_v2(to: u64, from: Handle, offset: usize, bytes: usize) -> i32;
    pub fn cuTexObjectCreate(
        object: *mut Handle,
        resource: *const [u64; 18],
        sampling: *const [u32; 26],
        view: *const c_void,
    ) -> i32;
    pub fn cuTexObjectDestroy(object: Handle) -> i32;
    pub fn cuTexObjectGetResourceDesc(resource: *mut [u64; 18], object: Handle) -> i32;
    pub fn cuSurfObjectCreate(object: *mut Handle, resource: *const [u64; 18]) -> i32;
    pub fn cuSurfObjectDestroy(object: Handle) -> i32;
    pub fn cuMemMapArrayAsync(list: *const [u64; 12], count: u32, stream: Handle) -> i32;
    pub fn cuMemAddressReserve(start: *mut u64, size: usize, alignment: usize, wish: u64, flags: u64) -> i32;
    pub fn cuMemAddressFree(start: u64, size: usize) -> i32;
    pub fn cuMemGetAllocationGranularity(out: *mut usize, properties: *const Properties, option: u32) -> i32;
    pub fn cuMemCreate(handle: *mut Handle, size: usize, properties: *const Properties, flags: u64) -> i32;
    pub fn cuMemRelease(handle: Handle) -> i32;
    pub fn cuMemMap(start: u64, size: usize, offset: usize, handle: Handle, flags: u64) -> i32;
    pub fn cuMemUnmap(start: u64, size: usize) -> i32;
    pub fn cuMemSetAccess(start: u64, size: usize, list: *const Access, count: usize) -> i32;
    pub fn cuMemGetAccess(flags: *mut u64, location: *const [u32; 2], pointer: u64) -> i32;
    pub fn cuMemRetainAllocationHandle(handle: *mut Handle, pointer: u64) -> i32;
    pub fn cuMemGetAllocationPropertiesFromHandle(properties: *mut Properties, handle: Handle) -> i32;
    pub fn cuMemExportToShareableHandle(out: *mut i32, handle: Handle, kind: u32, flags: u64) -> i32;
    pub fn cuMemImportFromShareableHandle(handle: *mut Handle, descriptor: usize, kind: u32) -> i32;
    pub fn cuIpcGetMemHandle(token: *mut Opaque, pointer: u64) -> i32;
    pub fn cuIpcOpenMemHandle_v2(pointer: *mut u64, token: Opaque, flags: u32) -> i32;
    pub fn cuIpcCloseMemHandle(pointer: u64) -> i32;
    pub fn cuIpcGetEventHandle(token: *mut Opaque, event: Handle) -> i32;
    pub fn cuIpcOpenEventHandle(event: *mut Handle, token: Opaque) -> i32;
    pub fn cuMemPoolExportToShareableHandle(out: *mut i32, pool: Handle, kind: u32, flags: u64) -> i32;
    pub fn cuMemPoolImportFromShareableHandle(
        pool: *mut Handle,
        descriptor: usize,
        kind: u32,
        flags: u64,
    ) -> i32;
    pub fn cuMemPoolExportPointer(token: *mut Opaque, pointer: u64) -> i32;
    pub fn cuMemPoolImportPointer(pointer: *mut u64, pool: Handle, token: *const Opaque) -> i32;
    pub fn cuGraphCreate(graph: *mut Handle, flags: u32) -> i32;
    pub fn cuGraphDestroy(graph: Handle) -> i32;
    pub fn cuGraphClone(graph: *mut Handle, original: Handle) -> i32;
    pub fn cuGraphAddKernelNode_v2(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        kernel: *const KernelNode,
    ) -> i32;
    pub fn cuGraphAddMemsetNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        set: *const SetNode,
        context: Handle,
    ) -> i32;
    pub fn cuGraphAddMemcpyNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        copy: *const [u64; 25],
        context: Handle,
    ) -> i32;
    pub fn cuGraphAddHostNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        host: *const HostNode,
    ) -> i32;
    pub fn cuGraphAddEmptyNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize) -> i32;
    pub fn cuGraphAddChildGraphNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        child: Handle,
    ) -> i32;
    pub fn cuGraphAddEventRecordNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        event: Handle,
    ) -> i32;
    pub fn cuGraphAddMemAllocNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        allocation: *mut AllocNode,
    ) -> i32;
    pub fn cuGraphAddMemFreeNode(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        count: usize,
        pointer: u64,
    ) -> i32;
    pub fn cuGraphAddNode_v2(
        node: *mut Handle,
        graph: Handle,
        after: *const Handle,
        edges: *const c_void,
        count: usize,
        parameters: *mut NodeParameters,
    ) -> i32;
    pub fn cuGraphAddDependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize)
    -> i32;
    pub fn cuGraphRemoveDependencies(
        graph: Handle,
        from: *const Handle,
        to: *const Handle,
        count: usize,
    ) -> i32;
    pub fn cuGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) -> i32;
    pub fn cuGraphGetRootNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> i32;
    pub fn cuGraphNodeGetType(node: Handle, kind: *mut u32) -> i32;
    pub fn cuGraphNodeFindInClone(node: *mut Handle, original: Handle, clone: Handle) -> i32;
    pub fn cuGraphDestroyNode(node: Handle) -> i32;
    pub fn cuGraphKernelNodeGetParams_v2(node: Handle, kernel: *mut KernelNode) -> i32;
    pub fn cuGraphMemsetNodeGetParams(node: Handle, set: *mut SetNode) -> i32;
    pub fn cuGraphMemsetNodeSetParams(node: Handle, set: *const SetNode) -> i32;
    pub fn cuGraphExecMemsetNodeSetParams(
        executable: Handle,
        node: Handle,
        set: *const SetNode,
        context: Handle,
    ) -> i32;
    pub fn cuGraphExecKernelNodeSetParams_v2(
        executable: Handle,
        node: Handle,
        kernel: *const KernelNode,
    ) -> i32;
    pub fn cuGraphNodeSetEnabled(executable: Handle, node: Handle, enabled: u32) -> i32;
    pub fn cuGraphExecUpdate_v2(executable: Handle, graph: Handle, result: *mut [u64; 3]) -> i32;
    pub fn cuGraphExecDestroy(executable: Handle) -> i32;
    pub fn cuGraphUpload(executable: Handle, stream: Handle) -> i32;
    pub fn cuGraphInstantiateWithParams(
        executable: *mut Handle,
        graph: Handle,
        parameters: *mut [u64; 4],
    ) -> i32;
    pub fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: *mut u64) -> i32;
    pub fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: *const u64) -> i32;
    pub fn cuDeviceGraphMemTrim(device: i32) -> i32;
    pub fn cuImportExternalMemory(memory: *mut Handle, description: *const [u64; 13]) -> i32;
    pub fn cuExternalMemoryGetMappedBuffer(
        pointer: *mut u64,
        memory: Handle,
        buffer: *const [u64; 11],
    ) -> i32;
    pub fn cuDestroyExternalMemory(memory: Handle) -> i32;
    pub fn cuDeviceGetDevResource(device: i32, resource: *mut [u32; 36], kind: u32) -> i32;
    pub fn cuDevSmResourceSplitByCount(
        parts: *mut [u32; 36],
        count: *mut u32,
        input: *const [u32; 36],
        rest: *mut [u32; 36],
        flags: u32,
        least: u32,
    ) -> i32;
    pub fn cuDevResourceGenerateDesc(out: *mut Handle, list: *const [u32; 36], count: u32) -> i32;
    pub fn cuGreenCtxCreate(out: *mut Handle, description: Handle, device: i32, flags: u32) -> i32;
    pub fn cuGreenCtxDestroy(green: Handle) -> i32;
    pub fn cuCtxFromGreenCtx(context: *mut Handle, green: Handle) -> i32;
    pub fn cuGreenCtxStreamCreate(stream: *mut Handle, green: Handle, flags: u32, priority: i32) -> i32;
    pub fn cuLinkCreate_v2(count: u32, options: *mut i32, values: *mut *mut c_void, link: *mut Handle)
    -> i32;
    pub fn cuLinkAddData_v2(
        link: Handle,
        kind: u32,
        data: *const c_void,
        size: usize,
        name: *const std::ffi::c_char,
        count: u32,
        options: *mut i32,
        values: *mut *mut c_void,
    ) -> i32;
    pub fn cuLinkComplete(link: Handle, image: *mut *mut c_void, size: *mut usize) -> i32;
    pub fn cuLinkDestroy(link: Handle) -> i32;
    pub fn cuFuncSetBlockShape(function: Handle, x: i32, y: i32, z: i32) -> i32;
    pub fn cuParamSeti(function: Handle, offset: i32, value: u32) -> i32;
    pub fn cuLaunchGrid(function: Handle, width: i32, height: i32) -> i32;
    pub fn cuLaunchCooperativeKernelMultiDevice(list: *const [u64; 7], count: u32, flags: u32) -> i32;
    pub fn cuMemAlloc(pointer: *mut u32, bytes: u32) -> i32;
    pub fn cuMemFree(pointer: u32) -> i32;
    pub fn cuMemcpyHtoD(to: u32, from: *const c_void, bytes: u32) -> i32;
    pub fn cuMemGetAddressRange(base: *mut u32, size: *mut u32, pointer: u32) -> i32;
    pub fn cuCtxSetLimit(limit: i32, value: usize) -> i32;
    pub fn cuCtxGetLimit(value: *mut usize, limit: i32) -> i32;
    pub fn cuLibraryLoadData(
        library: *mut Handle,
        code: *const c_void,
        jit_options: *mut i32,
        jit_values: *mut *mut c_void,
        jit_count: u32,
        options: *mut i32,
        values: *mut *mut c_void,
        count: u32,
    ) -> i32;
    pub fn cuLibraryUnload(library: Handle) -> i32;
    pub fn cuLibraryGetKernel(kernel: *mut Handle, library: Handle, name: *const std::ffi::c_char) -> i32;
    pub fn cuStreamWaitValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) -> i32;
    pub fn cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) -> i32;
    pub fn cuMemcpyBatchAsync_v2(
        to: *const u64,
        from: *const u64,
        sizes: *const usize,
        count: usize,
        attributes: *const c_void,
        places: *const usize,
        attribute_count: usize,
        stream: Handle,
    ) -> i32;
}
