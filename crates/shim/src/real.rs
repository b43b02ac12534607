//! The real functions behind the rows, found once each and kept.
//!
//! A library whose functions are kept is pinned: a program that closes its last handle must not leave this library
//! with addresses into nothing.

pub(crate) mod arguments;

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpupool_nvidia::cuda::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE,
    CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS, CUresult,
};
use gpupool_nvidia::nvml::{NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_LIBRARY_NOT_FOUND, nvmlReturn_t};

use crate::loaded::elf::Symbols;
use crate::loaded::pin::Pin;
use crate::loaded::{self, Library};
use crate::state::{self, ProcessStage};
use crate::table::{COUNT, Class, Entry};

/// Kept in place of an address when the library has no such function.
const ABSENT: usize = 1;

static FOUND: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// What became of looking for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Real {
    /// It is at this address.
    At(usize),
    /// The library is loaded and does not have it.
    Absent,
    /// The library is not loaded.
    NoLibrary,
}

impl Real {
    /// The address, if there is one.
    pub(crate) const fn address(self) -> Option<usize> {
        match self {
            Self::At(address) => Some(address),
            Self::Absent | Self::NoLibrary => None,
        }
    }
}

/// Looks for the real function of a row.
#[inline]
pub(crate) fn find(entry: Entry) -> Real {
    match FOUND.get(entry.index()).map_or(0, |slot| slot.load(Ordering::Acquire)) {
        0 => look(entry),
        ABSENT => Real::Absent,
        address => Real::At(address),
    }
}

#[cold]
#[inline(never)]
fn look(entry: Entry) -> Real {
    let address = match entry.library() {
        None => loaded::libc_function(entry.name()),
        Some(library) => match pinned(library) {
            None => return Real::NoLibrary,
            Some(symbols) => symbols.function(entry.name().to_bytes()),
        },
    };
    if let Some(slot) = FOUND.get(entry.index()) {
        slot.store(address.unwrap_or(ABSENT), Ordering::Release);
    }
    address.map_or(Real::Absent, Real::At)
}

static DRIVER: Pin = Pin::new();
static NVML: Pin = Pin::new();

/// The symbols of a loaded library, which is pinned from now on.
fn pinned(library: Library) -> Option<Symbols> {
    let pin = match library {
        Library::Driver => &DRIVER,
        Library::Nvml => &NVML,
    };
    if let Some(symbols) = pin.get() {
        return Some(symbols);
    }
    let (symbols, path) = loaded::find(|object, symbols| {
        object.is(library, symbols).then(|| (*symbols, object.path().as_ptr()))
    })?;
    keep_loaded(path);
    pin.set(symbols);
    Some(symbols)
}

/// Has the loader keep the object of this path for good. The path is the loader's own, so it finds that very object.
fn keep_loaded(path: *const c_char) {
    let Some(address) = loaded::libc_function(c"dlopen") else { return };
    // SAFETY: the C library's dlopen has this form, and the path is the loader's own text.
    unsafe {
        let dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
            core::mem::transmute::<*const (), _>(ptr::with_exposed_provenance(address));
        dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
    }
}

/// Whether an address lies in the library that a row belongs to.
pub(crate) fn is_in_library(entry: Entry, address: usize) -> bool {
    let library = entry.library();
    loaded::find(|object, symbols| {
        let interposed = library.is_some_and(|library| object.is(library, symbols));
        (interposed && object.contains(address)).then_some(())
    })
    .is_some()
}

/// Who defines a name besides this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The interposed library comes first.
    Library,
    /// Another preload or library does.
    Other,
    /// Nobody does.
    Nobody,
}

/// Who defines `entry` first, in the loader's order, after the object that holds `caller` (of all objects if that is
/// 0). The object that holds `own`, this library, does not count.
pub(crate) fn first_after(caller: usize, own: usize, entry: Entry) -> Next {
    let (library, name) = (entry.library(), entry.name().to_bytes());
    let mut passed = caller == 0;
    loaded::find(|object, symbols| {
        if !passed {
            passed = object.contains(caller);
            return None;
        }
        if object.contains(own) {
            return None;
        }
        symbols.function(name)?;
        let interposed = library.is_some_and(|library| object.is(library, symbols));
        Some(if interposed { Next::Library } else { Next::Other })
    })
    .unwrap_or(Next::Nobody)
}

