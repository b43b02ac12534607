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

use core::ffi::CStr;

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
            context cuCtxSetLimit;
            context cuCtxGetCacheConfig;
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
            context cuModuleLoad;
            context cuModuleLoadData;
            context cuModuleLoadDataEx;
            context cuModuleLoadFatBinary;
            context cuMemAllocHost;
            context cuMemAllocHost_v2;
            context cuMemHostAlloc;
            context cuMemHostRegister;
            context cuMemHostRegister_v2;

            gate cuDeviceGetProperties;
            gate cuDeviceGetLuid;
            gate cuDeviceGetTexture1DLinearMaxWidth;
            gate cuDeviceGetNvSciSyncAttributes;
            gate cuDeviceGetExecAffinitySupport;
            gate cuDeviceGetHostAtomicCapabilities;
            gate cuDeviceCanAccessPeer;
            gate cuDeviceGetP2PAttribute;
            gate cuDeviceGetP2PAtomicCapabilities;
            gate cuDeviceGetDefaultMemPool;
            gate cuDeviceGetMemPool;
            gate cuDeviceSetMemPool;
            gate cuDeviceGetGraphMemAttribute;
            gate cuDeviceSetGraphMemAttribute;
            gate cuDeviceGraphMemTrim;
            gate cuDeviceGetDevResource;
            gate cuDevSmResourceSplitByCount;
            gate cuDevResourceGenerateDesc;
            gate cuDeviceRegisterAsyncNotification;
            gate cuDevicePrimaryCtxSetFlags;
            gate cuDevicePrimaryCtxSetFlags_v2;
            gate cuModuleGetLoadingMode;
            gate cuMemAddressReserve;
            gate cuMemGetAllocationGranularity;
            gate cuMulticastGetGranularity;
            hook cuMemGetDefaultMemPool: NeedsLease = crate::pools::default_of_location;
            hook cuMemGetMemPool: NeedsLease = crate::pools::current_of_location;
            hook cuMemPoolCreate: NeedsLease = crate::pools::create;
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

            lease cuGetExportTable;
            lease cuGreenCtxCreate;
            lease cuCtxAttach;
            lease cuLibraryLoadData;
            lease cuLibraryLoadFromFile;
            lease cuMemCreate;
            lease cuMemImportFromShareableHandle;
            lease cuMemPoolImportFromShareableHandle;
            lease cuMulticastCreate;
            lease cuImportExternalMemory;

            hook cuCtxCreate: Charges = crate::contexts::create;
            hook cuCtxCreate_v2: Charges = crate::contexts::create_v2;
            hook cuCtxCreate_v3: Charges = crate::contexts::create_v3;
            hook cuCtxCreate_v4: Charges = crate::contexts::create_v4;
            hook cuDevicePrimaryCtxRetain: Charges = crate::contexts::retain_primary;
            hook cuMemAlloc: Charges = crate::memory::alloc_v1;
            hook cuMemAlloc_v2: Charges = crate::memory::alloc;
            hook cuMemAllocPitch: Charges = crate::memory::alloc_pitch_v1;
            hook cuMemAllocPitch_v2: Charges = crate::memory::alloc_pitch;
            hook cuMemAllocManaged: Charges = crate::memory::alloc_managed;
            hook cuMemAllocAsync: Charges = crate::pools::alloc_async;
            hook cuMemAllocAsync_ptsz: Charges = crate::pools::alloc_async_ptsz;
            hook cuMemAllocFromPoolAsync: Charges = crate::pools::alloc_from_pool;
            hook cuMemAllocFromPoolAsync_ptsz: Charges = crate::pools::alloc_from_pool_ptsz;

            hook cuCtxDestroy: Frees = crate::contexts::destroy;
            hook cuCtxDestroy_v2: Frees = crate::contexts::destroy_v2;
            hook cuCtxDetach: Frees = crate::contexts::detach;
            hook cuDevicePrimaryCtxRelease: Frees = crate::contexts::release_primary;
            hook cuDevicePrimaryCtxRelease_v2: Frees = crate::contexts::release_primary_v2;
            hook cuDevicePrimaryCtxReset: Frees = crate::contexts::reset_primary;
            hook cuDevicePrimaryCtxReset_v2: Frees = crate::contexts::reset_primary_v2;
            hook cuMemFree: Frees = crate::memory::free_v1;
            hook cuMemFree_v2: Frees = crate::memory::free;
            hook cuMemFreeAsync: Frees = crate::memory::free_async;
            hook cuMemFreeAsync_ptsz: Frees = crate::memory::free_async_ptsz;
            hook cuMemPoolTrimTo: Frees = crate::pools::trim;
            hook cuMemPoolDestroy: Frees = crate::pools::destroy;

            hook cuCtxSynchronize: Settles = crate::pools::synchronize_context;
            hook cuCtxSynchronize_v2: Settles = crate::pools::synchronize_context_v2;
            hook cuStreamSynchronize: Settles = crate::pools::synchronize_stream;
            hook cuStreamSynchronize_ptsz: Settles = crate::pools::synchronize_stream_ptsz;
            hook cuEventSynchronize: Settles = crate::pools::synchronize_event;

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
            hook nvmlDeviceGetHandleByPciBusId: Views = crate::nvml::by_bus_id;
            hook nvmlDeviceGetHandleByPciBusId_v2: Views = crate::nvml::by_bus_id_v2;
            hook nvmlDeviceGetHandleBySerial: Views = crate::nvml::by_serial;
            hook nvmlDeviceGetMemoryInfo: Views = crate::nvml::memory;
            hook nvmlDeviceGetMemoryInfo_v2: Views = crate::nvml::memory_v2;
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

        const NAMES: &[u8] = concat!($(stringify!($name), "\0",)*).as_bytes();

        const CLASSES: [Class; COUNT] = [$(class_of!($kind $($class)?),)*];
    };
}

