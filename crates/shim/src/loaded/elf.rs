//! The dynamic symbol table of an object that is loaded in this process, read where it lies.
//!
//! This is how the real functions are found: without `dlsym`, which this library replaces and must not need.
//! What the loader has accepted is trusted to be well formed; what is found missing answers with nothing.

use core::ffi::CStr;
use core::ptr;

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

const TYPE_FUNCTION: u8 = 2;
const TYPE_NONE: u8 = 0;
const TYPE_INDIRECT: u8 = 10;
/// A symbol version that is not the default one.
const HIDDEN: u16 = 0x8000;

#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// Where an object keeps its symbols. All numbers are addresses; 0 means that it has no such table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbols {
    base: usize,
    table: usize,
    strings: usize,
    gnu_hash: usize,
    hash: usize,
    versions: usize,
    soname: usize,
}

impl Symbols {
    /// No tables at all.
    pub(crate) const fn none() -> Self {
        Self { base: 0, table: 0, strings: 0, gnu_hash: 0, hash: 0, versions: 0, soname: 0 }
    }

    /// Reads the dynamic section at `dynamic` of an object that was loaded at `base`.
    ///
    /// # Safety
    /// Both must belong to an object that is loaded and stays so while the answer is used.
    pub(crate) unsafe fn of(base: usize, dynamic: usize) -> Self {
        // The loader turns offsets into addresses in place, but not in objects whose section is read-only.
        let address = |value: usize| if value < base { base.wrapping_add(value) } else { value };
        let mut found = Self { base, ..Self::none() };
        let mut soname_offset = None;
        let mut entry: *const DynamicEntry = ptr::with_exposed_provenance(dynamic);
        // SAFETY: a dynamic section ends with DT_NULL.
        unsafe {
            while (*entry).tag != DT_NULL {
                let value = (*entry).value;
                match (*entry).tag {
                    DT_SYMTAB => found.table = address(value),
                    DT_STRTAB => found.strings = address(value),
                    DT_GNU_HASH => found.gnu_hash = address(value),
                    DT_HASH => found.hash = address(value),
                    DT_VERSYM => found.versions = address(value),
                    DT_SONAME => soname_offset = Some(value),
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        if let Some(offset) = soname_offset
            && found.strings != 0
        {
            found.soname = found.strings + offset;
        }
        found
    }

    /// The object's own name for itself.
    pub(crate) fn soname(&self) -> Option<&CStr> {
        if self.soname == 0 {
            return None;
        }
        // SAFETY: names in a string table end with NUL.
        Some(unsafe { CStr::from_ptr(ptr::with_exposed_provenance(self.soname)) })
    }

    /// The address of a function that the object defines; its default version where it has several.
    pub(crate) fn function(&self, name: &[u8]) -> Option<usize> {
        if self.table == 0 || self.strings == 0 {
            return None;
        }
        // SAFETY: the tables belong together, as `of` found them.
        unsafe {
            if self.gnu_hash != 0 {
                self.by_gnu_hash(name)
            } else if self.hash != 0 {
                self.by_hash(name)
            } else {
                None
            }
        }
    }

    /// The name of the function whose address is `wanted`, in an object with a hash of GNU's kind. A walk over all of them.
    pub(crate) fn name_where(&self, wanted: impl Fn(usize) -> bool) -> Option<&'static CStr> {
        if self.gnu_hash == 0 || self.table == 0 || self.strings == 0 {
            return None;
        }
        let table: *const u32 = ptr::with_exposed_provenance(self.gnu_hash);
        let symbols: *const Symbol = ptr::with_exposed_provenance(self.table);
        // SAFETY: as in `by_gnu_hash`; every symbol of the hash is in one chain, and a chain ends with an odd link.
        unsafe {
            let (buckets, first) = (*table, *table.add(1));
            let bucket = table.add(4 + 2 * *table.add(2) as usize);
            let chain = bucket.add(buckets as usize);
            for place in 0..buckets as usize {
                let mut index = *bucket.add(place);
                while index >= first {
                    let symbol = &*symbols.add(index as usize);
                    if wanted(self.base.wrapping_add(symbol.value)) {
                        return Some(self.text(symbol));
                    }
                    if *chain.add((index - first) as usize) & 1 != 0 {
                        break;
                    }
                    index += 1;
                }
            }
        }
        None
    }

    unsafe fn by_gnu_hash(&self, name: &[u8]) -> Option<usize> {
        let table: *const u32 = ptr::with_exposed_provenance(self.gnu_hash);
        let hash = gnu_hash(name);
        // SAFETY: layout of DT_GNU_HASH: four words, the filter, the buckets, the chains.
        unsafe {
            let (buckets, first) = (*table, *table.add(1));
            let (filter_words, shift) = (*table.add(2), *table.add(3));
            if buckets == 0 || filter_words == 0 {
                return None;
            }
            let filter: *const u64 = table.add(4).cast();
            let word = *filter.add(((hash / 64) % filter_words) as usize);
            let mask = (1_u64 << (hash % 64)) | (1_u64 << ((hash >> (shift & 31)) % 64));
            if word & mask != mask {
                return None;
            }
            let bucket: *const u32 = filter.add(filter_words as usize).cast();
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            let mut spare = None;
            loop {
                let link = *chain.add((index - first) as usize);
                if link | 1 == hash | 1 {
                    match self.candidate(index, name) {
                        Some((address, true)) => return Some(address),
                        Some((address, false)) => spare = spare.or(Some(address)),
                        None => {}
                    }
                }
                if link & 1 != 0 {
                    return spare;
                }
                index += 1;
            }
        }
    }

    unsafe fn by_hash(&self, name: &[u8]) -> Option<usize> {
        let table: *const u32 = ptr::with_exposed_provenance(self.hash);
        let hash = sysv_hash(name);
        // SAFETY: layout of DT_HASH: two words, the buckets, the chains; index 0 ends a chain.
        unsafe {
            let buckets = *table;
            if buckets == 0 {
                return None;
            }
            let bucket = table.add(2);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            let mut spare = None;
            while index != 0 {
                match self.candidate(index, name) {
                    Some((address, true)) => return Some(address),
                    Some((address, false)) => spare = spare.or(Some(address)),
                    None => {}
                }
                index = *chain.add(index as usize);
            }
            spare
        }
    }

    /// A symbol's name.
    unsafe fn text(&self, symbol: &Symbol) -> &'static CStr {
        // SAFETY: names in a string table end with NUL; whoever keeps the tables keeps the object.
        unsafe { CStr::from_ptr(ptr::with_exposed_provenance(self.strings + symbol.name as usize)) }
    }

    /// The address of symbol `index` if it is a function of that name that is defined here, and whether it is the
    /// default version.
    unsafe fn candidate(&self, index: u32, name: &[u8]) -> Option<(usize, bool)> {
        let symbols: *const Symbol = ptr::with_exposed_provenance(self.table);
        // SAFETY: the index came from the object's own hash table.
        unsafe {
            let symbol = &*symbols.add(index as usize);
            let kind = symbol.info & 15;
            let fits = symbol.section != 0
                && symbol.value != 0
                && matches!(kind, TYPE_FUNCTION | TYPE_NONE | TYPE_INDIRECT);
            if !fits || self.text(symbol).to_bytes() != name {
                return None;
            }
            let mut address = self.base.wrapping_add(symbol.value);
            if kind == TYPE_INDIRECT {
                let choose: extern "C" fn() -> usize =
                    core::mem::transmute::<*const (), _>(ptr::with_exposed_provenance(address));
                address = choose();
            }
            let default = self.versions == 0 || {
                let versions: *const u16 = ptr::with_exposed_provenance(self.versions);
                *versions.add(index as usize) & HIDDEN == 0
            };
            Some((address, default))
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

fn sysv_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

#[cfg(test)]
mod tests {
    use super::{gnu_hash, sysv_hash};

    #[test]
    fn the_hashes_are_those_of_the_format() {
        assert_eq!(gnu_hash(b"printf"), 0x156b_2bb8);
        assert_eq!(sysv_hash(b"printf"), 0x0779_05a6);
    }
}
