//! Which hook a row leads to, for each row of kind `identity` or `hook`.
//!
//! A row that is missing here, a name without a row, a row that is bound twice and a hook of another form do not compile
//! (`entry_points`).

/// Hands to a macro the rows whose hooks have the form of the function that they stand for.
///
/// `identity`: called until the first grant only; `direct`: always.
macro_rules! for_each_binding {
    ($then:ident) => {
        $then! {
            // Finding functions.
            direct dlsym = resolver::dlsym;
            direct dlvsym = resolver::dlvsym;
            direct cuGetProcAddress = resolver::get_proc_address;
            direct cuGetProcAddress_v2 = resolver::get_proc_address_v2;
            direct cuGetProcAddress_v2_ptsz = resolver::get_proc_address_v2_ptsz;

            // Who the card is.
            direct cuInit = identity::init;
            identity cuDeviceGetCount = identity::count;
            identity cuDeviceGet = identity::get;
            identity cuDeviceGetName = identity::name;
            identity cuDeviceGetUuid = identity::uuid;
            identity cuDeviceGetUuid_v2 = identity::uuid;
            identity cuDeviceGetAttribute = identity::attribute;
            direct cuDeviceTotalMem = identity::total_memory_v1;
            direct cuDeviceTotalMem_v2 = identity::total_memory;
            identity cuDeviceGetPCIBusId = identity::bus_id;
            identity cuDeviceGetByPCIBusId = identity::by_bus_id;
            identity cuDeviceComputeCapability = identity::compute_capability;
            identity cuDevicePrimaryCtxGetState = identity::primary_state;
            identity cuCtxGetCurrent = identity::current_context;
            identity cuCtxSetCurrent = identity::set_current_context;

            // Contexts.
            direct cuDevicePrimaryCtxRetain = contexts::retain_primary;
            direct cuDevicePrimaryCtxRelease = contexts::release_primary;
            direct cuDevicePrimaryCtxRelease_v2 = contexts::release_primary_v2;
            direct cuDevicePrimaryCtxReset = contexts::reset_primary;
            direct cuDevicePrimaryCtxReset_v2 = contexts::reset_primary_v2;

            // Plain, pitched and managed memory.
            direct cuMemAlloc = memory::alloc_v1;
            direct cuMemAlloc_v2 = memory::alloc;
            direct cuMemAllocPitch = memory::alloc_pitch_v1;
            direct cuMemFree = memory::free_v1;
            direct cuMemFree_v2 = memory::free;
            direct cuMemGetInfo = memory::info_v1;
            direct cuMemGetInfo_v2 = memory::info;

            // The management library.
            direct nvmlDeviceGetCount = nvml::count;
            direct nvmlDeviceGetCount_v2 = nvml::count_v2;
            direct nvmlDeviceGetHandleByIndex = nvml::by_index;
            direct nvmlDeviceGetHandleByIndex_v2 = nvml::by_index_v2;
            direct nvmlDeviceGetHandleByUUID = nvml::by_uuid;
            direct nvmlDeviceGetHandleByUUIDV = nvml::by_uuid_structure;
            direct nvmlDeviceGetHandleByPciBusId = nvml::by_bus_id;
            direct nvmlDeviceGetHandleByPciBusId_v2 = nvml::by_bus_id_v2;
            direct nvmlDeviceGetHandleBySerial = nvml::by_serial;
            direct nvmlDeviceGetMemoryInfo = nvml::memory;
            direct nvmlDeviceGetMemoryInfo_v2 = nvml::memory_v2;
            direct nvmlDeviceGetComputeRunningProcesses = nvml::processes::computing;
            direct nvmlDeviceGetComputeRunningProcesses_v2 = nvml::processes::computing_v2;
            direct nvmlDeviceGetComputeRunningProcesses_v3 = nvml::processes::computing_v3;
            direct nvmlDeviceGetGraphicsRunningProcesses = nvml::processes::drawing;
            direct nvmlDeviceGetGraphicsRunningProcesses_v2 = nvml::processes::drawing_v2;
            direct nvmlDeviceGetGraphicsRunningProcesses_v3 = nvml::processes::drawing_v3;
            direct nvmlDeviceGetMPSComputeRunningProcesses = nvml::processes::served;
            direct nvmlDeviceGetMPSComputeRunningProcesses_v2 = nvml::processes::served_v2;
            direct nvmlDeviceGetMPSComputeRunningProcesses_v3 = nvml::processes::served_v3;
            direct nvmlDeviceGetRunningProcessDetailList = nvml::processes::details;
            direct nvmlDeviceGetProcessUtilization = nvml::processes::utilisation_of_processes;
            direct nvmlDeviceGetProcessesUtilizationInfo = nvml::processes::utilisation_infos;
            direct nvmlDeviceGetUtilizationRates = nvml::processes::utilisation;
        }
    };
}

