//! The ways by which a program finds functions: `dlsym`, `dlvsym` and `cuGetProcAddress`.
//!
//! The real resolver is always asked first and stays right about everything: what it does not find is not found,
//! which version a caller gets is its choice. Only where it found a function that has a row, the row's entry point
//! takes its place.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use gpupool_nvidia::cuda::{CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CUDA_SUCCESS, CUresult};

use super::address;
use crate::real::{self, Next, Real, call};
use crate::state::{self, Mode};
use crate::table::Entry;
use crate::table::names;

/// What a replaced `dlsym` does: jump to `jump`, or answer `answer` where that is 0.
#[repr(C)]
pub(crate) struct Decision {
    jump: usize,
    answer: usize,
}

impl Decision {
    const fn jump(to: usize) -> Self {
        Self { jump: to, answer: 0 }
    }

    const fn answer(answer: usize) -> Self {
        Self { jump: 0, answer }
    }
}

const DEFAULT: usize = 0;
const NEXT: usize = usize::MAX;

/// A version that no library has: asking for it fails as the real look-up would, with the loader's own error text.
const NO_SUCH_VERSION: &CStr = c"not loaded";

fn real_dlsym() -> usize {
    real::find(Entry::dlsym).address().unwrap_or(0)
}

fn real_dlvsym() -> usize {
    real::find(Entry::dlvsym).address().unwrap_or(0)
}

/// The row of a name.
///
/// # Safety
/// `name` is null or points to a text with its NUL.
unsafe fn row(name: *const c_char) -> Option<Entry> {
    if name.is_null() {
        return None;
    }
    // SAFETY: a caller of dlsym passes a text.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    // Most names have nothing to do with GPUs; they must cost nothing.
    if !matches!(name.first(), Some(b'c' | b'n' | b'd')) {
        return None;
    }
    names::find(name)
}

/// The answer that the loader would give if this library did not define the name: nothing, with its error.
fn absent() -> Decision {
    Decision { jump: real_dlvsym(), answer: NO_SUCH_VERSION.as_ptr().expose_provenance() }
}

/// What a program gets for a function of the interposed library: the row's entry point, or the function itself in a
/// process that has nothing to do with a pool.
fn offered(entry: Entry) -> Decision {
    match state::mode() {
        Mode::Pooled => Decision::answer(address(entry)),
        Mode::NoPool => real::find(entry).address().map_or_else(absent, Decision::answer),
    }
}

/// Decides for `dlsym(handle, name)`, called from `caller`.
///
/// # Safety
/// `name` is a text or null.
pub(crate) unsafe extern "C" fn decide_dlsym(handle: usize, name: *const c_char, caller: usize) -> Decision {
    let address = real_dlsym();
    // SAFETY: passed on.
    let Some(entry) = (unsafe { row(name) }) else { return Decision::jump(address) };
    if let Some(decision) = decide_special(handle, entry, caller, address) {
        return decision;
    }
    if address == 0 {
        return Decision::answer(0);
    }
    // SAFETY: the real dlsym with the caller's arguments. It sees this library as the caller, which matters for the
    // two special handles only.
    let found = unsafe {
        let dlsym: unsafe extern "C" fn(usize, *const c_char) -> usize =
            core::mem::transmute::<*const (), _>(ptr::with_exposed_provenance(address));
        dlsym(handle, name)
    };
    decide_found(entry, found)
}