for_each_row!(declare);

/// Where a name lies among all names, how long it is, and how much of it is the base that `cuGetProcAddress` knows.
#[derive(Clone, Copy)]
struct Name {
    start: u16,
    length: u8,
    base: u8,
}

static ROWS: [Name; COUNT] = rows();

/// Rows by the hash of their base name, open addressing; [`FREE`] ends a search.
static INDEX: [u16; INDEX_SIZE] = index();

const INDEX_SIZE: usize = 512;
const FREE: u16 = u16::MAX;
const _: () = assert!(COUNT * 2 < INDEX_SIZE, "the index would become slow: double INDEX_SIZE");

#[allow(clippy::cast_possible_truncation, reason = "names are short and the table has a few thousand bytes")]
const fn rows() -> [Name; COUNT] {
    let mut rows = [Name { start: 0, length: 0, base: 0 }; COUNT];
    let (mut row, mut start, mut at) = (0, 0, 0);
    while row < COUNT {
        if NAMES[at] == 0 {
            let name = NAMES.split_at(start).1.split_at(at - start).0;
            let base = base_of(name).len();
            rows[row] = Name { start: start as u16, length: (at - start) as u8, base: base as u8 };
            start = at + 1;
            row += 1;
        }
        at += 1;
    }
    rows
}

#[allow(clippy::cast_possible_truncation, reason = "COUNT is far below 65536")]
const fn index() -> [u16; INDEX_SIZE] {
    let rows = rows();
    let mut index = [FREE; INDEX_SIZE];
    let mut row = 0;
    while row < COUNT {
        let start = rows[row].start as usize;
        let mut place = hash(NAMES, start, start + rows[row].base as usize);
        while index[place] != FREE {
            place = (place + 1) % INDEX_SIZE;
        }
        index[place] = row as u16;
        row += 1;
    }
    index
}

/// FNV-1a over `bytes[start..end]`, as a place in the index.
const fn hash(bytes: &[u8], start: usize, end: usize) -> usize {
    let mut hash: u32 = HASH_START;
    let mut at = start;
    while at < end {
        hash = hash_step(hash, bytes[at]);
        at += 1;
    }
    hash_place(hash)
}

const HASH_START: u32 = 0x811c_9dc5;

