//! The objects that are loaded in this process, in the loader's order.
//!
//! Knows how to recognise the two libraries that matter and this library itself. Knows nothing of what is done with
//! their functions.

pub(crate) mod elf;
pub(crate) mod pin;

use core::ffi::{CStr, c_int, c_void};
use core::ops::ControlFlow;
use core::ptr;

use self::elf::Symbols;

/// A library whose functions are interposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// NVIDIA's driver API.
    Driver,
    /// NVIDIA's management library.
    Nvml,
}

impl Library {
    const fn soname(self) -> &'static CStr {
        match self {
            Self::Driver => c"libcuda.so.1",
            Self::Nvml => c"libnvidia-ml.so.1",
        }
    }

    /// What the file names of the library begin with, for builds without a soname.
    const fn stem(self) -> &'static [u8] {
        match self {
            Self::Driver => b"libcuda.so",
            Self::Nvml => b"libnvidia-ml.so",
        }
    }
}

/// One loaded object, for as long as the walk is at it.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    info: &'a libc::dl_phdr_info,
}

impl<'a> Object<'a> {
    fn headers(self) -> &'a [libc::Elf64_Phdr] {
        if self.info.dlpi_phdr.is_null() {
            return &[];
        }
        // SAFETY: the loader's own table, of the length that it tells.
        unsafe { core::slice::from_raw_parts(self.info.dlpi_phdr, usize::from(self.info.dlpi_phnum)) }
    }

    fn base(self) -> usize {
        usize::try_from(self.info.dlpi_addr).unwrap_or(0)
    }

    /// Whether an address lies in the object.
    pub(crate) fn contains(self, address: usize) -> bool {
        self.headers().iter().any(|header| {
            let start = self.base().wrapping_add(usize::try_from(header.p_vaddr).unwrap_or(0));
            let length = usize::try_from(header.p_memsz).unwrap_or(0);
            header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < length
        })
    }

    /// The object's dynamic symbols.
    pub(crate) fn symbols(self) -> Option<Symbols> {
        let dynamic = self.headers().iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let place = self.base().wrapping_add(usize::try_from(dynamic.p_vaddr).ok()?);
        // SAFETY: the object is loaded while the walk is at it; whoever keeps the answer pins the object.
        Some(unsafe { Symbols::of(self.base(), place) })
    }

    /// The path by which the loader knows the object; empty for the program itself.
    pub(crate) fn path(self) -> &'a CStr {
        if self.info.dlpi_name.is_null() {
            return c"";
        }
        // SAFETY: the loader's own text.
        unsafe { CStr::from_ptr(self.info.dlpi_name) }
    }

    /// Whether this is `library`, by its soname, or by its file's name when it has none.
    pub(crate) fn is(self, library: Library, symbols: &Symbols) -> bool {
        symbols
            .soname()
            .map_or_else(|| self.file_name().starts_with(library.stem()), |soname| soname == library.soname())
    }

    /// Whether this is the C library or its companion that has `dlsym` where the C library has not (before 2.34).
    /// musl's counts, which often has no soname: nothing is held there, but nothing must break either.
    pub(crate) fn is_libc(self, symbols: &Symbols) -> bool {
        let name = symbols.soname().map_or_else(|| self.file_name(), CStr::to_bytes);
        matches!(name, b"libc.so.6" | b"libdl.so.2" | b"libc.so")
            || name.starts_with(b"ld-musl-")
            || name.starts_with(b"libc.musl-")
    }

    fn file_name(self) -> &'a [u8] {
        let path = self.path().to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }
}

/// Walks over the loaded objects in the loader's order until `visit` breaks off with an answer.
pub(crate) fn walk<T, V>(visit: V) -> Option<T>
where
    V: FnMut(&Object<'_>) -> ControlFlow<T>,
{
    struct Walk<T, V> {
        visit: V,
        answer: Option<T>,
    }

    unsafe extern "C" fn step<T, V>(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> c_int
    where
        V: FnMut(&Object<'_>) -> ControlFlow<T>,
    {
        // SAFETY: the loader passes a description that is valid for this call, and `walk` back as it was given.
        let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk<T, V>>()) };
        match (walk.visit)(&Object { info }) {
            ControlFlow::Break(answer) => {
                walk.answer = Some(answer);
                1
            }
            ControlFlow::Continue(()) => 0,
        }
    }

    let mut walk = Walk { visit, answer: None };
    // SAFETY: `step` is given back the structure that it was made for, which lives until the walk is over.
    unsafe { libc::dl_iterate_phdr(Some(step::<T, V>), ptr::from_mut(&mut walk).cast()) };
    walk.answer
}

/// Walks over the objects' symbols, leaving out those that have none.
pub(crate) fn find<T>(mut choose: impl FnMut(&Object<'_>, &Symbols) -> Option<T>) -> Option<T> {
    walk(|object| match object.symbols().and_then(|symbols| choose(object, &symbols)) {
        Some(answer) => ControlFlow::Break(answer),
        None => ControlFlow::Continue(()),
    })
}

/// A function of the C library, by any of its homes.
pub(crate) fn libc_function(name: &CStr) -> Option<usize> {
    let name = name.to_bytes();
    find(|object, symbols| object.is_libc(symbols).then(|| symbols.function(name)).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_dlsym(name: &CStr) -> usize {
        // SAFETY: an ordinary look-up.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.expose_provenance()
    }

    #[test]
    fn functions_of_the_c_library_are_found_where_dlsym_finds_them() {
        for name in [c"dlsym", c"dlopen", c"getpid", c"dl_iterate_phdr", c"memcpy", c"pthread_cond_wait"] {
            assert_eq!(libc_function(name), Some(by_dlsym(name)), "{name:?}");
        }
        assert_eq!(libc_function(c"no_such_function_anywhere"), None);
    }

    #[test]
    fn an_address_is_found_in_exactly_the_object_that_holds_it() {
        let address = by_dlsym(c"getpid");
        let holders = {
            let mut names = Vec::new();
            let _ = walk(|object| {
                if object.contains(address) {
                    names.push(object.symbols().and_then(|s| s.soname().map(CStr::to_owned)));
                }
                ControlFlow::<()>::Continue(())
            });
            names
        };
        assert_eq!(holders, [Some(c"libc.so.6".to_owned())]);
    }
}
