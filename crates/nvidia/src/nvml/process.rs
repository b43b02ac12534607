//! Processes: their memory and how busy they keep a card.

use crate::declare::{constants, structures};

constants! {
    // Sizes of structures with their versions, as the first field of each has it.
    u32 {
        nvmlProcessDetailList_v1 = 0x0100_0018,
        nvmlProcessesUtilizationInfo_v1 = 0x0100_0018,
    }

    /// Which processes are listed. 12.9 has the numbers in the comment of a field only.
    enum nvmlProcessMode_t = u32 {
        NVML_PROCESS_MODE_COMPUTE = 0 since 13,
        NVML_PROCESS_MODE_GRAPHICS = 1 since 13,
        NVML_PROCESS_MODE_MPS = 2 since 13,
        NVML_PROCESS_MODE_ALL = 3 since 13,
    }
}

structures! {
    /// What the unversioned list functions give.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlProcessInfo_v1_t {
        /// In the caller's namespace.
        pid: u32,
        /// Bytes.
        usedGpuMemory: u64,
    }

    /// What the list functions `_v2` and `_v3` give.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlProcessInfo_t {
        /// In the caller's namespace.
        pid: u32,
        /// Bytes.
        usedGpuMemory: u64,
        /// `u32::MAX`: no multi-instance mode.
        gpuInstanceId: u32,
        /// `u32::MAX`: no multi-instance mode.
        computeInstanceId: u32,
    }

    /// Percent over the last sample period.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlProcessUtilizationSample_t {
        /// In the caller's namespace.
        pid: u32,
        /// When it was measured: microseconds since 1970.
        timeStamp: u64,
        /// Time during which a kernel of the process ran.
        smUtil: u32,
        /// Time during which it read or wrote memory.
        memUtil: u32,
        encUtil: u32,
        decUtil: u32,
    }

    /// Percent since the moment that was asked for.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlProcessUtilizationInfo_v1_t {
        /// When it was measured: microseconds since 1970.
        timeStamp: u64,
        /// In the caller's namespace.
        pid: u32,
        /// Time during which a kernel of the process ran.
        smUtil: u32,
        /// Time during which it read or wrote memory.
        memUtil: u32,
        encUtil: u32,
        decUtil: u32,
        jpgUtil: u32,
        ofaUtil: u32,
    }

    /// A list of [`nvmlProcessUtilizationInfo_v1_t`].
    struct nvmlProcessesUtilizationInfo_v1_t {
        /// [`nvmlProcessesUtilizationInfo_v1`], given by the caller.
        version: u32,
        /// Room in the list, then entries.
        processSamplesCount: u32,
        /// From when on: microseconds since 1970.
        lastSeenTimeStamp: u64,
        /// The caller's.
        procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t,
    }

    /// A process and its memory.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlProcessDetail_v1_t {
        /// In the caller's namespace.
        pid: u32,
        /// Bytes.
        usedGpuMemory: u64,
        /// `u32::MAX`: no multi-instance mode.
        gpuInstanceId: u32,
        /// `u32::MAX`: no multi-instance mode.
        computeInstanceId: u32,
        /// Bytes of memory protected from the host.
        usedGpuCcProtectedMemory: u64,
    }

    /// A list of [`nvmlProcessDetail_v1_t`].
    struct nvmlProcessDetailList_v1_t {
        /// [`nvmlProcessDetailList_v1`], given by the caller.
        version: u32,
        /// [`nvmlProcessMode_t`], given by the caller.
        mode: nvmlProcessMode_t,
        /// Room in the list, then entries.
        numProcArrayEntries: u32,
        /// The caller's.
        procArray: *mut nvmlProcessDetail_v1_t,
    }
}