/// Hands to a macro the families whose hooks are handed the arguments as words
/// ([`WordHook`](super::words::WordHook)): each hook with its rows.
macro_rules! for_each_family {
    ($then:ident) => {
        $then! {
            // Memory pools, and what waits for work, after which they may be smaller.
            memory_pools {
                named: cuMemGetDefaultMemPool cuMemGetMemPool cuMemPoolCreate;
                alloc: cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync
                    cuMemAllocFromPoolAsync_ptsz;
                settling: cuDeviceGraphMemTrim cuMemPoolTrimTo cuCtxSynchronize cuCtxSynchronize_v2
                    cuStreamSynchronize cuStreamSynchronize_ptsz cuEventSynchronize;
                destroy: cuMemPoolDestroy;
            }

            // Contexts.
            contexts {
                create: cuGLCtxCreate cuGLCtxCreate_v2 cuVDPAUCtxCreate cuVDPAUCtxCreate_v2 cuCtxCreate
                    cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4;
                destroy: cuCtxDestroy cuCtxDestroy_v2 cuCtxDetach;
            }

            // Pitched and managed memory, and frees in the order of a stream.
            memory {
                alloc_pitch: cuMemAllocPitch_v2;
                alloc_managed: cuMemAllocManaged;
                free_async: cuMemFreeAsync cuMemFreeAsync_ptsz;
            }

            // Arrays.
            arrays {
                create: cuArrayCreate cuArrayCreate_v2 cuArray3DCreate cuArray3DCreate_v2
                    cuMipmappedArrayCreate;
                destroy: cuArrayDestroy cuMipmappedArrayDestroy;
            }

            // Virtual memory.
            virtual_memory {
                create: cuMemCreate;
                release: cuMemRelease;
                map: cuMemMap;
                unmap: cuMemUnmap;
                retain_handle: cuMemRetainAllocationHandle;
                export: cuMemExportToShareableHandle;
                import: cuMemImportFromShareableHandle;
                map_array: cuMemMapArrayAsync cuMemMapArrayAsync_ptsz;
            }

            // Graphs that allocate.
            graphs {
                add_node: cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3;
                instantiate: cuGraphInstantiate cuGraphInstantiate_v2 cuGraphInstantiateWithFlags
                    cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz;
                upload: cuGraphUpload cuGraphUpload_ptsz;
                destroy: cuGraphExecDestroy;
            }

            // Loaded code, green contexts, limits of a context.
            modules {
                load: cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary
                    cuLibraryLoadData cuLibraryLoadFromFile cuGreenCtxCreate;
                unload: cuModuleUnload cuLibraryUnload cuGreenCtxDestroy;
                set_limit: cuCtxSetLimit;
            }

            // Memory of other processes.
            ipc {
                get: cuIpcGetMemHandle;
                open: cuIpcOpenMemHandle cuIpcOpenMemHandle_v2;
                close: cuIpcCloseMemHandle;
            }

            // Memory of other APIs.
            external {
                import: cuImportExternalMemory;
                destroy: cuDestroyExternalMemory;
            }
        }
    };
}
pub(super) use {for_each_binding, for_each_family};
