//! The one table: a row for every entry point that the shim exports, with its class and its hook.
//!
//! A name that is not here is never touched: the program talks to the real function. What is here is exported under
//! its own name (`entry_points`), handed out by `dlsym` and by `cuGetProcAddress`, and nothing else is.
//!
//! A row is one of
//!
//! * `identity`: answered by a function of this crate until the first grant, by the driver before `cuInit` and after
//!   the grant;
//! * `gate`: needs the driver initialised, hence the first grant; afterwards a load and a jump;
//! * `lease`: needs a lease each time the pod holds none (it takes memory or hands out private tables);
//! * `context`: needs a current context, so before the first grant the answer is "invalid context";
//! * `launch`: likewise, and submits work; a load, a mark and a jump;
//! * `hook`: a function of this crate, with its class.

/// What an entry point does, as far as the shim cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Finds functions; what it finds is replaced by the hook where there is one.
    Resolves,
    /// Answered from the card table until the process holds a card.
    Identity,
    /// Makes no sense without a current context.
    NeedsContext,
    /// Needs an initialised driver.
    Gate,
    /// Needs a lease whenever the process holds none.
    NeedsLease,
    /// Takes device memory, which is charged to the pod.
    Charges,
    /// Gives device memory back.
    Frees,
    /// Waits for work, after which the driver may have given pool memory back.
    Settles,
    /// Submits work.
    Launches,
    /// Shows memory or cards as the pod may see them.
    Views,
}

