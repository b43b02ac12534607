//! `CUresult`: what a call answers that fails.

use simgpu_device::TakeError;

/// A `CUresult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CuError(pub(crate) i32);

/// What a driver call answers.
pub(crate) type CuResult<T = ()> = Result<T, CuError>;

impl CuError {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const DEVICE_UNAVAILABLE: Self = Self(46);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_IMAGE: Self = Self(200);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const NO_BINARY_FOR_GPU: Self = Self(209);
    pub(crate) const UNSUPPORTED_LIMIT: Self = Self(215);
    pub(crate) const INVALID_PTX: Self = Self(218);
    pub(crate) const UNSUPPORTED_EXEC_AFFINITY: Self = Self(224);
    pub(crate) const FILE_NOT_FOUND: Self = Self(301);
    pub(crate) const OPERATING_SYSTEM: Self = Self(304);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const ILLEGAL_STATE: Self = Self(401);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: Self = Self(701);
    pub(crate) const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    pub(crate) const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: Self = Self(720);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const SYSTEM_NOT_READY: Self = Self(802);
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    pub(crate) const STREAM_CAPTURE_INVALIDATED: Self = Self(901);
    pub(crate) const STREAM_CAPTURE_MERGE: Self = Self(902);
    pub(crate) const STREAM_CAPTURE_UNMATCHED: Self = Self(903);
    pub(crate) const STREAM_CAPTURE_UNJOINED: Self = Self(904);
    pub(crate) const STREAM_CAPTURE_ISOLATION: Self = Self(905);
    pub(crate) const STREAM_CAPTURE_IMPLICIT: Self = Self(906);
    pub(crate) const CAPTURED_EVENT: Self = Self(907);
    pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
    pub(crate) const INVALID_RESOURCE_TYPE: Self = Self(914);
    pub(crate) const INVALID_RESOURCE_CONFIGURATION: Self = Self(915);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// A lost card answers `CUDA_ERROR_DEVICE_UNAVAILABLE`, which the header describes as "the requested device is
/// unavailable at the current time"; no code says "lost" (NVML has one).
impl From<TakeError> for CuError {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::NoMemory => Self::OUT_OF_MEMORY,
            TakeError::CardLost => Self::DEVICE_UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }
}
