//! The few result codes of the driver API and NVML that the shim answers itself.

/// `CUresult`.
pub(crate) type CuResult = i32;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: CuResult = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: CuResult = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
/// `CUDA_ERROR_DEVICE_UNAVAILABLE`: the agent refused a card.
pub(crate) const DEVICE_UNAVAILABLE: CuResult = 46;
/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: CuResult = 100;
/// `CUDA_ERROR_INVALID_DEVICE`.
pub(crate) const INVALID_DEVICE: CuResult = 101;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) const INVALID_CONTEXT: CuResult = 201;
/// `CUDA_ERROR_NOT_FOUND`.
pub(crate) const NOT_FOUND: CuResult = 500;
/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: CuResult = 600;

/// `nvmlReturn_t`.
pub(crate) type NvmlReturn = i32;

/// `NVML_SUCCESS`.
pub(crate) const NVML_SUCCESS: NvmlReturn = 0;
/// `NVML_ERROR_INVALID_ARGUMENT`.
pub(crate) const NVML_INVALID_ARGUMENT: NvmlReturn = 2;
/// `NVML_ERROR_NOT_FOUND`.
pub(crate) const NVML_NOT_FOUND: NvmlReturn = 6;
/// `NVML_ERROR_INSUFFICIENT_SIZE`.
pub(crate) const NVML_INSUFFICIENT_SIZE: NvmlReturn = 7;
/// `NVML_ERROR_LIBRARY_NOT_FOUND`.
pub(crate) const NVML_LIBRARY_NOT_FOUND: NvmlReturn = 12;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`.
pub(crate) const NVML_FUNCTION_NOT_FOUND: NvmlReturn = 13;