/// Hands the whole table to a macro.
macro_rules! for_each_row {
    ($then:ident) => {
        $then! {
            hook dlsym: Resolves = crate::trampolines::dlsym;
            hook dlvsym: Resolves = crate::trampolines::dlvsym;
            hook cuGetProcAddress: Resolves = crate::resolve::get_proc_address;
            hook cuGetProcAddress_v2: Resolves = crate::resolve::get_proc_address_v2;
            hook cuGetProcAddress_v2_ptsz: Resolves = crate::resolve::get_proc_address_v2_ptsz;

            hook cuInit: Identity = crate::identity::init;
            identity cuDeviceGetCount: Identity = crate::identity::count;
            identity cuDeviceGet: Identity = crate::identity::get;
            identity cuDeviceGetName: Identity = crate::identity::name;
            identity cuDeviceGetUuid: Identity = crate::identity::uuid;
            identity cuDeviceGetUuid_v2: Identity = crate::identity::uuid;
            identity cuDeviceGetAttribute: Identity = crate::identity::attribute;
            hook cuDeviceTotalMem: Identity = crate::identity::total_memory_v1;
            hook cuDeviceTotalMem_v2: Identity = crate::identity::total_memory;
            identity cuDeviceGetPCIBusId: Identity = crate::identity::bus_id;
            identity cuDeviceGetByPCIBusId: Identity = crate::identity::by_bus_id;
            identity cuDeviceComputeCapability: Identity = crate::identity::compute_capability;
            identity cuDevicePrimaryCtxGetState: Identity = crate::identity::primary_state;
            identity cuCtxGetCurrent: Identity = crate::identity::current_context;
            identity cuCtxSetCurrent: Identity = crate::identity::set_current_context;

            context cuCtxGetDevice;
            context cuCtxGetDevice_v2;
            context cuCtxGetApiVersion;
            context cuCtxGetFlags;
            context cuCtxGetId;
            context cuCtxGetLimit;
            context cuCtxGetCacheConfig;
            context cuCtxSetCacheConfig;
            context cuCtxGetSharedMemConfig;
            context cuCtxSetSharedMemConfig;
            context cuCtxSetFlags;
            context cuCtxGetExecAffinity;
            context cuCtxResetPersistingL2Cache;
            context cuCtxGetStreamPriorityRange;
            context cuCtxPopCurrent;
            context cuCtxPopCurrent_v2;
            context cuCtxPushCurrent;
            context cuCtxPushCurrent_v2;
            context cuStreamCreate;
            context cuStreamCreateWithPriority;
            context cuStreamQuery;
            context cuStreamQuery_ptsz;
            context cuStreamIsCapturing;
            context cuStreamIsCapturing_ptsz;
            context cuEventCreate;
            context cuMemAllocHost;
            context cuMemAllocHost_v2;
            context cuMemHostAlloc;
            context cuMemHostRegister;
            context cuMemHostRegister_v2;
            context cuMemHostUnregister;
            context cuMemHostGetDevicePointer;
            context cuMemHostGetDevicePointer_v2;
            context cuMemHostGetFlags;
            context cuMemFreeHost;
            context cuLinkCreate;
            context cuLinkCreate_v2;
            context cuTexRefCreate;
            context cuIpcOpenEventHandle;
            context cuImportExternalSemaphore;
            context cuGLInit;

            gate cuDeviceGetProperties;
            gate cuDeviceGetLuid;
            gate cuDeviceGetTexture1DLinearMaxWidth;
            gate cuDeviceGetNvSciSyncAttributes;
            gate cuDeviceGetExecAffinitySupport;
            gate cuDeviceGetHostAtomicCapabilities;
            gate cuDeviceGetCliqueCount;
            gate cuDeviceGetCliqueInfo;
            gate cuDeviceGetFabricClusterUuid;
            gate cuDeviceCanAccessPeer;
            gate cuDeviceGetP2PAttribute;
            gate cuDeviceGetP2PAtomicCapabilities;
            gate cuDeviceGetDefaultMemPool;
            gate cuDeviceGetMemPool;
            gate cuDeviceSetMemPool;
            gate cuDeviceGetGraphMemAttribute;
            gate cuDeviceSetGraphMemAttribute;
            gate cuDeviceGetDevResource;
            gate cuDevSmResourceSplitByCount;
            gate cuDevSmResourceSplit;
            gate cuDevResourceGenerateDesc;
            gate cuDeviceRegisterAsyncNotification;
            gate cuDevicePrimaryCtxSetFlags;
            gate cuDevicePrimaryCtxSetFlags_v2;
            gate cuModuleGetLoadingMode;
            gate cuMemAddressReserve;
            gate cuMemGetAllocationGranularity;
            gate cuMulticastGetGranularity;
            hook cuMemGetDefaultMemPool: NeedsLease = crate::arguments::enter;
            hook cuMemGetMemPool: NeedsLease = crate::arguments::enter;
            hook cuMemPoolCreate: NeedsLease = crate::arguments::enter;
            gate cuMemSetMemPool;
            gate cuMemPoolGetAttribute;
            gate cuPointerGetAttribute;
            gate cuPointerGetAttributes;
            gate cuGraphCreate;
            gate cuUserObjectCreate;
            gate cuFlushGPUDirectRDMAWrites;
            gate cuThreadExchangeStreamCaptureMode;
            gate cuProfilerInitialize;
            gate cuProfilerStart;
            gate cuProfilerStop;
            gate cuGLGetDevices;
            gate cuGLGetDevices_v2;
            gate cuVDPAUGetDevice;
            gate cuLogicalEndpointIdReserve;
            gate cuLogicalEndpointGetLimits;
            gate cuLogicalEndpointImport;
            gate cuCheckpointProcessLock;
            gate cuCheckpointProcessUnlock;
            gate cuCheckpointProcessCheckpoint;
            gate cuCheckpointProcessRestore;
            gate cuCheckpointProcessGetState;
            gate cuCheckpointProcessGetRestoreThreadId;

            lease cuGetExportTable;
            lease cuCtxAttach;
            hook cuGLCtxCreate: NeedsLease = crate::arguments::enter;
            hook cuGLCtxCreate_v2: NeedsLease = crate::arguments::enter;
            hook cuVDPAUCtxCreate: NeedsLease = crate::arguments::enter;
            hook cuVDPAUCtxCreate_v2: NeedsLease = crate::arguments::enter;
            lease cuMemPoolImportFromShareableHandle;
            lease cuMulticastCreate;

            hook cuCtxCreate: NeedsLease = crate::arguments::enter;
            hook cuCtxCreate_v2: NeedsLease = crate::arguments::enter;
            hook cuCtxCreate_v3: NeedsLease = crate::arguments::enter;
            hook cuCtxCreate_v4: NeedsLease = crate::arguments::enter;
            hook cuDevicePrimaryCtxRetain: Charges = crate::contexts::retain_primary;
            hook cuMemAlloc: Charges = crate::memory::alloc_v1;
            hook cuMemAlloc_v2: Charges = crate::memory::alloc;
            hook cuMemAllocPitch: Charges = crate::memory::alloc_pitch_v1;
            hook cuMemAllocPitch_v2: Charges = crate::arguments::enter;
            hook cuMemAllocManaged: Charges = crate::arguments::enter;
            hook cuMemAllocAsync: Charges = crate::arguments::enter;
            hook cuMemAllocAsync_ptsz: Charges = crate::arguments::enter;
            hook cuMemAllocFromPoolAsync: Charges = crate::arguments::enter;
            hook cuMemAllocFromPoolAsync_ptsz: Charges = crate::arguments::enter;

            hook cuArrayCreate: Charges = crate::arguments::enter;
            hook cuArrayCreate_v2: Charges = crate::arguments::enter;
            hook cuArray3DCreate: Charges = crate::arguments::enter;
            hook cuArray3DCreate_v2: Charges = crate::arguments::enter;
            hook cuMipmappedArrayCreate: Charges = crate::arguments::enter;
            hook cuArrayDestroy: Frees = crate::arguments::enter;
            hook cuMipmappedArrayDestroy: Frees = crate::arguments::enter;
            hook cuMemCreate: NeedsLease = crate::arguments::enter;
            hook cuMemRelease: Frees = crate::arguments::enter;
            hook cuMemMap: Charges = crate::arguments::enter;
            hook cuMemUnmap: Frees = crate::arguments::enter;
            hook cuMemRetainAllocationHandle: Charges = crate::arguments::enter;
            hook cuMemExportToShareableHandle: Charges = crate::arguments::enter;
            hook cuMemImportFromShareableHandle: NeedsLease = crate::arguments::enter;
            hook cuMemMapArrayAsync: Charges = crate::arguments::enter;
            hook cuMemMapArrayAsync_ptsz: Charges = crate::arguments::enter;
            hook cuGraphAddMemAllocNode: Charges = crate::arguments::enter;
            hook cuGraphAddNode: Charges = crate::arguments::enter;
            hook cuGraphAddNode_v2: Charges = crate::arguments::enter;
            hook cuGraphAddNode_v3: Charges = crate::arguments::enter;
            hook cuGraphInstantiate: Charges = crate::arguments::enter;
            hook cuGraphInstantiate_v2: Charges = crate::arguments::enter;
            hook cuGraphInstantiateWithFlags: Charges = crate::arguments::enter;
            hook cuGraphInstantiateWithParams: Charges = crate::arguments::enter;
            hook cuGraphInstantiateWithParams_ptsz: Charges = crate::arguments::enter;
            hook cuGraphUpload: Charges = crate::arguments::enter;
            hook cuGraphUpload_ptsz: Charges = crate::arguments::enter;
            hook cuGraphExecDestroy: Frees = crate::arguments::enter;
            hook cuDeviceGraphMemTrim: NeedsLease = crate::arguments::enter;
            hook cuModuleLoad: Charges = crate::arguments::enter;
            hook cuModuleLoadData: Charges = crate::arguments::enter;
            hook cuModuleLoadDataEx: Charges = crate::arguments::enter;
            hook cuModuleLoadFatBinary: Charges = crate::arguments::enter;
            hook cuModuleUnload: Frees = crate::arguments::enter;
            hook cuLibraryLoadData: NeedsLease = crate::arguments::enter;
            hook cuLibraryLoadFromFile: NeedsLease = crate::arguments::enter;
            hook cuLibraryUnload: Frees = crate::arguments::enter;
            hook cuGreenCtxCreate: NeedsLease = crate::arguments::enter;
            hook cuGreenCtxDestroy: Frees = crate::arguments::enter;
            hook cuCtxSetLimit: Charges = crate::arguments::enter;
            hook cuIpcGetMemHandle: Charges = crate::arguments::enter;
            hook cuIpcOpenMemHandle: Charges = crate::arguments::enter;
            hook cuIpcOpenMemHandle_v2: Charges = crate::arguments::enter;
            hook cuIpcCloseMemHandle: Frees = crate::arguments::enter;
            hook cuImportExternalMemory: NeedsLease = crate::arguments::enter;
            hook cuDestroyExternalMemory: Frees = crate::arguments::enter;

            hook cuCtxDestroy: Frees = crate::arguments::enter;
            hook cuCtxDestroy_v2: Frees = crate::arguments::enter;
            hook cuCtxDetach: Frees = crate::arguments::enter;
            hook cuDevicePrimaryCtxRelease: Frees = crate::contexts::release_primary;
            hook cuDevicePrimaryCtxRelease_v2: Frees = crate::contexts::release_primary_v2;
            hook cuDevicePrimaryCtxReset: Frees = crate::contexts::reset_primary;
            hook cuDevicePrimaryCtxReset_v2: Frees = crate::contexts::reset_primary_v2;
            hook cuMemFree: Frees = crate::memory::free_v1;
            hook cuMemFree_v2: Frees = crate::memory::free;
            hook cuMemFreeAsync: Frees = crate::arguments::enter;
            hook cuMemFreeAsync_ptsz: Frees = crate::arguments::enter;
            hook cuMemPoolTrimTo: Frees = crate::arguments::enter;
            hook cuMemPoolDestroy: Frees = crate::arguments::enter;

            hook cuCtxSynchronize: Settles = crate::arguments::enter;
            hook cuCtxSynchronize_v2: Settles = crate::arguments::enter;
            hook cuStreamSynchronize: Settles = crate::arguments::enter;
            hook cuStreamSynchronize_ptsz: Settles = crate::arguments::enter;
            hook cuEventSynchronize: Settles = crate::arguments::enter;

            launch cuLaunchKernel;
            launch cuLaunchKernel_ptsz;
            launch cuLaunchKernelEx;
            launch cuLaunchKernelEx_ptsz;
            launch cuLaunchCooperativeKernel;
            launch cuLaunchCooperativeKernel_ptsz;
            launch cuLaunchCooperativeKernelMultiDevice;
            launch cuGraphLaunch;
            launch cuGraphLaunch_ptsz;
            launch cuLaunch;
            launch cuLaunchGrid;
            launch cuLaunchGridAsync;

            hook cuMemGetInfo: Views = crate::memory::info_v1;
            hook cuMemGetInfo_v2: Views = crate::memory::info;
            hook nvmlDeviceGetCount: Views = crate::nvml::count;
            hook nvmlDeviceGetCount_v2: Views = crate::nvml::count_v2;
            hook nvmlDeviceGetHandleByIndex: Views = crate::nvml::by_index;
            hook nvmlDeviceGetHandleByIndex_v2: Views = crate::nvml::by_index_v2;
            hook nvmlDeviceGetHandleByUUID: Views = crate::nvml::by_uuid;
            hook nvmlDeviceGetHandleByUUIDV: Views = crate::nvml::by_uuid_structure;
            hook nvmlDeviceGetHandleByPciBusId: Views = crate::nvml::by_bus_id;
            hook nvmlDeviceGetHandleByPciBusId_v2: Views = crate::nvml::by_bus_id_v2;
            hook nvmlDeviceGetHandleBySerial: Views = crate::nvml::by_serial;
            hook nvmlDeviceGetMemoryInfo: Views = crate::nvml::memory;
            hook nvmlDeviceGetMemoryInfo_v2: Views = crate::nvml::memory_v2;
            hook nvmlDeviceGetComputeRunningProcesses: Views = crate::nvml::processes::computing;
            hook nvmlDeviceGetComputeRunningProcesses_v2: Views = crate::nvml::processes::computing_v2;
            hook nvmlDeviceGetComputeRunningProcesses_v3: Views = crate::nvml::processes::computing_v3;
            hook nvmlDeviceGetGraphicsRunningProcesses: Views = crate::nvml::processes::drawing;
            hook nvmlDeviceGetGraphicsRunningProcesses_v2: Views = crate::nvml::processes::drawing_v2;
            hook nvmlDeviceGetGraphicsRunningProcesses_v3: Views = crate::nvml::processes::drawing_v3;
            hook nvmlDeviceGetMPSComputeRunningProcesses: Views = crate::nvml::processes::served;
            hook nvmlDeviceGetMPSComputeRunningProcesses_v2: Views = crate::nvml::processes::served_v2;
            hook nvmlDeviceGetMPSComputeRunningProcesses_v3: Views = crate::nvml::processes::served_v3;
            hook nvmlDeviceGetRunningProcessDetailList: Views = crate::nvml::processes::details;
            hook nvmlDeviceGetProcessUtilization: Views = crate::nvml::processes::utilisation_of_processes;
            hook nvmlDeviceGetProcessesUtilizationInfo: Views = crate::nvml::processes::utilisation_infos;
            hook nvmlDeviceGetUtilizationRates: Views = crate::nvml::processes::utilisation;
        }
    };
}
pub(crate) use for_each_row;

