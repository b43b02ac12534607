//! Memory: allocations and where they lie, mappings, pools, pointers, host memory, memory of other processes and APIs.

use core::ffi::c_void;

use crate::declare::{constants, structures};

constants! {
    /// The kind of a [`CUmemLocation`].
    enum CUmemLocationType = u32 {
        CU_MEM_LOCATION_TYPE_INVALID = 0,
        CU_MEM_LOCATION_TYPE_DEVICE = 1,
        CU_MEM_LOCATION_TYPE_HOST = 2,
        CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
        CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
        CU_MEM_LOCATION_TYPE_INVISIBLE = 5 since 13,
        CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6 since 13,
    }

    /// What an allocation is.
    enum CUmemAllocationType = u32 {
        CU_MEM_ALLOCATION_TYPE_INVALID = 0,
        CU_MEM_ALLOCATION_TYPE_PINNED = 1,
        CU_MEM_ALLOCATION_TYPE_MANAGED = 2 since 13,
    }

    /// How an allocation can be handed to others; bits.
    enum CUmemAllocationHandleType = u32 {
        CU_MEM_HANDLE_TYPE_NONE = 0x00,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 0x01,
        CU_MEM_HANDLE_TYPE_WIN32 = 0x02,
        CU_MEM_HANDLE_TYPE_WIN32_KMT = 0x04,
        CU_MEM_HANDLE_TYPE_FABRIC = 0x08,
    }

    /// What `cuMemGetAllocationGranularity` is asked for.
    enum CUmemAllocationGranularity_flags = u32 {
        CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
    }

    /// How mapped memory may be accessed; bits.
    enum CUmemAccess_flags = u32 {
        CU_MEM_ACCESS_FLAGS_PROT_NONE = 0x00,
        CU_MEM_ACCESS_FLAGS_PROT_READ = 0x01,
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 0x03,
    }

    /// What `cuMemPoolGetAttribute` is asked for: amounts of memory are 64 bits of bytes, all others an `int`.
    enum CUmemPool_attribute = u32 {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
        CU_MEMPOOL_ATTR_ALLOCATION_TYPE = 9 since 13,
        CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES = 10 since 13,
        CU_MEMPOOL_ATTR_LOCATION_ID = 11 since 13,
        CU_MEMPOOL_ATTR_LOCATION_TYPE = 12 since 13,
        CU_MEMPOOL_ATTR_MAX_POOL_SIZE = 13 since 13,
        CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED = 14 since 13,
        CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID = 15 since 13,
    }

    /// What `cuDeviceGetGraphMemAttribute` is asked for: 64 bits of bytes.
    enum CUgraphMem_attribute = u32 {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3,
    }

    /// What `cuPointerGetAttribute` is asked for; each has a type of its own.
    enum CUpointer_attribute = i32 {
        CU_POINTER_ATTRIBUTE_CONTEXT = 1,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
        CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
        CU_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
        CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
        CU_POINTER_ATTRIBUTE_MAPPED = 13,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE = 21,
        CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL = 22 since 13,
    }

    /// On which side memory of a copy lies.
    enum CUmemorytype = u32 {
        CU_MEMORYTYPE_HOST = 1,
        CU_MEMORYTYPE_DEVICE = 2,
        CU_MEMORYTYPE_ARRAY = 3,
        CU_MEMORYTYPE_UNIFIED = 4,
    }

    /// Who may access managed memory.
    enum CUmemAttach_flags = u32 {
        CU_MEM_ATTACH_GLOBAL = 0x01,
        CU_MEM_ATTACH_HOST = 0x02,
        CU_MEM_ATTACH_SINGLE = 0x04,
    }

    /// Flags of `cuIpcOpenMemHandle`.
    enum CUipcMem_flags = u32 {
        CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 0x01,
    }

    /// What external memory is named by.
    enum CUexternalMemoryHandleType = u32 {
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32 = 2,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT = 3,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP = 4,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE = 5,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE = 6,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT = 7,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF = 8,
        CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD = 9 since 13,
    }

    /// What an external semaphore is named by.
    enum CUexternalSemaphoreHandleType = u32 {
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD = 1,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32 = 2,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT = 3,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE = 4,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE = 5,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC = 6,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX = 7,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT = 8,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD = 9,
        CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32 = 10,
    }

    // Flags of `cuMemHostAlloc`.
    u32 {
        CU_MEMHOSTALLOC_PORTABLE = 1,
        CU_MEMHOSTALLOC_DEVICEMAP = 2,
        CU_MEMHOSTALLOC_WRITECOMBINED = 4,
    }

    // Flags of `cuMemHostRegister`.
    u32 {
        CU_MEMHOSTREGISTER_PORTABLE = 1,
        CU_MEMHOSTREGISTER_DEVICEMAP = 2,
        CU_MEMHOSTREGISTER_IOMEMORY = 4,
        CU_MEMHOSTREGISTER_READ_ONLY = 8,
    }

    // The flag of [`CUDA_EXTERNAL_MEMORY_HANDLE_DESC`]: memory of one resource of the other API.
    u32 {
        CUDA_EXTERNAL_MEMORY_DEDICATED = 1,
    }

    // Bytes of a handle that another process opens.
    usize {
        CU_IPC_HANDLE_SIZE = 64,
    }
}