const fn hash_step(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

const fn hash_place(hash: u32) -> usize {
    (hash ^ (hash >> 15)) as usize % INDEX_SIZE
}

/// The name without what marks a variant: `_ptsz` or `_ptds`, then `_v` and a number.
const fn base_of(name: &[u8]) -> &[u8] {
    let versioned = match name {
        [rest @ .., b'_', b'p', b't', b's', b'z'] | [rest @ .., b'_', b'p', b't', b'd', b's'] => rest,
        _ => name,
    };
    let mut rest = versioned;
    while let [shorter @ .., b'0'..=b'9'] = rest {
        rest = shorter;
    }
    match rest {
        [base @ .., b'_', b'v'] if rest.len() < versioned.len() && !base.is_empty() => base,
        _ => versioned,
    }
}

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

    /// Its name.
    #[inline(never)]
    pub fn name(self) -> &'static CStr {
        let name = self.row();
        let start = usize::from(name.start);
        let bytes = NAMES.get(start..=start + usize::from(name.length)).unwrap_or(b"\0");
        // SAFETY: `rows` cut the names at their NULs.
        unsafe { CStr::from_bytes_with_nul_unchecked(bytes) }
    }

    fn row(self) -> Name {
        ROWS.get(self.index()).copied().unwrap_or(Name { start: 0, length: 0, base: 0 })
    }

    fn base(self) -> &'static [u8] {
        self.name().to_bytes().get(..usize::from(self.row().base)).unwrap_or_default()
    }
}

/// The entry point of exactly this name.
pub fn find(name: &[u8]) -> Option<Entry> {
    variants(name).find(|entry| entry.name().to_bytes() == name)
}

/// Every entry point that is a variant of this name: other versions of it, per-thread streams.
pub fn variants(name: &[u8]) -> impl Iterator<Item = Entry> {
    let base = base_of(name);
    let mut place = hash_place(base.iter().fold(HASH_START, |hash, &byte| hash_step(hash, byte)));
    core::iter::from_fn(move || {
        let row = INDEX.get(place % INDEX_SIZE).copied().filter(|&row| row != FREE)?;
        place += 1;
        Entry::from_index(usize::from(row))
    })
    .filter(move |entry| entry.base() == base)
}

/// The CUDA version (as `cuGetProcAddress` counts them) that brought a variant; 0 for the first one of a name.
/// From the suffixes of NVIDIA's `PFN_…_v…` typedefs.
const fn since(entry: Entry) -> u32 {
    match entry {
        Entry::cuMemAlloc_v2
        | Entry::cuMemAllocPitch_v2
        | Entry::cuMemAllocHost_v2
        | Entry::cuMemFree_v2
        | Entry::cuMemGetInfo_v2
        | Entry::cuDeviceTotalMem_v2
        | Entry::cuCtxCreate_v2 => 3020,
        Entry::cuCtxDestroy_v2 | Entry::cuCtxPopCurrent_v2 | Entry::cuCtxPushCurrent_v2 => 4000,
        Entry::cuMemHostRegister_v2 => 6050,
        Entry::cuDevicePrimaryCtxRelease_v2
        | Entry::cuDevicePrimaryCtxReset_v2
        | Entry::cuDevicePrimaryCtxSetFlags_v2 => 11000,
        Entry::cuCtxCreate_v3 | Entry::cuDeviceGetUuid_v2 => 11040,
        Entry::cuGetProcAddress_v2 | Entry::cuGetProcAddress_v2_ptsz => 12000,
        Entry::cuCtxCreate_v4 => 12050,
        Entry::cuCtxGetDevice_v2 | Entry::cuCtxSynchronize_v2 => 13000,
        _ => 0,
    }
}

/// The variant of a name that the driver means for a program of CUDA `version`: the newest that there was then, with
/// the calling thread's own default stream if that is asked for and makes a difference.
pub fn variant_for(name: &[u8], version: u32, per_thread_stream: bool) -> Option<Entry> {
    let fitting = |per_thread: bool| {
        variants(name)
            .filter(|entry| {
                entry.name().to_bytes().ends_with(b"_ptsz") == per_thread && since(*entry) <= version
            })
            .max_by_key(|entry| since(*entry))
    };
    if per_thread_stream { fitting(true).or_else(|| fitting(false)) } else { fitting(false) }
}

#[cfg(test)]
mod tests;