/// A row's kind as the table spells it, turned into its class.
macro_rules! class_of {
    (gate) => {
        Class::Gate
    };
    (lease) => {
        Class::NeedsLease
    };
    (context) => {
        Class::NeedsContext
    };
    (launch) => {
        Class::Launches
    };
    (identity $class:ident) => {
        Class::$class
    };
    (hook $class:ident) => {
        Class::$class
    };
}

macro_rules! declare {
    ($($kind:ident $name:ident $(: $class:ident = $hook:path)?;)*) => {
        /// An entry point that has a row; its number is the row's index.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        #[allow(non_camel_case_types, missing_docs, reason = "names are the driver's own")]
        pub enum Entry {
            $($name,)*
        }

        /// Number of rows.
        pub const COUNT: usize = [$(stringify!($name),)*].len();

        /// All names, each with a NUL.
        pub(crate) const NAMES: &[u8] = concat!($(stringify!($name), "\0",)*).as_bytes();

        const CLASSES: [Class; COUNT] = [$(class_of!($kind $($class)?),)*];
    };
}

for_each_row!(declare);

impl Entry {
    /// The row's index.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The entry point of a row.
    pub fn from_index(index: usize) -> Option<Self> {
        let number = u16::try_from(index).ok().filter(|_| index < COUNT)?;
        // SAFETY: the rows are numbered from 0 to COUNT without a gap, and this is one of those numbers.
        Some(unsafe { core::mem::transmute::<u16, Self>(number) })
    }

