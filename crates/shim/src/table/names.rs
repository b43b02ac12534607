//! From a name to its row, and back.
//!
//! The built library holds no list of names: its own symbol table has every one of them already, with a hash, and
//! each entry point begins by naming its row. In any other build the rows export nothing, so there the names of the
//! table are searched one by one; what is built on top is the same.

use core::ffi::CStr;

use super::{COUNT, Entry, NAMES, since};
use crate::loaded::Library;

/// What the name of a row says about it.
#[derive(Clone, Copy)]
struct Form(u8);

/// The row above is another variant of the same name.
const VARIANT: u8 = 1;
/// The calling thread's own default stream is meant.
const PER_THREAD: u8 = 2;
/// A function of the driver.
const OF_DRIVER: u8 = 4;
/// A function of NVML.
const OF_NVML: u8 = 8;

static FORMS: [Form; COUNT] = forms();

const fn forms() -> [Form; COUNT] {
    let mut forms = [Form(0); COUNT];
    let (mut row, mut rest, mut above): (usize, &[u8], &[u8]) = (0, NAMES, b"");
    while row < COUNT {
        let (name, after) = cut(rest);
        let base = base_of(name);
        let mut form = match name {
            [b'c', b'u', ..] => OF_DRIVER,
            [b'n', b'v', b'm', b'l', ..] => OF_NVML,
            _ => 0,
        };
        if same(base, above) {
            form |= VARIANT;
        } else {
            assert!(
                base.len() == name.len(),
                "a name's first row must be the plain one, the others right below"
            );
        }
        if matches!(name, [.., b'_', b'p', b't', b's' | b'd', b'z' | b's']) {
            form |= PER_THREAD;
        }
        forms[row] = Form(form);
        (row, rest, above) = (row + 1, after, base);
    }
    forms
}

/// The first of several names with NULs, without its own, and the others.
const fn cut(names: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    while names[end] != 0 {
        end += 1;
    }
    let (name, rest) = names.split_at(end);
    (name, rest.split_at(1).1)
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The name without what marks a variant: `_ptsz` or `_ptds`, then `_v` and a number.
const fn base_of(name: &[u8]) -> &[u8] {
    let versioned = match name {
        [rest @ .., b'_', b'p', b't', b's', b'z'] | [rest @ .., b'_', b'p', b't', b'd', b's'] => rest,
        _ => name,
    };
    let mut rest = versioned;
    while let [shorter @ .., b'0'..=b'9'] = rest {
        rest = shorter;
    }
    match rest {
        [base @ .., b'_', b'v'] if rest.len() < versioned.len() && !base.is_empty() => base,
        _ => versioned,
    }
}

impl Entry {
    fn form(self) -> u8 {
        FORMS.get(self.index()).map_or(0, |form| form.0)
    }

    /// The library that it belongs to; none for the loader's own functions.
    pub(crate) fn library(self) -> Option<Library> {
        match self.form() & (OF_DRIVER | OF_NVML) {
            OF_DRIVER => Some(Library::Driver),
            OF_NVML => Some(Library::Nvml),
            _ => None,
        }
    }

    /// Whether the calling thread's own default stream is meant.
    pub(crate) fn is_per_thread(self) -> bool {
        self.form() & PER_THREAD != 0
    }

    /// Its name. Found by a walk over all names: for whoever asks once.
    pub fn name(self) -> &'static CStr {
        rows::name(self)
    }
}

/// The entry point of exactly this name.
pub fn find(name: &[u8]) -> Option<Entry> {
    rows::find(name)
}

/// Every entry point that is a variant of this name: other versions of it, per-thread streams.
pub fn variants(name: &[u8]) -> impl Iterator<Item = Entry> {
    let first = find(base_of(name)).map_or(COUNT, Entry::index);
    (first..COUNT)
        .map_while(Entry::from_index)
        .take_while(move |entry| entry.index() == first || entry.form() & VARIANT != 0)
}

/// The variant of a name that the driver means for a program of CUDA `version`: the newest that there was then, with
/// the calling thread's own default stream if that is asked for and makes a difference.
pub fn variant_for(name: &[u8], version: u32, per_thread_stream: bool) -> Option<Entry> {
    let fitting = |per_thread: bool| {
        variants(name)
            .filter(|entry| (entry.form() & PER_THREAD != 0) == per_thread && since(*entry) <= version)
            .max_by_key(|entry| since(*entry))
    };
    if per_thread_stream { fitting(true).or_else(|| fitting(false)) } else { fitting(false) }
}

/// The row of an entry point of this library: each one begins with `mov eax, row`.
#[cfg(any(feature = "preload", test))]
pub(crate) fn row_at(address: usize) -> Option<Entry> {
    let start: *const u8 = core::ptr::with_exposed_provenance(address);
    // SAFETY: the caller has the address of an entry point, which is longer than these five bytes.
    let row = unsafe { start.add(1).cast::<u32>().read_unaligned() };
    Entry::from_index(row as usize)
}

/// The rows by the symbols of this library.
#[cfg(feature = "preload")]
mod rows {
    use core::ffi::{CStr, c_void};

    use super::row_at;
    use crate::loaded::elf::Symbols;
    use crate::loaded::pin::Pin;
    use crate::table::Entry;

    unsafe extern "C" {
        /// Where this library begins, as the linker has it.
        #[link_name = "__ehdr_start"]
        static START: c_void;
        /// Its dynamic section.
        #[link_name = "_DYNAMIC"]
        static DYNAMIC: c_void;
    }

    static OWN: Pin = Pin::new();

    fn own() -> Symbols {
        OWN.get().unwrap_or_else(|| {
            let (start, dynamic) = (&raw const START, &raw const DYNAMIC);
            // SAFETY: this library's own, which is here for as long as its code runs.
            let symbols = unsafe { Symbols::of(start.expose_provenance(), dynamic.expose_provenance()) };
            OWN.set(symbols);
            symbols
        })
    }

    pub(super) fn find(name: &[u8]) -> Option<Entry> {
        own().function(name).and_then(row_at)
    }

    #[inline(never)]
    pub(super) fn name(entry: Entry) -> &'static CStr {
        own().name_where(|address| row_at(address) == Some(entry)).unwrap_or_default()
    }
}

/// The rows by the list of their names.
#[cfg(not(feature = "preload"))]
mod rows {
    use core::ffi::CStr;

    use crate::table::{Entry, NAMES};

    fn names() -> impl Iterator<Item = &'static CStr> {
        NAMES.split_inclusive(|&byte| byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    }

    pub(super) fn find(name: &[u8]) -> Option<Entry> {
        names().position(|own| own.to_bytes() == name).and_then(Entry::from_index)
    }

    pub(super) fn name(entry: Entry) -> &'static CStr {
        names().nth(entry.index()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