structures! {
    /// Where memory lies.
    struct CUmemLocation {
        r#type: CUmemLocationType,
        /// The device's number, or the NUMA node's.
        id: i32,
    }

    /// What `cuMemCreate` is asked for.
    struct CUmemAllocationProp {
        r#type: CUmemAllocationType,
        requestedHandleTypes: CUmemAllocationHandleType,
        location: CUmemLocation,
        win32HandleMetaData: *mut c_void,
        compressionType: u8 = "allocFlags.compressionType",
        gpuDirectRDMACapable: u8 = "allocFlags.gpuDirectRDMACapable",
        usage: u16 = "allocFlags.usage",
        reserved: [u8; 4] = "allocFlags.reserved",
    }

    /// What `cuMemPoolCreate` is asked for.
    struct CUmemPoolProps {
        allocType: CUmemAllocationType,
        handleTypes: CUmemAllocationHandleType,
        location: CUmemLocation,
        win32SecurityAttributes: *mut c_void,
        /// Most bytes; 0 for as many as there are.
        maxSize: usize,
        usage: u16,
        gpuDirectRDMACapable: u8 = "gpuDirectRDMACapable" since 13,
        reserved: [u8; 53] = "reserved" since 13,
    }

    /// Who may access memory, and how.
    struct CUmemAccessDesc {
        location: CUmemLocation,
        flags: CUmemAccess_flags,
    }

    /// Memory that another process can open.
    struct CUipcMemHandle {
        reserved: [u8; CU_IPC_HANDLE_SIZE],
    }

    /// An event that another process can open.
    struct CUipcEventHandle {
        reserved: [u8; CU_IPC_HANDLE_SIZE],
    }

    /// An allocation that a process of another node can open.
    struct CUmemFabricHandle {
        data: [u8; 64],
    }

    /// An allocation of a pool that another process can open.
    struct CUmemPoolPtrExportData {
        reserved: [u8; 64],
    }

    /// Memory of another API.
    struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        r#type: CUexternalMemoryHandleType,
        padding: u32 = "",
        /// The descriptor, for the kinds that are one.
        fd: i32 = "handle.fd",
        unused: i32 = "",
        /// A pointer; on other systems only.
        name: u64 = "handle.win32.name",
        /// Bytes.
        size: u64,
        flags: u32,
        reserved: [u32; 16],
    }

    /// A part of external memory.
    struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
        /// Bytes.
        offset: u64,
        /// Bytes.
        size: u64,
        flags: u32,
        reserved: [u32; 16],
    }

    /// A semaphore of another API.
    struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
        r#type: CUexternalSemaphoreHandleType,
        padding: u32 = "",
        /// The descriptor, for the kinds that are one.
        fd: i32 = "handle.fd",
        unused: i32 = "",
        /// A pointer; on other systems only.
        name: u64 = "handle.win32.name",
        flags: u32,
        reserved: [u32; 16],
    }
}
