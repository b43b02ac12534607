//! The built library, read as a file: what it needs, what it shows, how large it is.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::collections::BTreeSet;

use gpupool_shim::table::Entry;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, SectionHeader, Sym};
use object::{Endianness, StringTable};

/// The oldest glibc that the library must load on.
const GLIBC_FLOOR: (u32, u32) = (2, 17);
const LARGEST: usize = 64 * 1024;

type Elf = FileHeader64<Endianness>;

fn bytes() -> Vec<u8> {
    std::fs::read(lab::shim()).unwrap()
}

fn text(strings: StringTable<'_>, offset: u32) -> String {
    String::from_utf8(strings.get(offset).unwrap().to_vec()).unwrap()
}

#[test]
fn it_needs_nothing_but_the_c_library() {
    let bytes = bytes();
    let header = Elf::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let (dynamic, strings) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, strings).unwrap();
    let needed: Vec<_> = dynamic
        .iter()
        .filter(|entry| entry.tag(endian) == elf::DT_NEEDED)
        .map(|entry| text(strings, entry.val32(endian).unwrap()))
        .collect();
    assert_eq!(needed, ["libc.so.6"]);
    let tags: Vec<_> = dynamic.iter().map(|entry| entry.tag(endian)).collect();
    for (tag, what) in [(elf::DT_RPATH, "RPATH"), (elf::DT_RUNPATH, "RUNPATH"), (elf::DT_TEXTREL, "TEXTREL")]
    {
        assert!(!tags.contains(&tag), "it has a {what}");
    }
}

#[test]
fn it_shows_the_rows_of_the_table_and_nothing_else() {
    let bytes = bytes();
    let header = Elf::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let symbols = sections.symbols(endian, &*bytes, elf::SHT_DYNSYM).unwrap();
    let shown: BTreeSet<_> = symbols
        .iter()
        .filter(|symbol| symbol.st_shndx(endian) != elf::SHN_UNDEF && symbol.st_bind() != elf::STB_LOCAL)
        .map(|symbol| text(symbols.strings(), symbol.st_name(endian)))
        .collect();
    let rows: BTreeSet<_> = Entry::all().map(|entry| entry.name().to_str().unwrap().to_owned()).collect();
    assert_eq!(shown, rows);
}

#[test]
fn it_asks_for_old_functions_of_the_c_library_only() {
    let bytes = bytes();
    let header = Elf::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let symbols = sections.symbols(endian, &*bytes, elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
    let mut strong = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.st_shndx(endian) != elf::SHN_UNDEF || symbol.st_name(endian) == 0 {
            continue;
        }
        let name = text(symbols.strings(), symbol.st_name(endian));
        if symbol.st_bind() == elf::STB_GLOBAL {
            strong.insert(name.clone());
        }
        let Ok(Some(version)) = versions.version(versions.version_index(endian, index).into()) else {
            continue;
        };
        let version = String::from_utf8(version.name().to_vec()).unwrap();
        let numbers: Vec<u32> =
            version.strip_prefix("GLIBC_").unwrap().split('.').map(|n| n.parse().unwrap()).collect();
        assert!((numbers[0], numbers[1]) <= GLIBC_FLOOR, "{name}@{version}");
    }
    let of_the_loader: Vec<_> =
        strong.iter().filter(|name| name.starts_with("dl") && *name != "dl_iterate_phdr").collect();
    assert!(of_the_loader.is_empty(), "{of_the_loader:?} live in another library before glibc 2.34");
    for forbidden in
        ["exit", "_exit", "abort", "raise", "signal", "sigaction", "pthread_create", "malloc", "printf"]
    {
        assert!(!strong.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn it_is_small_and_cannot_panic() {
    let bytes = bytes();
    assert!(bytes.len() < LARGEST, "{} bytes", bytes.len());
    let header = Elf::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let names: Vec<_> = sections
        .iter()
        .map(|section| String::from_utf8_lossy(sections.section_name(endian, section).unwrap()))
        .collect();
    assert!(names.iter().any(|name| name == ".text"));
    assert!(!names.iter().any(|name| name == "gpupool_panic"), "some code in it can panic");
}

#[test]
fn loading_it_looks_up_few_symbols() {
    let bytes = bytes();
    let header = Elf::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let relocations: usize = sections
        .iter()
        .filter_map(|section| section.rela(endian, &*bytes).unwrap())
        .map(|(relocations, _)| relocations.len())
        .sum();
    assert!(relocations < 40, "{relocations} relocations are made in every process that starts");
}
