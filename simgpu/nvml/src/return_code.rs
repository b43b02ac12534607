//! NVML's return codes and the sentence that goes with each.

use std::ffi::CStr;

use gpupool_nvidia::nvml::{
    NVML_ERROR_ALREADY_INITIALIZED, NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_CORRUPTED_INFOROM,
    NVML_ERROR_DEPRECATED, NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_FREQ_NOT_SUPPORTED,
    NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_GPU_IS_LOST, NVML_ERROR_GPU_NOT_FOUND, NVML_ERROR_IN_USE,
    NVML_ERROR_INSUFFICIENT_POWER, NVML_ERROR_INSUFFICIENT_RESOURCES, NVML_ERROR_INSUFFICIENT_SIZE,
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_INVALID_STATE, NVML_ERROR_IRQ_ISSUE,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH, NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_MEMORY, NVML_ERROR_NO_DATA,
    NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_FOUND, NVML_ERROR_NOT_READY, NVML_ERROR_NOT_SUPPORTED,
    NVML_ERROR_OPERATING_SYSTEM, NVML_ERROR_RESET_REQUIRED, NVML_ERROR_RESET_TYPE_NOT_SUPPORTED,
    NVML_ERROR_TIMEOUT, NVML_ERROR_UNINITIALIZED, NVML_ERROR_UNKNOWN, NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
    NVML_SUCCESS,
};

/// What a call failed with; success is 0 and not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ReturnCode {
    /// No init came before, or as many shutdowns as inits did.
    Uninitialized = NVML_ERROR_UNINITIALIZED.cast_unsigned(),
    /// A null pointer, a handle that is none, a number out of range.
    InvalidArgument = NVML_ERROR_INVALID_ARGUMENT.cast_unsigned(),
    /// The card has no such thing.
    NotSupported = NVML_ERROR_NOT_SUPPORTED.cast_unsigned(),
    /// No card, process or object of that name.
    NotFound = NVML_ERROR_NOT_FOUND.cast_unsigned(),
    /// The caller's buffer or list is too short.
    InsufficientSize = NVML_ERROR_INSUFFICIENT_SIZE.cast_unsigned(),
    /// The simulated state could not be opened.
    DriverNotLoaded = NVML_ERROR_DRIVER_NOT_LOADED.cast_unsigned(),
    /// The card fell off the bus.
    GpuIsLost = NVML_ERROR_GPU_IS_LOST.cast_unsigned(),
    /// A structure's version field names none that is known.
    ArgumentVersionMismatch = NVML_ERROR_ARGUMENT_VERSION_MISMATCH.cast_unsigned(),
    /// A defect of this library.
    Unknown = NVML_ERROR_UNKNOWN.cast_unsigned(),
}

/// The sentence for any return code, known or not.
pub(crate) fn sentence(code: u32) -> &'static CStr {
    match code.cast_signed() {
        NVML_SUCCESS => c"Success",
        NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        NVML_ERROR_ALREADY_INITIALIZED => c"Already Initialized",
        NVML_ERROR_NOT_FOUND => c"Not Found",
        NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        NVML_ERROR_INSUFFICIENT_POWER => c"Insufficient External Power",
        NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        NVML_ERROR_TIMEOUT => c"Timeout",
        NVML_ERROR_IRQ_ISSUE => c"Interrupt Request Issue",
        NVML_ERROR_LIBRARY_NOT_FOUND => c"NVML Shared Library Not Found",
        NVML_ERROR_FUNCTION_NOT_FOUND => c"Function Not Found",
        NVML_ERROR_CORRUPTED_INFOROM => c"Corrupted infoROM",
        NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        NVML_ERROR_RESET_REQUIRED => c"GPU requires reset",
        NVML_ERROR_OPERATING_SYSTEM => c"The operating system has blocked the request",
        NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        NVML_ERROR_IN_USE => c"In use by another client",
        NVML_ERROR_MEMORY => c"Insufficient Memory",
        NVML_ERROR_NO_DATA => c"No data",
        NVML_ERROR_VGPU_ECC_NOT_SUPPORTED => c"Not available on the target device while ECC is enabled",
        NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        NVML_ERROR_FREQ_NOT_SUPPORTED => c"Frequency Not Supported",
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        NVML_ERROR_DEPRECATED => c"Deprecated",
        NVML_ERROR_NOT_READY => c"Not Ready",
        NVML_ERROR_GPU_NOT_FOUND => c"GPU Not Found",
        NVML_ERROR_INVALID_STATE => c"Invalid State",
        NVML_ERROR_RESET_TYPE_NOT_SUPPORTED => c"Reset Type Not Supported",
        _ => c"Unknown Error",
    }
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn every_code_of_the_header_has_a_sentence_of_its_own() {
        let mut sentences: Vec<_> = (0..=30).chain([999]).map(sentence).collect();
        sentences.sort_unstable();
        sentences.dedup();
        assert_eq!(sentences.len(), 32);
        assert_eq!(sentence(31), sentence(999));
    }
}
