//! Code that programs bring: PTX text, cubins, fat binaries. It is read for what it declares (entry points, their
//! parameters, variables), never run.

pub(crate) mod cubin;
pub(crate) mod fatbin;
pub(crate) mod ptx;

use std::ffi::{CStr, CString, c_void};

use crate::error::{CuError, CuResult};

/// One entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) name: CString,
    /// Offset and size of each parameter in bytes; `None` where the code does not say.
    pub(crate) parameters: Option<Vec<(usize, usize)>>,
    /// Most threads of a block.
    pub(crate) max_threads: u32,
    /// Statically allocated shared memory in bytes.
    pub(crate) shared: u32,
    /// Constants of the program's in bytes.
    pub(crate) constant: u32,
    /// Stack of a thread in bytes.
    pub(crate) local: u32,
    /// Registers of a thread.
    pub(crate) registers: u32,
}

/// One variable on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: CString,
    /// Bytes.
    pub(crate) size: u64,
    /// What it holds at first; shorter than it is where the rest is zeros. Text is not read for values.
    pub(crate) initial: Vec<u8>,
}

/// What a piece of code declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    /// The architecture it was made for, 10 × major + minor.
    pub(crate) architecture: u32,
    /// How long the code is in bytes; what a card holds of it is about that.
    pub(crate) length: u64,
}

impl Kernel {
    /// A kernel of which nothing but its name is known.
    fn named(name: &str) -> Option<Self> {
        Some(Self {
            name: CString::new(name).ok()?,
            parameters: None,
            max_threads: 1024,
            shared: 0,
            constant: 0,
            local: 0,
            registers: 16,
        })
    }
}

/// Whether machine code for `code` runs on a card of `card` (both 10 × major + minor): the same major number, and no
/// newer.
const fn runs_on(code: u32, card: u32) -> bool {
    code / 10 == card / 10 && code % 10 <= card % 10
}

impl Image {
    /// Reads code that is to run on a card of architecture `card`. Fails with the driver's codes: an image that is
    /// none, PTX that is none, nothing in it for that card.
    pub(crate) fn parse(bytes: &[u8], card: u32) -> CuResult<Self> {
        if bytes.starts_with(&fatbin::MAGIC) {
            return fatbin::parse(bytes, card);
        }
        if bytes.starts_with(&cubin::MAGIC) {
            let image = cubin::parse(bytes)?;
            return if runs_on(image.architecture, card) {
                Ok(image)
            } else {
                Err(CuError::NO_BINARY_FOR_GPU)
            };
        }
        let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        let text = std::str::from_utf8(text).map_err(|_| CuError::INVALID_IMAGE)?;
        let image = ptx::parse(text)?;
        if image.architecture <= card { Ok(image) } else { Err(CuError::NO_BINARY_FOR_GPU) }
    }

    /// Reads the code at an address that a program passed; its length is in the code itself.
    ///
    /// # Safety
    /// `start` is null or leads to PTX that ends with a zero byte, a whole cubin, a whole fat binary, or the wrapper
    /// that the compiler puts around one.
    pub(crate) unsafe fn at(start: *const c_void, card: u32) -> CuResult<Self> {
        if start.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        // SAFETY: each form begins with at least four bytes (PTX has more, or ends before).
        let bytes = unsafe {
            if starts_with(start, &fatbin::WRAPPER_MAGIC) {
                return Self::at(fatbin::wrapped(start.cast()), card);
            }
            let length = if starts_with(start, &cubin::MAGIC) {
                cubin::length(start.cast())?
            } else if starts_with(start, &fatbin::MAGIC) {
                fatbin::length(start.cast())?
            } else {
                CStr::from_ptr(start.cast()).count_bytes()
            };
            std::slice::from_raw_parts(start.cast::<u8>(), length)
        };
        Self::parse(bytes, card)
    }
}

/// Whether the memory begins with `magic`; stops at the first byte that differs.
///
/// # Safety
/// `start` leads to memory that is readable up to the first byte that differs.
unsafe fn starts_with(start: *const c_void, magic: &[u8]) -> bool {
    // SAFETY: a byte is read only after all before it were equal; a text that is shorter has ended with a zero by then.
    magic.iter().enumerate().all(|(place, byte)| unsafe { start.cast::<u8>().add(place).read() == *byte })
}
