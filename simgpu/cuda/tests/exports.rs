//! The built library exports the driver API, all of it and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;

use gpupool_headers::{Flavour, Headers, Release};
use object::{Object as _, ObjectSymbol as _};

fn built() -> Vec<u8> {
    let dist = gpupool_dist::given_or_built().unwrap();
    std::fs::read(dist.join("simgpu/libcuda.so.1")).unwrap()
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
    assert_eq!(exported, listed);
}

/// The table says what the published headers say: every symbol, its base name, its version, its default stream.
#[test]
fn the_table_holds_every_function_of_the_published_headers() {
    let headers = Headers::fetch().unwrap();
    let mut declared = BTreeSet::new();
    for release in [Release::Cuda12, Release::Cuda13] {
        for function in headers.driver_functions(release).unwrap() {
            let flavour = match function.flavour {
                Flavour::Plain => "plain",
                Flavour::Ptds => "ptds",
                Flavour::Ptsz => "ptsz",
            };
            declared
                .insert(format!("{}\t{}\t{}\t{flavour}", function.symbol, function.base, function.version));
        }
    }
    let table = include_str!("../entry_points.tsv");
    let rows: BTreeSet<_> =
        table.lines().filter(|line| !line.starts_with('#')).skip(1).map(str::to_owned).collect();
    assert_eq!(rows.symmetric_difference(&declared).collect::<Vec<_>>(), [] as [&String; 0]);
}

#[test]
fn it_is_found_by_its_soname() {
    let bytes = built();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("libcuda.so.1\0"));
}