    /// Every entry point in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..COUNT).filter_map(Self::from_index)
    }

    /// What it does.
    pub fn class(self) -> Class {
        CLASSES.get(self.index()).copied().unwrap_or(Class::Gate)
    }
}

/// The CUDA version (as `cuGetProcAddress` counts them) that brought a variant; 0 for the first one of a name.
/// From the suffixes of NVIDIA's `PFN_…_v…` typedefs.
pub const fn since(entry: Entry) -> u32 {
    match entry {
        Entry::cuMemAlloc_v2
        | Entry::cuMemAllocPitch_v2
        | Entry::cuMemAllocHost_v2
        | Entry::cuMemFree_v2
        | Entry::cuMemGetInfo_v2
        | Entry::cuDeviceTotalMem_v2
        | Entry::cuArrayCreate_v2
        | Entry::cuArray3DCreate_v2
        | Entry::cuMemHostGetDevicePointer_v2
        | Entry::cuGLCtxCreate_v2
        | Entry::cuVDPAUCtxCreate_v2
        | Entry::cuCtxCreate_v2 => 3020,
        Entry::cuCtxDestroy_v2 | Entry::cuCtxPopCurrent_v2 | Entry::cuCtxPushCurrent_v2 => 4000,
        Entry::cuMemHostRegister_v2 | Entry::cuLinkCreate_v2 | Entry::cuGLGetDevices_v2 => 6050,
        Entry::cuDevicePrimaryCtxRelease_v2
        | Entry::cuDevicePrimaryCtxReset_v2
        | Entry::cuDevicePrimaryCtxSetFlags_v2
        | Entry::cuGraphInstantiate_v2
        | Entry::cuIpcOpenMemHandle_v2 => 11000,
        Entry::cuCtxCreate_v3 | Entry::cuDeviceGetUuid_v2 => 11040,
        Entry::cuGetProcAddress_v2 | Entry::cuGetProcAddress_v2_ptsz => 12000,
        Entry::cuGraphAddNode_v2 => 12030,
        Entry::cuGraphAddNode_v3 => 13040,
        Entry::cuCtxCreate_v4 => 12050,
        Entry::cuCtxGetDevice_v2 | Entry::cuCtxSynchronize_v2 => 13000,
        _ => 0,
    }
}