/// Decides for `dlvsym(handle, name, version)`, called from `caller`.
///
/// # Safety
/// `name` is a text or null.
pub(crate) unsafe extern "C" fn decide_dlvsym(
    handle: usize,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Decision {
    let address = real_dlvsym();
    // SAFETY: passed on.
    let Some(entry) = (unsafe { row(name) }) else { return Decision::jump(address) };
    if handle == NEXT {
        return decide_special(handle, entry, caller, address).unwrap_or_else(|| Decision::jump(address));
    }
    if address == 0 {
        return Decision::answer(0);
    }
    // SAFETY: the real dlvsym with the caller's arguments.
    let found = unsafe {
        let dlvsym: unsafe extern "C" fn(usize, *const c_char, *const c_char) -> usize =
            core::mem::transmute::<*const (), _>(ptr::with_exposed_provenance(address));
        dlvsym(handle, name, version)
    };
    if found == 0 && handle == DEFAULT {
        // The caller's own scope may know more than ours.
        return Decision::jump(address);
    }
    decide_found(entry, found)
}

/// The two special handles, which mean "what comes first" and "what comes after the caller". `resolver` knows best,
/// unless what it finds is this library's own symbol or the interposed library's.
fn decide_special(handle: usize, entry: Entry, caller: usize, resolver: usize) -> Option<Decision> {
    if handle != DEFAULT && handle != NEXT {
        return None;
    }
    if entry.library().is_none() {
        // Other preloads fetch the real dlsym so; they get ours, or their look-ups would lead past this library.
        let ours = state::mode() == Mode::Pooled;
        return Some(if ours { offered(entry) } else { Decision::jump(resolver) });
    }
    let after = if handle == NEXT { caller } else { 0 };
    Some(match real::first_after(after, address(entry), entry) {
        // Never a circle: an entry point calls the interposed library's own function, not what comes next.
        Next::Library => offered(entry),
        Next::Other => Decision::jump(resolver),
        Next::Nobody => absent(),
    })
}

/// What a look-up in a library found: the real function is replaced, this library's own symbol (a look-up in the
/// whole program finds it first) counts as what it stands for.
fn decide_found(entry: Entry, found: usize) -> Decision {
    if found == 0 || state::mode() == Mode::NoPool && found != address(entry) {
        return Decision::answer(found);
    }
    if found == address(entry) {
        return if real::find(entry).address().is_some() { offered(entry) } else { absent() };
    }
    if real::find(entry) == Real::At(found) { offered(entry) } else { Decision::answer(found) }
}

/// Puts the entry point of a row in the place of the real function that `cuGetProcAddress` found for `symbol`.
///
/// The row is known by the address that was found, not by the name: so the caller gets the version and the stream
/// semantics that the driver chose for it. A driver may hand out an inner function whose address it does not export;
/// then the row is the one that the driver's rules for versions and flags lead to.
///
/// # Safety
/// `symbol` is null or points to a text with its NUL; `function` is null or points to an address, 8 bytes, which the
/// driver has written and that may be written.
unsafe fn replace(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) {
    if symbol.is_null() || function.is_null() || state::mode() == Mode::NoPool {
        return;
    }
    // SAFETY: the driver has accepted both.
    let (name, found) = unsafe { (CStr::from_ptr(symbol).to_bytes(), (*function).expose_provenance()) };
    if found == 0 {
        return;
    }
    let by_address = names::variants(name).find(|&entry| real::find(entry) == Real::At(found));
    let entry = by_address.or_else(|| {
        let version = u32::try_from(version).unwrap_or(0);
        let entry =
            names::variant_for(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0)?;
        real::is_in_library(entry, found).then_some(entry)
    });
    if let Some(entry) = entry {
        // SAFETY: as above.
        unsafe { *function = ptr::with_exposed_provenance_mut(address(entry)) };
    }
}

/// `cuGetProcAddress` of CUDA 11.3.
///
/// # Safety
/// `symbol` is null or points to a text with its NUL; `function` is null or points to an address, 8 bytes, that may be
/// written.
pub(crate) unsafe extern "C" fn get_proc_address(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        let code = call!(Entry::cuGetProcAddress, symbol => *const c_char, function => *mut *mut c_void,
            version => c_int, flags => u64);
        if code == CUDA_SUCCESS {
            replace(symbol, function, version, flags);
        }
        code
    }
}

macro_rules! get_proc_address {
    ($(#[$doc:meta])* $name:ident, $entry:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `symbol` is null or points to a text with its NUL; `function` is null or points to an address, 8 bytes, that
        /// may be written; `status` is null or points to a `CUdriverProcAddressQueryResult`, 4 bytes, that may be
        /// written.
        pub(crate) unsafe extern "C" fn $name(
            symbol: *const c_char,
            function: *mut *mut c_void,
            version: c_int,
            flags: u64,
            status: *mut c_int,
        ) -> CUresult {
            // SAFETY: the caller's arguments.
            unsafe {
                let code = call!(Entry::$entry, symbol => *const c_char, function => *mut *mut c_void,
                    version => c_int, flags => u64, status => *mut c_int);
                if code == CUDA_SUCCESS {
                    replace(symbol, function, version, flags);
                }
                code
            }
        }
    };
}

get_proc_address!(
    /// `cuGetProcAddress` since CUDA 12.
    get_proc_address_v2, cuGetProcAddress_v2);
get_proc_address!(
    /// The same, as programs with per-thread default streams may ask for it.
    get_proc_address_v2_ptsz, cuGetProcAddress_v2_ptsz);

/// `dlsym`: decides by [`decide_dlsym`], then answers, or jumps to the real one with the caller's arguments.
///
/// # Safety
/// `_handle` is one of the linker's handles; `_name` points to a text with its NUL.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "je 2f",
        // Where the jump goes to dlvsym, the second half of the decision is its version; dlsym does not look at it.
        "jmp rax",
        "2:",
        "mov rax, rdx",
        "ret",
        decide = sym decide_dlsym,
    )
}

/// `dlvsym`: likewise, by [`decide_dlvsym`].
///
/// # Safety
/// `_handle` is one of the linker's handles; `_name` and `_version` each point to a text with its NUL.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
        "call {decide}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "mov rax, r11",
        "ret",
        decide = sym decide_dlvsym,
    )
}
