//! Streams and events: flags, recording into graphs, waiting for values in memory; and how entry points are asked for.

use crate::declare::{constants, structures};

constants! {
    // Streams that are there without being made.
    u64 {
        CU_STREAM_LEGACY = 1,
        CU_STREAM_PER_THREAD = 2,
    }

    /// Flags of a stream.
    enum CUstream_flags = u32 {
        CU_STREAM_DEFAULT = 0x00,
        CU_STREAM_NON_BLOCKING = 0x01,
    }

    /// Flags of an event.
    enum CUevent_flags = u32 {
        CU_EVENT_DEFAULT = 0x00,
        CU_EVENT_BLOCKING_SYNC = 0x01,
        CU_EVENT_DISABLE_TIMING = 0x02,
        CU_EVENT_INTERPROCESS = 0x04,
    }

    /// Flags of `cuEventRecordWithFlags`.
    enum CUevent_record_flags = u32 {
        CU_EVENT_RECORD_DEFAULT = 0x00,
        CU_EVENT_RECORD_EXTERNAL = 0x01,
    }

    /// Flags of `cuStreamWaitEvent`.
    enum CUevent_wait_flags = u32 {
        CU_EVENT_WAIT_DEFAULT = 0x00,
        CU_EVENT_WAIT_EXTERNAL = 0x01,
    }

    /// Which calls a recording forbids, and to whom.
    enum CUstreamCaptureMode = u32 {
        CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
        CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    }

    /// Whether a stream is recorded into a graph.
    enum CUstreamCaptureStatus = u32 {
        CU_STREAM_CAPTURE_STATUS_NONE = 0,
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
        CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
    }

    /// Flags of `cuStreamUpdateCaptureDependencies`.
    enum CUstreamUpdateCaptureDependencies_flags = u32 {
        CU_STREAM_ADD_CAPTURE_DEPENDENCIES = 0,
        CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1,
    }

    /// What a stream waits for: at least, exactly, a common bit, a common zero. With the flush as a bit.
    enum CUstreamWaitValue_flags = u32 {
        CU_STREAM_WAIT_VALUE_GEQ = 0x00,
        CU_STREAM_WAIT_VALUE_EQ = 0x01,
        CU_STREAM_WAIT_VALUE_AND = 0x02,
        CU_STREAM_WAIT_VALUE_NOR = 0x03,
        CU_STREAM_WAIT_VALUE_FLUSH = 0x4000_0000,
    }

    /// Flags of a stream's writing of a value.
    enum CUstreamWriteValue_flags = u32 {
        CU_STREAM_WRITE_VALUE_DEFAULT = 0x00,
        CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 0x01,
    }

    /// What an entry of a list of such steps does.
    enum CUstreamBatchMemOpType = u32 {
        CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
        CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
        CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
        CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
        CU_STREAM_MEM_OP_BARRIER = 6,
        CU_STREAM_MEM_OP_ATOMIC_REDUCTION = 8 since 13,
        CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
    }

    /// Which default stream `cuGetProcAddress` is asked for.
    enum CUdriverProcAddress_flags = u64 {
        CU_GET_PROC_ADDRESS_DEFAULT = 0x00,
        CU_GET_PROC_ADDRESS_LEGACY_STREAM = 0x01,
        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 0x02,
    }

    /// What `cuGetProcAddress_v2` found.
    enum CUdriverProcAddressQueryResult = u32 {
        CU_GET_PROC_ADDRESS_SUCCESS = 0,
        CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
        CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
    }
}

structures! {
    /// A step of `cuStreamBatchMemOp` that waits for a value or writes one; the others have only the first word and
    /// flags.
    struct CUstreamBatchMemOpParams {
        operation: CUstreamBatchMemOpType,
        address: u64 = "waitValue.address",
        /// The lower half, for steps of 32 bits.
        value: u64 = "waitValue.value64",
        flags: u32 = "waitValue.flags",
        alias: u64 = "waitValue.alias",
        unused: u64 = "",
    }
}
