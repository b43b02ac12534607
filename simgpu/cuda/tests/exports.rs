//! The built library exports the driver API, all of it and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::{collections::BTreeSet, path::PathBuf};

use object::{Object as _, ObjectSymbol as _};

fn built() -> Vec<u8> {
    let Some(dist) = std::env::var_os("GPUPOOL_DIST") else { panic!("run through cargo xtask test") };
    std::fs::read(PathBuf::from(dist).join("simgpu/libcuda.so.1")).unwrap()
}

#[test]
fn the_built_library_exports_exactly_the_table() {
    let bytes = built();
    let library = object::File::parse(&*bytes).unwrap();
    let defined = library.dynamic_symbols().filter(object::ObjectSymbol::is_definition);
    let exported: BTreeSet<_> = defined.map(|symbol| symbol.name().unwrap().to_owned()).collect();
    let table = include_str!("../entry_points.tsv");
    let names = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let listed: BTreeSet<_> = names.map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    assert_eq!(listed.len(), 688);
    assert_eq!(exported, listed);
}

#[test]
fn it_is_found_by_its_soname() {
    let bytes = built();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("libcuda.so.1\0"));
}