extern "C" fn no_driver() -> CUresult {
    CUDA_ERROR_NO_DEVICE
}

extern "C" fn not_in_driver() -> CUresult {
    CUDA_ERROR_NOT_FOUND
}

extern "C" fn no_nvml() -> nvmlReturn_t {
    NVML_ERROR_LIBRARY_NOT_FOUND
}

extern "C" fn not_in_nvml() -> nvmlReturn_t {
    NVML_ERROR_FUNCTION_NOT_FOUND
}

extern "C" fn no_context() -> CUresult {
    CUDA_ERROR_INVALID_CONTEXT
}

extern "C" fn free_nothing(address: usize) -> CUresult {
    if address == 0 { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

extern "C" fn reset_nothing(device: c_int) -> CUresult {
    if device == 0 { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_DEVICE }
}

/// Before the first grant the real driver is not initialised and would say so. A program that has called `cuInit` and
/// gives back what it cannot have yet is answered as an initialised driver answers it.
#[cold]
fn nothing_to_free(entry: Entry) -> Option<usize> {
    if entry.class() != Class::Frees {
        return None;
    }
    let stand_in = match entry {
        Entry::cuMemFree | Entry::cuMemFree_v2 => free_nothing as *const (),
        Entry::cuDevicePrimaryCtxReset | Entry::cuDevicePrimaryCtxReset_v2 => reset_nothing as *const (),
        _ => no_context as *const (),
    };
    Some(stand_in.expose_provenance())
}

/// What to call for a row: the real function, or one that answers as the library would for a function that it does
/// not have.
#[inline(never)]
pub(crate) fn callable(entry: Entry) -> usize {
    if state::stage() == ProcessStage::Initialised
        && let Some(stand_in) = nothing_to_free(entry)
    {
        return stand_in;
    }
    let stand_in: extern "C" fn() -> i32 = match (find(entry), entry.library()) {
        (Real::At(address), _) => return address,
        (Real::Absent, Some(Library::Nvml)) => not_in_nvml,
        (Real::NoLibrary, Some(Library::Nvml)) => no_nvml,
        (Real::Absent, _) => not_in_driver,
        (Real::NoLibrary, _) => no_driver,
    };
    (stand_in as *const ()).expose_provenance()
}

/// Calls a function of the driver that has no row: programs use it as they like. It is looked up each time, so this is
/// for calls that are rare.
///
/// # Safety
/// As for that function, which must take words.
pub(crate) unsafe fn unlisted<const N: usize>(name: &[u8], arguments: [usize; N]) -> CUresult {
    let mut words = [0; 3];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = argument;
    }
    // SAFETY: the caller's promise; words beyond those that the function takes are ignored.
    unsafe { call_unlisted(name, words) }
}

#[inline(never)]
unsafe fn call_unlisted(name: &[u8], [first, second, third]: [usize; 3]) -> CUresult {
    let found = pinned(Library::Driver).and_then(|symbols| symbols.function(name));
    let Some(address) = found else { return CUDA_ERROR_NOT_FOUND };
    // SAFETY: the caller's promise.
    unsafe {
        let function: unsafe extern "C" fn(usize, usize, usize) -> CUresult =
            core::mem::transmute::<*const (), _>(ptr::with_exposed_provenance(address));
        function(first, second, third)
    }
}

/// Calls the real function of a row with arguments of the types told.
macro_rules! call {
    ($entry:expr $(, $argument:expr => $type:ty)* $(,)?) => {{
        let function: unsafe extern "C" fn($($type),*) -> i32 = core::mem::transmute::<*const (), _>(
            core::ptr::with_exposed_provenance($crate::real::callable($entry)),
        );
        function($($argument),*)
    }};
}
pub(crate) use call;
