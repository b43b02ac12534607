//! The built library against the table of names.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use gpupool_headers::{Headers, Release};
use object::elf::{DF_1_NODELETE, DT_FLAGS_1, DT_SONAME};
use object::{Object, ObjectSymbol};

fn library() -> Vec<u8> {
    let dist = gpupool_dist::given_or_built().unwrap();
    std::fs::read(dist.join("simgpu/libnvidia-ml.so.1")).unwrap()
}

#[test]
fn exactly_the_names_of_the_table_are_exported_and_these_are_the_headers() {
    let table: BTreeSet<String> = include_str!("../names.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.trim_end_matches(" +").to_owned())
        .collect();
    let headers = Headers::fetch().unwrap();
    let declared: BTreeSet<_> = [Release::Cuda12, Release::Cuda13]
        .into_iter()
        .flat_map(|release| headers.nvml_functions(release).unwrap())
        .collect();
    assert_eq!(table.symmetric_difference(&declared).collect::<Vec<_>>(), [] as [&String; 0]);

    let bytes = library();
    let file = object::File::parse(&*bytes).unwrap();
    let exported: BTreeSet<String> = file
        .dynamic_symbols()
        .filter(ObjectSymbol::is_definition)
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    assert_eq!(exported, table);
}

#[test]
fn the_library_is_known_by_its_soname_and_stays_loaded() {
    let bytes = library();
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let table = file.elf_dynamic_table().unwrap();
    let entry = |tag| table.iter().find(|one| one.tag == tag).unwrap();
    assert_eq!(table.string(entry(DT_SONAME)).unwrap(), b"libnvidia-ml.so.1");
    assert_ne!(entry(DT_FLAGS_1).val & DF_1_NODELETE.0, 0);
}
