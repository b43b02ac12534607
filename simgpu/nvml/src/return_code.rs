//! NVML's return codes and the sentence that goes with each.

use std::ffi::CStr;

/// What a call failed with; success is 0 and not among them. Numbers as in NVML's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ReturnCode {
    /// No init came before, or as many shutdowns as inits did.
    Uninitialized = 1,
    /// A null pointer, a handle that is none, a number out of range.
    InvalidArgument = 2,
    /// The card has no such thing.
    NotSupported = 3,
    /// No card, process or object of that name.
    NotFound = 6,
    /// The caller's buffer or list is too short.
    InsufficientSize = 7,
    /// The simulated state could not be opened.
    DriverNotLoaded = 9,
    /// The card fell off the bus.
    GpuIsLost = 15,
    /// A structure's version field names none that is known.
    ArgumentVersionMismatch = 25,
    /// A defect of this library.
    Unknown = 999,
}

/// The sentence for any return code, known or not.
pub(crate) fn sentence(code: u32) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"The operating system has blocked the request",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"Not available on the target device while ECC is enabled",
        23 => c"Insufficient Resources",
        24 => c"Frequency Not Supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU Not Found",
        29 => c"Invalid State",
        30 => c"Reset Type Not Supported",
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
