//! The one table: a row for every entry point that the shim exports, with its kind and its class.
//!
//! A name that is not here is never touched: the program talks to the real function. What is here is exported under
//! its own name (`dispatch`), handed out by `dlsym` and by `cuGetProcAddress`, and nothing else is.
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
//!
//! Which function of this crate that is, is said where functions are bound to rows (`dispatch`), not here.

pub mod names;
#[cfg(not(feature = "preload"))]
pub mod unhooked;

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
            hook dlsym: Resolves;
            hook dlvsym: Resolves;
            hook cuGetProcAddress: Resolves;
            hook cuGetProcAddress_v2: Resolves;
            hook cuGetProcAddress_v2_ptsz: Resolves;

            hook cuInit: Identity;
            identity cuDeviceGetCount: Identity;
            identity cuDeviceGet: Identity;
            identity cuDeviceGetName: Identity;
            identity cuDeviceGetUuid: Identity;
            identity cuDeviceGetUuid_v2: Identity;
            identity cuDeviceGetAttribute: Identity;
            hook cuDeviceTotalMem: Identity;
            hook cuDeviceTotalMem_v2: Identity;
            identity cuDeviceGetPCIBusId: Identity;
            identity cuDeviceGetByPCIBusId: Identity;
            identity cuDeviceComputeCapability: Identity;
            identity cuDevicePrimaryCtxGetState: Identity;
            identity cuCtxGetCurrent: Identity;
            identity cuCtxSetCurrent: Identity;

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
            hook cuMemGetDefaultMemPool: NeedsLease;
            hook cuMemGetMemPool: NeedsLease;
            hook cuMemPoolCreate: NeedsLease;
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
            hook cuGLCtxCreate: NeedsLease;
            hook cuGLCtxCreate_v2: NeedsLease;
            hook cuVDPAUCtxCreate: NeedsLease;
            hook cuVDPAUCtxCreate_v2: NeedsLease;
            lease cuMemPoolImportFromShareableHandle;
            lease cuMulticastCreate;

            hook cuCtxCreate: NeedsLease;
            hook cuCtxCreate_v2: NeedsLease;
            hook cuCtxCreate_v3: NeedsLease;
            hook cuCtxCreate_v4: NeedsLease;
            hook cuDevicePrimaryCtxRetain: Charges;
            hook cuMemAlloc: Charges;
            hook cuMemAlloc_v2: Charges;
            hook cuMemAllocPitch: Charges;
            hook cuMemAllocPitch_v2: Charges;
            hook cuMemAllocManaged: Charges;
            hook cuMemAllocAsync: Charges;
            hook cuMemAllocAsync_ptsz: Charges;
            hook cuMemAllocFromPoolAsync: Charges;
            hook cuMemAllocFromPoolAsync_ptsz: Charges;

            hook cuArrayCreate: Charges;
            hook cuArrayCreate_v2: Charges;
            hook cuArray3DCreate: Charges;
            hook cuArray3DCreate_v2: Charges;
            hook cuMipmappedArrayCreate: Charges;
            hook cuArrayDestroy: Frees;
            hook cuMipmappedArrayDestroy: Frees;
            hook cuMemCreate: NeedsLease;
            hook cuMemRelease: Frees;
            hook cuMemMap: Charges;
            hook cuMemUnmap: Frees;
            hook cuMemRetainAllocationHandle: Charges;
            hook cuMemExportToShareableHandle: Charges;
            hook cuMemImportFromShareableHandle: NeedsLease;
            hook cuMemMapArrayAsync: Charges;
            hook cuMemMapArrayAsync_ptsz: Charges;
            hook cuGraphAddMemAllocNode: Charges;
            hook cuGraphAddNode: Charges;
            hook cuGraphAddNode_v2: Charges;
            hook cuGraphAddNode_v3: Charges;
            hook cuGraphInstantiate: Charges;
            hook cuGraphInstantiate_v2: Charges;
            hook cuGraphInstantiateWithFlags: Charges;
            hook cuGraphInstantiateWithParams: Charges;
            hook cuGraphInstantiateWithParams_ptsz: Charges;
            hook cuGraphUpload: Charges;
            hook cuGraphUpload_ptsz: Charges;
            hook cuGraphExecDestroy: Frees;
            hook cuDeviceGraphMemTrim: NeedsLease;
            hook cuModuleLoad: Charges;
            hook cuModuleLoadData: Charges;
            hook cuModuleLoadDataEx: Charges;
            hook cuModuleLoadFatBinary: Charges;
            hook cuModuleUnload: Frees;
            hook cuLibraryLoadData: NeedsLease;
            hook cuLibraryLoadFromFile: NeedsLease;
            hook cuLibraryUnload: Frees;
            hook cuGreenCtxCreate: NeedsLease;
            hook cuGreenCtxDestroy: Frees;
            hook cuCtxSetLimit: Charges;
            hook cuIpcGetMemHandle: Charges;
            hook cuIpcOpenMemHandle: Charges;
            hook cuIpcOpenMemHandle_v2: Charges;
            hook cuIpcCloseMemHandle: Frees;
            hook cuImportExternalMemory: NeedsLease;
            hook cuDestroyExternalMemory: Frees;

            hook cuCtxDestroy: Frees;
            hook cuCtxDestroy_v2: Frees;
            hook cuCtxDetach: Frees;
            hook cuDevicePrimaryCtxRelease: Frees;
            hook cuDevicePrimaryCtxRelease_v2: Frees;
            hook cuDevicePrimaryCtxReset: Frees;
            hook cuDevicePrimaryCtxReset_v2: Frees;
            hook cuMemFree: Frees;
            hook cuMemFree_v2: Frees;
            hook cuMemFreeAsync: Frees;
            hook cuMemFreeAsync_ptsz: Frees;
            hook cuMemPoolTrimTo: Frees;
            hook cuMemPoolDestroy: Frees;

            hook cuCtxSynchronize: Settles;
            hook cuCtxSynchronize_v2: Settles;
            hook cuStreamSynchronize: Settles;
            hook cuStreamSynchronize_ptsz: Settles;
            hook cuEventSynchronize: Settles;

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

            hook cuMemGetInfo: Views;
            hook cuMemGetInfo_v2: Views;
            hook nvmlDeviceGetCount: Views;
            hook nvmlDeviceGetCount_v2: Views;
            hook nvmlDeviceGetHandleByIndex: Views;
            hook nvmlDeviceGetHandleByIndex_v2: Views;
            hook nvmlDeviceGetHandleByUUID: Views;
            hook nvmlDeviceGetHandleByUUIDV: Views;
            hook nvmlDeviceGetHandleByPciBusId: Views;
            hook nvmlDeviceGetHandleByPciBusId_v2: Views;
            hook nvmlDeviceGetHandleBySerial: Views;
            hook nvmlDeviceGetMemoryInfo: Views;
            hook nvmlDeviceGetMemoryInfo_v2: Views;
            hook nvmlDeviceGetComputeRunningProcesses: Views;
            hook nvmlDeviceGetComputeRunningProcesses_v2: Views;
            hook nvmlDeviceGetComputeRunningProcesses_v3: Views;
            hook nvmlDeviceGetGraphicsRunningProcesses: Views;
            hook nvmlDeviceGetGraphicsRunningProcesses_v2: Views;
            hook nvmlDeviceGetGraphicsRunningProcesses_v3: Views;
            hook nvmlDeviceGetMPSComputeRunningProcesses: Views;
            hook nvmlDeviceGetMPSComputeRunningProcesses_v2: Views;
            hook nvmlDeviceGetMPSComputeRunningProcesses_v3: Views;
            hook nvmlDeviceGetRunningProcessDetailList: Views;
            hook nvmlDeviceGetProcessUtilization: Views;
            hook nvmlDeviceGetProcessesUtilizationInfo: Views;
            hook nvmlDeviceGetUtilizationRates: Views;
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
    ($($kind:ident $name:ident $(: $class:ident)?;)*) => {
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
